"""Settings of background work, by group."""

from typing import Literal

from pydantic import Field

from app.setting_groups import SettingGroup


class JobSettings(SettingGroup):
    enabled: bool = Field(True, description="Run background work in the server; off where `recalld worker` does it.")
    decay_seconds: int = Field(3600, ge=1, description="How often faded importance is written down.")
    expiry_seconds: int = Field(600, ge=1, description="How often what has passed its time is deleted.")
    retention_seconds: int = Field(3600, ge=1, description="How often old action logs are rolled up.")
    consolidation_seconds: int = Field(
        86_400, ge=1, description="How often near-duplicate memories are merged and what was done is learned from."
    )
    reflection_seconds: int = Field(
        86_400, ge=1, description="How often memories, facts and profiles are looked through for contradictions."
    )
    predicates_seconds: int = Field(
        3600,
        ge=1,
        description="How often facts of an earlier version, apart by the spelling of a predicate, are merged.",
    )
    embed_seconds: int = Field(5, ge=1, description="How often embedding what is pending is tried.")


class ReflectionSettings(SettingGroup):
    policy: Literal["off", "propose", "auto"] = Field(
        "propose",
        description="What becomes of findings. `propose`: they wait to be settled. `auto`: where time and "
        "trust decide, they are applied, which can be undone. `off`: the daily job does not run.",
    )
    findings_per_run: int = Field(50, ge=1, le=1000, description="Most findings of one run, the surest ones first.")
    insight_calls: int = Field(
        5,
        ge=0,
        le=100,
        description="Most groups of related memories that a run asks the language model about. 0: insights are not "
        "looked for.",
    )
    unconfirmed_days: float = Field(
        180,
        gt=0,
        description="A learned memory of little trust that nobody confirmed, used or said again for so long is stale.",
    )
    pairs_per_run: int = Field(
        200,
        ge=0,
        le=10_000,
        description="Most pairs of records that the language model judges in one run, the likeliest first; 0: none.",
    )


class ProcedureSettings(SettingGroup):
    share: bool = Field(
        True,
        description="Procedures learned from one user's episodes serve the agent's other users once nothing in them "
        "names a user. Off: they stay with their user.",
    )
    failures_in_a_row: int = Field(2, ge=2, le=20, description="A procedure that fails so often in a row is failing.")
    failing_below: float = Field(
        0.5,
        ge=0,
        le=1,
        description="A procedure is failing, too, if the 95 % interval of its success rate lies below.",
    )
    trial_outcomes: int = Field(
        5, ge=2, le=100, description="Outcomes of the old and of the revised steps each, before a trial is decided."
    )
    trial_most: int = Field(
        20, ge=2, le=1000, description="Outcomes of the revised steps after which an undecided trial is dropped."
    )


class RetentionSettings(SettingGroup):
    action_days: float = Field(30, gt=0, description="How long action logs stay as they are.")
    message_days: float = Field(365, gt=0, description="Message memories unused for so long are archived.")
    archive_days: float = Field(30, gt=0, description="How long what was forgotten can be brought back.")
    operation_days: float = Field(
        30, gt=0, description="How long finished operations and failed jobs can be asked for."
    )
    audit_days: float = Field(365, gt=0, description="How long the audit trail goes back.")
