"""Trials: revised steps of a procedure beside the current ones. Both are served in turn, and each outcome counts for
the steps that were served."""

from typing import Literal

from app.procedures.schemas import ProcedureOutcome, ProcedureRecord, ProcedureTrial, ProcedureVariant, TrialCounts
from app.procedures.track_record import interval, smoothed

TRIAL_OUTCOMES = 5
"""Outcomes of the old and of the revised steps each, before a trial is decided."""
TRIAL_MOST = 20
"""Outcomes of the revised steps after which an undecided trial is dropped."""

TrialVerdict = Literal["adopt", "drop"]


def variant_of(outcome: ProcedureOutcome) -> ProcedureVariant:
    """Returns the steps that an outcome counts for."""
    return "revised" if outcome.get("variant") == "revised" else "current"


def new_trial(
    trial_id: str, steps: list[str], action_ids: list[str], model: str, prompt_version: str, now: str
) -> ProcedureTrial:
    """Returns a trial without outcomes."""
    return {
        "trial_id": trial_id,
        "steps": steps,
        "current": {"success_count": 0, "failure_count": 0},
        "revised": {"success_count": 0, "failure_count": 0},
        "action_ids": action_ids,
        "model": model,
        "prompt_version": prompt_version,
        "started_at": now,
    }


def served(trial: ProcedureTrial | None) -> ProcedureVariant:
    """Returns the steps to serve: those with fewer outcomes in the trial; of equally many, the revised ones. So they
    take turns."""
    if trial is None:
        return "current"
    return "revised" if _tried(trial["revised"]) <= _tried(trial["current"]) else "current"


def counted(trial: ProcedureTrial, variant: ProcedureVariant, *, success: bool) -> ProcedureTrial:
    """Returns the trial with one more outcome."""
    if variant == "revised":
        return {**trial, "revised": with_outcome(trial["revised"], success=success)}
    return {**trial, "current": with_outcome(trial["current"], success=success)}


def with_outcome(counts: TrialCounts, *, success: bool) -> TrialCounts:
    """Returns the counts with one more outcome."""
    return {
        "success_count": counts["success_count"] + success,
        "failure_count": counts["failure_count"] + (not success),
    }


def verdict(trial: ProcedureTrial) -> TrialVerdict | None:
    """Returns what becomes of the revised steps, or None as long as the trial goes on.

    With `TRIAL_OUTCOMES` each, they are adopted once the lower bound of their interval exceeds the smoothed success
    rate of the current steps, and dropped once their upper bound is less than it. After `TRIAL_MOST` outcomes of the
    revised steps, or twice as many of both, they are dropped: what is not better in so many tries is worth no change.
    """
    current, revised = trial["current"], trial["revised"]
    if min(_tried(current), _tried(revised)) >= TRIAL_OUTCOMES:
        rate = smoothed(current["success_count"], current["failure_count"])
        lower, upper = interval(revised["success_count"], revised["failure_count"])
        if lower > rate:
            return "adopt"
        if upper < rate:
            return "drop"
    is_over = _tried(revised) >= TRIAL_MOST or _tried(revised) + _tried(current) >= 2 * TRIAL_MOST
    return "drop" if is_over else None


def as_served(procedure: ProcedureRecord) -> ProcedureRecord:
    """Returns a procedure with the steps to serve."""
    trial = procedure.get("trial")
    return procedure if trial is None or served(trial) == "current" else {**procedure, "steps": trial["steps"]}


def restored(before: ProcedureRecord) -> ProcedureRecord:
    """Returns the fields that an undo restores. It brings no trial back: an adoption that was undone would be adopted
    again at the next outcome. What was tried then counts as tried in vain."""
    trial = before.get("trial")
    if trial is None:
        return before
    return {**before, "trial": None, "dropped_trials": [*(before.get("dropped_trials") or []), trial["steps"]]}


def trial_sentence(trial: ProcedureTrial) -> str:
    """Returns a sentence such as `worked 1 of 2 times` about the revised steps."""
    revised = trial["revised"]
    tried = _tried(revised)
    return f"worked {revised['success_count']} of {tried} time{'' if tried == 1 else 's'}" if tried else "not tried yet"


def _tried(counts: TrialCounts) -> int:
    return counts["success_count"] + counts["failure_count"]
