"""The job that asserts a fact with `on_conflict: merge`.

The model is asked for one object that says what the new fact and those that it contends with say. Its answer is taken
if rules find nothing in it that none of them says, and something of each. Else the fact is asserted as by `temporal`.
The operation can be undone.
"""

from collections.abc import Sequence

import orjson

from app.core.language import words
from app.facts.profile import field_of, value_of
from app.facts.repository import FactRepository
from app.facts.schemas import USER, FactCreate, FactRecord
from app.facts.service import Contended, contended, plain
from app.jobs.runner import Done, Run
from app.learning import prompts
from app.learning.checks import stands
from app.learning.dependencies import NO_PRECONDITION, Tools
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, id_of, undo_of
from app.llm.base import LLM, configured
from app.memories.schemas import Source
from app.storage.changes import Change
from app.storage.scope import Scope

PROMPT = "merge_fact"


def refusal(value: str | None, inputs: Sequence[str]) -> str | None:
    """Returns why an answer of the model is not taken, or None.

    Args:
        value: The merged object.
        inputs: The objects that it is made of.
    """
    if value is None or not words(value):
        return "contradiction"
    if not stands(value, " ".join(inputs)):
        return "invented"
    return None if all(stands(text, value) for text in inputs) else "left_out"


class FactMergeJob:
    """Asserts facts that are to be merged."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm

    async def handle(self, run: Run) -> Done:
        """Asserts the fact of the request. The result has the id of the fact, and whether it was merged or why not.
        Raises what the model's client raises; nothing is written then, and the job is tried again."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        body = plain(FactCreate.model_validate(run.payload["body"]))
        facts = FactRepository(self._tools.store, scope)
        met = await contended(facts, body, self._tools.clock)
        merged, result = await self._merged(met, body, scope)

        async def plan() -> tuple[DerivationResult, list[Change]]:
            assertion, source, report = body, Source(), result
            if merged is not None:
                now = await contended(facts, body, self._tools.clock)
                if _ids(now) == _ids(met):
                    assertion, source = merged
                else:
                    report = {**result, "merged": False, "reason": "changed_meanwhile"}
            outcome = await self._tools.facts(scope).assert_all([assertion], NO_PRECONDITION, [source])
            (fact,) = outcome.body["items"]
            return {**report, "fact_ids": [fact["fact_id"]], "status": fact["status"]}, list(outcome.changes)

        owner: DerivationRecord = {"agent_id": met.draft["agent_id"], "user_id": met.draft["user_id"]}
        derivation_id = id_of([str(run.lease.job.operation_id)], PROMPT)
        done = await commit_noted(run, plan, derivation_id, owner)
        return Done({**(done or {"merged": False, "reason": "done_before"})}, await undo_of(run, self._tools))

    async def _merged(
        self, met: Contended, body: FactCreate, scope: Scope
    ) -> tuple[tuple[FactCreate, Source] | None, DerivationResult]:
        """Returns the merged fact with fields of its source, or None, and the result so far."""
        if not met.rivals:
            return None, {"merged": False, "reason": "no_conflict"}
        if any(rival["trust"] > body.trust for rival in met.rivals):
            return None, {"merged": False, "reason": "less_trust"}
        llm = configured(self._llm)
        budget = llm.budget(self._tools.allowance(scope.tenant))
        inputs = [*(rival["object"] for rival in met.rivals), body.object]
        prompt = prompts.load(PROMPT)
        shown = {"subject": "the user" if met.draft["subject"] == USER else met.draft["subject"]}
        data = orjson.dumps({**shown, "predicate": met.draft["predicate"], "values": inputs}).decode()
        reply = await llm.reply(prompt.text, data, prompts.MergedFact, budget)
        reason = refusal(reply.value, inputs) or _unfit(reply.value, met.draft)
        result: DerivationResult = {"merged": reason is None, "reason": reason, "llm": budget.spent}
        if reason is not None or reply.value is None:
            return None, result
        origin: Source = {"model": llm.model_for(prompts.MergedFact), "prompt_version": prompt.id}
        return (_merged_fact(body, met, reply.value), origin), result


def _unfit(value: str | None, draft: FactRecord) -> str | None:
    """Returns why the profile cannot have the value, or None."""
    name = field_of(draft)
    return "no_value" if name is not None and value is not None and value_of(name, value) is None else None


def _merged_fact(body: FactCreate, met: Contended, value: str) -> FactCreate:
    """Returns the merged fact: for the time of all together, with the least confidence, and with the trust that it
    takes to stand in their place."""
    start, end = met.union()
    return FactCreate.model_validate(
        body.model_dump(exclude_unset=True, exclude={"object_type", "valid_from", "valid_until"})
        | {
            "object": value,
            "valid_from": start,
            "valid_until": end,
            "trust": max(rival["trust"] for rival in met.rivals),
            "confidence": min([body.confidence, *(rival["confidence"] for rival in met.rivals)]),
            "cardinality": "one",
            "on_conflict": "last_write_wins",
        }
    )


def _ids(met: Contended) -> list[str]:
    return [rival["fact_id"] for rival in met.rivals]
