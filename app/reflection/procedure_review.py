"""The review of a procedure: one that fails becomes a finding, and a trial of revised steps is begun and decided."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import orjson

from app.actions.schemas import ACTIONS, ActionRecord
from app.core.clock import new_id, rfc3339
from app.core.language import is_unspaced, words
from app.core.prompt_text import count
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.findings.schemas import Proposal, evidence_names
from app.findings.service import (
    EvidenceReader,
    EvidenceRecord,
    FindingRepository,
    new_finding,
    of_action,
    of_procedure,
    whole,
)
from app.jobs.queue import skipping
from app.jobs.runner import Done, Run
from app.learning import prompts
from app.learning.checks import stands
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, commit_planned, id_of, undo_of
from app.learning.episodes import Batch, without_served
from app.llm.base import LLM, Budget
from app.memories.repository import of_partition, same_partition
from app.procedures.schemas import PROCEDURES, ProcedureRecord, ProcedureTrial
from app.procedures.service import Failing, ProcedureRepository, failing, new_trial, smoothed, verdict
from app.storage.changes import Change
from app.storage.repository import Repository
from app.storage.schema import Eq, both
from app.storage.scope import Scope
from app.storage.text import normalise_content

MOST_TRIALS = 3
"""So many trials are dropped; then only a caller changes the steps."""
KIND: Literal["failing_procedure"] = "failing_procedure"


class ProcedureReviews:
    """Runs reviews. An outcome starts one; without a language model it makes a finding alone."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm

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
        return Done(result, await undo_of(run, self._tools))

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

    async def _earlier_finding(self, findings: FindingRepository, evidence: EvidenceRecord, now: str) -> str | None:
        """Returns the id of a finding about the same steps that is dismissed, or open with its evidence whole."""
        reader = EvidenceReader(self._tools.store, findings.scope, now)
        where = both(of_partition(evidence.agent_id, evidence.user_id), Eq("kind", KIND))
        for finding in await findings.find(where):
            if evidence.named() not in finding["evidence"]:
                continue
            is_open = finding["status"] == "open" and whole(finding, await reader.read(evidence_names(finding)))
            if is_open or finding["status"] == "dismissed":
                return finding["finding_id"]
        return None

    def _now(self) -> str:
        return rfc3339(self._tools.clock.now())


def _owner(procedure: ProcedureRecord) -> DerivationRecord:
    return {"agent_id": procedure["agent_id"], "user_id": procedure["user_id"]}


# --- Revised steps: what the model is shown, and the rule by which its answer is taken --------------------------------

PROMPT = "procedure_revision"


async def episodes_of(tools: Tools, scope: Scope, procedure: ProcedureRecord) -> dict[str, ActionRecord]:
    """Returns the actions that the procedure's outcomes name, by id. Those of other agents and users are left out: a
    procedure that serves all users is revised from nobody's own episodes."""
    ids = [outcome["action_id"] for outcome in procedure["recent_outcomes"] if outcome["action_id"]]
    actions = await Repository(tools.store, scope, ACTIONS).get_many(ids)
    return {action_id: action for action_id, action in actions.items() if same_partition(action, procedure)}


async def proposed(
    tools: Tools, scope: Scope, procedure: ProcedureRecord, llm: LLM, budget: Budget
) -> ProcedureTrial | None:
    """Asks the model for better steps. Returns a trial of them, or None if it knows none or the rule drops them.

    Raises what the model's client raises.
    """
    episodes = await episodes_of(tools, scope, procedure)
    prompt = prompts.load(PROMPT)
    room = llm.prompt_tokens - prompts.SHAPE_TOKENS - count(prompt.text)
    data = prompts.fitting(_data(procedure, episodes, scope), room)
    answer = await llm.reply(prompt.text, orjson.dumps(data).decode(), prompts.RevisedSteps, budget)
    steps = without_served(answer.revised_steps)
    known = [procedure["steps"], *(procedure.get("dropped_trials") or [])]
    if not founded(steps, data) or _normalised(steps) in map(_normalised, known):
        return None
    model, now = llm.model_for(prompts.RevisedSteps), rfc3339(tools.clock.now())
    return new_trial(new_id("trial"), steps, sorted(episodes), model, prompt.id, now)


def _data(procedure: ProcedureRecord, episodes: Mapping[str, ActionRecord], scope: Scope) -> Json:
    """Returns what the model is shown. The latest outcomes come first: what has no room goes from the end."""
    numbers = {action_id: number for number, action_id in enumerate(episodes)}
    shown = Batch(scope, procedure["agent_id"], procedure["user_id"], list(episodes.values())).shown()
    outcomes: list[Json] = []
    for outcome in reversed(procedure["recent_outcomes"]):
        number = None if outcome["action_id"] is None else numbers.get(outcome["action_id"])
        episode = {} if number is None else {"episode": {**shown[number], "number": number + 1}}
        note = {} if outcome["note"] is None else {"note": strip_served(outcome["note"])}
        outcomes.append({"success": outcome["success"], **note, **episode})
    return {
        "procedure": {
            "name": procedure["name"],
            "trigger": procedure["trigger"],
            "preconditions": procedure["preconditions"],
            "steps": procedure["steps"],
            "notes": procedure["notes"],
        },
        "outcomes": outcomes,
        "tried_in_vain": procedure.get("dropped_trials") or [],
    }


SMALL = 4
"""Words of so few letters join the others ("over", "dann", "avec") and need no evidence."""


def founded(steps: Sequence[str], data: Mapping[str, object]) -> bool:
    """Returns True if there are steps, and all their numbers and every word of them that is not `SMALL` stand in the
    procedure or its outcomes, in one of their forms. What was tried in vain is no evidence."""
    text = orjson.dumps([data["procedure"], data["outcomes"]]).decode()
    for step in steps:
        telling = [word for word in words(step) if len(word) > SMALL or not word.isalpha() or is_unspaced(word)]
        if not telling or not stands(" ".join(telling), text):
            return False
    return bool(steps)


def _normalised(steps: Sequence[str]) -> list[str]:
    return list(map(normalise_content, steps))
