"""The review of a procedure: one that fails becomes a finding, and a trial of revised steps is begun and decided."""

from app.core.clock import rfc3339
from app.findings.schemas import evidence_names
from app.findings.service import (
    EvidenceReader,
    EvidenceRecord,
    FindingRepository,
    new_finding,
    of_action,
    of_procedure,
    whole,
)
from app.jobs.runner import Done, Run
from app.jobs.skipping import skipping
from app.learning.dependencies import Tools
from app.learning.derivations import commit_noted, commit_planned, id_of, undo_of
from app.learning.episodes import MOST_TRIALS, episodes_of, proposed
from app.llm.base import LLM
from app.memories.repository import of_pair
from app.procedures.review import Failing, failing
from app.procedures.schemas import PROCEDURES
from app.procedures.service import ProcedureRepository
from app.procedures.track_record import smoothed
from app.procedures.trials import Verdict, verdict
from app.storage.changes import Change
from app.storage.schema import Doc, Eq, both
from app.storage.scope import Scope

KIND = "failing_procedure"


class ProcedureReviews:
    """Runs reviews. An outcome starts one; without a language model it makes a finding alone."""

    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days

    async def handle(self, run: Run) -> Done:
        """Runs the job. Raises what the model's client raises, after the finding was stored."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        procedures = ProcedureRepository(run.store, scope)
        doc = await procedures.find_one(run.payload["procedure_id"])
        if doc is None or doc["status"] != "active":
            return Done({"skipped": "the procedure is gone or archived"})
        result: Doc = {}
        with skipping(PROCEDURES, doc["procedure_id"]):
            if doc.get("trial"):
                result = await self._decide(run, procedures, doc)
            else:
                result = await self._fail(run, scope, procedures, doc)
        return Done(result, await undo_of(run, self._undo_days))

    # --- Trials -------------------------------------------------------------------------------------------------------

    async def _decide(self, run: Run, procedures: ProcedureRepository, doc: Doc) -> Doc:
        """Adopts or drops the revised steps, if the trial is decided. Adoption keeps the old steps as history."""
        trial_id = doc["trial"]["trial_id"]

        async def plan() -> tuple[Doc, list[Change]]:
            now = await procedures.find_one(doc["procedure_id"])
            trial = None if now is None else now.get("trial")
            if now is None or trial is None or trial["trial_id"] != trial_id:
                return {"skipped": "the trial was ended meanwhile"}, []
            found = verdict(trial)
            if found is None:
                return {"skipped": "the trial goes on"}, []
            counts = {name: trial[name] for name in ("current", "revised")}
            result = {"procedure_id": doc["procedure_id"], "verdict": found, **counts}
            return result, procedures.revise(now, _ended(now, trial, found), self._now())

        owner = _owner(doc)
        return await commit_noted(run, plan, id_of([trial_id, _outcomes(doc)], "verdict"), owner) or {}

    async def _begin(self, run: Run, scope: Scope, procedures: ProcedureRepository, doc: Doc, llm: LLM) -> Doc:
        """Begins a trial of steps that the model proposes. Raises what the model's client raises."""
        if len(doc.get("dropped_trials") or []) >= MOST_TRIALS:
            return {"skipped": f"{MOST_TRIALS} revisions were tried in vain"}
        budget = llm.budget(self._tools.allowance(run.tenant))
        trial = await proposed(self._tools, scope, doc, llm, budget)
        if trial is None:
            return {"skipped": "the model proposed nothing that the episodes show", "llm": budget.spent}

        async def plan() -> tuple[Doc, list[Change]]:
            now = await procedures.find_one(doc["procedure_id"])
            if now is None or now["version"] != doc["version"] or now["status"] != "active":
                return {"skipped": "the procedure was changed meanwhile"}, []
            return {"trial_id": trial["trial_id"]}, procedures.revise(now, {"trial": trial}, self._now())

        result = await commit_noted(run, plan, id_of([trial["trial_id"]], "trial"), _owner(doc))
        return {**(result or {}), "llm": budget.spent}

    # --- Findings -----------------------------------------------------------------------------------------------------

    async def _fail(self, run: Run, scope: Scope, procedures: ProcedureRepository, doc: Doc) -> Doc:
        why = failing(doc)
        if why is None:
            return {"skipped": "the procedure does not fail any more"}
        found = await commit_planned(run, lambda: self._finding(scope, doc, why))
        if self._llm is None:
            return found
        return {**found, "trial": await self._begin(run, scope, procedures, doc, self._llm)}

    async def _finding(self, scope: Scope, doc: Doc, why: Failing) -> tuple[Doc, list[Change]]:
        """Returns the id of the finding, and its insert unless one of the same steps is open or was dismissed."""
        findings, now = FindingRepository(self._tools.store, scope), self._now()
        procedure = of_procedure(doc)
        known = await self._known(findings, procedure, now)
        if known is not None:
            return {"finding_id": known}, []
        episodes, failed = await episodes_of(self._tools, scope, doc), [one["action_id"] for one in why.outcomes]
        evidence = [procedure, *(of_action(episodes[one]) for one in dict.fromkeys(failed) if one in episodes)]
        retire = [{"kind": procedure.kind, "id": procedure.id}]
        proposal = {"action": "revise", "keep": None, "retire": retire, "details": {"status": "archived"}}
        confidence = 1 - smoothed(why.successes, why.failures)
        agent, user = doc["agent_id"], doc["user_id"]
        finding = new_finding(agent, user, KIND, why.reason, evidence, proposal, confidence, now)
        if await findings.find_one(finding["finding_id"]) is not None:
            return {"finding_id": finding["finding_id"]}, []
        return {"finding_id": finding["finding_id"]}, [findings.insert(finding)]

    async def _known(self, findings: FindingRepository, procedure: EvidenceRecord, now: str) -> str | None:
        """Returns the id of a finding about the same steps that is dismissed, or open with its evidence whole."""
        doc, reader = procedure.doc, EvidenceReader(self._tools.store, findings.scope, now)
        where = both(of_pair(doc["agent_id"], doc["user_id"]), Eq("kind", KIND))
        for one in await findings.find(where):
            if procedure.named() not in one["evidence"]:
                continue
            stands = one["status"] == "open" and whole(one, await reader.read(evidence_names(one)))
            if stands or one["status"] == "dismissed":
                return str(one["finding_id"])
        return None

    def _now(self) -> str:
        return rfc3339(self._tools.clock.now())


def _ended(doc: Doc, trial: Doc, found: Verdict) -> Doc:
    if found == "drop":
        return {"trial": None, "dropped_trials": [*(doc.get("dropped_trials") or []), trial["steps"]]}
    return {"steps": trial["steps"], "trial": None, "dropped_trials": []}


def _outcomes(doc: Doc) -> int:
    """Returns the number of outcomes of a procedure, by which reviews of one trial differ."""
    return int(doc["success_count"] + doc["failure_count"])


def _owner(doc: Doc) -> Doc:
    return {"agent_id": doc["agent_id"], "user_id": doc["user_id"]}
