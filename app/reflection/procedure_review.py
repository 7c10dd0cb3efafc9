"""The review of a procedure: one that fails becomes a finding, and a trial of revised steps is begun and decided."""

from functools import partial
from typing import Literal

from app.core.clock import rfc3339
from app.core.schemas import Json
from app.findings.schemas import Proposal, evidence_names
from app.findings.service import (
    EvidenceReader,
    FindingRepository,
    ProcedureEvidence,
    new_finding,
    of_action,
    of_procedure,
    whole,
)
from app.jobs.runner import Done, Run
from app.jobs.skipping import skipping
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, commit_planned, id_of, undo_of
from app.learning.episodes import MOST_TRIALS, episodes_of, proposed
from app.llm.base import LLM
from app.memories.repository import of_pair
from app.procedures.schemas import PROCEDURES, ProcedureRecord
from app.procedures.service import ProcedureRepository
from app.procedures.track_record import Failing, failing, smoothed, verdict
from app.storage.changes import Change
from app.storage.schema import Eq, both
from app.storage.scope import Scope

KIND: Literal["failing_procedure"] = "failing_procedure"


class ProcedureReviews:
    """Runs reviews. An outcome starts one; without a language model it makes a finding alone."""

    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days

    async def handle(self, run: Run) -> Done:
        """Runs the job. Raises what the model's client raises, after the finding was stored."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        procedures = ProcedureRepository(run.store, scope)
        procedure = await procedures.find_one(run.payload["procedure_id"])
        if procedure is None or procedure["status"] != "active":
            return Done({"skipped": "the procedure is gone or archived"})
        result: Json = {}
        with skipping(PROCEDURES, procedure["procedure_id"]):
            if trial := procedure.get("trial"):
                result = {**await self._decide(run, procedures, procedure, trial["trial_id"])}
            elif (why := failing(procedure)) is None:
                result = {"skipped": "the procedure does not fail any more"}
            else:
                result = {"finding_id": await commit_planned(run, partial(self._finding, scope, procedure, why))}
                if self._llm is not None:
                    result["trial"] = await self._begin(run, scope, procedures, procedure, self._llm)
        return Done(result, await undo_of(run, self._undo_days))

    # --- Trials -------------------------------------------------------------------------------------------------------

    async def _decide(
        self, run: Run, procedures: ProcedureRepository, procedure: ProcedureRecord, trial_id: str
    ) -> DerivationResult:
        """Adopts or drops the revised steps, if the trial is decided. Adoption keeps the old steps as history."""

        async def plan() -> tuple[DerivationResult, list[Change]]:
            now = await procedures.find_one(procedure["procedure_id"])
            trial = None if now is None else now.get("trial")
            if now is None or trial is None or trial["trial_id"] != trial_id:
                return {"skipped": "the trial was ended meanwhile"}, []
            decision = verdict(trial)
            if decision is None:
                return {"skipped": "the trial goes on"}, []
            result: DerivationResult = {
                "procedure_id": procedure["procedure_id"],
                "verdict": decision,
                "current": trial["current"],
                "revised": trial["revised"],
            }
            ended: ProcedureRecord = {"steps": trial["steps"], "trial": None, "dropped_trials": []}
            if decision == "drop":
                ended = {"trial": None, "dropped_trials": [*(now.get("dropped_trials") or []), trial["steps"]]}
            return result, procedures.revise(now, ended, self._now())

        outcomes = procedure["success_count"] + procedure["failure_count"]  # by these, reviews of one trial differ
        return await commit_noted(run, plan, id_of([trial_id, outcomes], "verdict"), _owner(procedure)) or {}

    async def _begin(
        self, run: Run, scope: Scope, procedures: ProcedureRepository, procedure: ProcedureRecord, llm: LLM
    ) -> Json:
        """Begins a trial of steps that the model proposes. Raises what the model's client raises."""
        if len(procedure.get("dropped_trials") or []) >= MOST_TRIALS:
            return {"skipped": f"{MOST_TRIALS} revisions were tried in vain"}
        budget = llm.budget(self._tools.allowance(run.tenant))
        trial = await proposed(self._tools, scope, procedure, llm, budget)
        if trial is None:
            return {"skipped": "the model proposed nothing that the episodes show", "llm": budget.spent}

        async def plan() -> tuple[DerivationResult, list[Change]]:
            now = await procedures.find_one(procedure["procedure_id"])
            if now is None or now["version"] != procedure["version"] or now["status"] != "active":
                return {"skipped": "the procedure was changed meanwhile"}, []
            return {"trial_id": trial["trial_id"]}, procedures.revise(now, {"trial": trial}, self._now())

        result = await commit_noted(run, plan, id_of([trial["trial_id"]], "trial"), _owner(procedure))
        return {**(result or {}), "llm": budget.spent}

    # --- Findings -----------------------------------------------------------------------------------------------------

    async def _finding(self, scope: Scope, procedure: ProcedureRecord, why: Failing) -> tuple[str, list[Change]]:
        """Returns the id of the finding, and its insert unless one of the same steps is open or was dismissed."""
        findings, now = FindingRepository(self._tools.store, scope), self._now()
        evidence = of_procedure(procedure)
        known = await self._earlier_finding(findings, evidence, now)
        if known is not None:
            return known, []
        episodes = await episodes_of(self._tools, scope, procedure)
        failed = dict.fromkeys(outcome["action_id"] for outcome in why.outcomes if outcome["action_id"] is not None)
        actions = [of_action(episodes[action_id]) for action_id in failed if action_id in episodes]
        proposal: Proposal = {
            "action": "revise",
            "keep": None,
            "retire": [{"kind": evidence.kind, "id": evidence.id}],
            "details": {"status": "archived"},
        }
        finding = new_finding(
            procedure["agent_id"],
            procedure["user_id"],
            KIND,
            why.reason,
            [evidence, *actions],
            proposal,
            1 - smoothed(why.successes, why.failures),
            now,
        )
        stored = await findings.find_one(finding["finding_id"])
        return finding["finding_id"], [] if stored is not None else [findings.insert(finding)]

    async def _earlier_finding(self, findings: FindingRepository, evidence: ProcedureEvidence, now: str) -> str | None:
        """Returns the id of a finding about the same steps that is dismissed, or open with its evidence whole."""
        reader = EvidenceReader(self._tools.store, findings.scope, now)
        where = both(of_pair(evidence.agent_id, evidence.user_id), Eq("kind", KIND))
        for finding in await findings.find(where):
            if evidence.named() not in finding["evidence"]:
                continue
            stands = finding["status"] == "open" and whole(finding, await reader.read(evidence_names(finding)))
            if stands or finding["status"] == "dismissed":
                return finding["finding_id"]
        return None

    def _now(self) -> str:
        return rfc3339(self._tools.clock.now())


def _owner(procedure: ProcedureRecord) -> DerivationRecord:
    return {"agent_id": procedure["agent_id"], "user_id": procedure["user_id"]}
