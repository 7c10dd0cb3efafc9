"""The job that asserts a fact with `on_conflict: merge`.

The model is asked for one object that says what the new fact and those that it contends with say. Its answer is taken
if rules find nothing in it that none of them says, and something of each. Else the fact is asserted as by `temporal`.
The operation can be undone.
"""

from collections.abc import Sequence

import orjson

from app.facts.about_user import USER, field_of, value_of
from app.facts.merging import Contended, contended, plain
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate
from app.jobs.runner import Done, Run
from app.learning import evidence, prompts
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import commit_noted, id_of, undo_of
from app.learning.words import table, tokens
from app.llm.base import LLM, configured
from app.storage.changes import Change
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.storage.text import terms

PROMPT = "merge_fact"


def refusal(value: str | None, inputs: Sequence[str]) -> str | None:
    """Returns why an answer of the model is not taken, or None.

    Args:
        value: The merged object.
        inputs: The objects that it is made of.
    """
    if value is None or evidence.no_value(value):
        return "contradiction"
    said = " ".join(inputs)
    known = {token.word for token in tokens(said)} | table("generic").words | table("articles").words
    if any(token.word not in known for token in tokens(value)) and not set(terms(value)) <= set(terms(said)):
        return "invented"
    if not evidence.hard_said(value, said):
        return "invented"
    if any(not set(terms(one)) & set(terms(value)) for one in inputs):
        return "left_out"
    if any(not evidence.hard_said(one, value) for one in inputs):
        return "left_out"
    return "negated" if evidence.negated(value) != any(map(evidence.negated, inputs)) else None


class FactMergeJob:
    """Asserts facts that are to be merged."""

    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days

    async def handle(self, run: Run) -> Done:
        """Asserts the fact of the request. The result has the id of the fact, and whether it was merged or why not.
        Raises what the model's client raises; nothing is written then, and the job is tried again."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        body = plain(FactCreate.model_validate(run.payload["body"]))
        facts = FactRepository(self._tools.store, scope)
        met = await contended(facts, body, self._tools.clock)
        merged, result = await self._merged(met, body, scope)

        async def plan() -> tuple[Doc, list[Change]]:
            said, source, noted = body, Doc(), result
            if merged is not None:
                now = await contended(facts, body, self._tools.clock)
                if _ids(now) == _ids(met):
                    said, source = merged
                else:
                    noted = result | {"merged": False, "reason": "changed_meanwhile"}
            outcome = await self._tools.facts(scope).assert_all([said], ALWAYS, [source])
            (fact,) = outcome.body["items"]
            return {**noted, "fact_ids": [fact["fact_id"]], "status": fact["status"]}, list(outcome.changes)

        owner = {name: met.draft[name] for name in ("agent_id", "user_id")}
        derivation_id = id_of([str(run.lease.job.operation_id)], PROMPT)
        done = await commit_noted(run, plan, derivation_id, owner)
        return Done(done or {"merged": False, "reason": "done_before"}, await undo_of(run, self._undo_days))

    async def _merged(
        self, met: Contended, body: FactCreate, scope: Scope
    ) -> tuple[tuple[FactCreate, Doc] | None, Doc]:
        """Returns the merged fact with fields of its source, or None, and the result so far."""
        if not met.rivals:
            return None, {"merged": False, "reason": "no_conflict"}
        if any(doc["trust"] > body.trust for doc in met.rivals):
            return None, {"merged": False, "reason": "less_trust"}
        llm = configured(self._llm)
        budget = llm.budget(self._tools.allowance(scope.tenant))
        inputs = [*(str(doc["object"]) for doc in met.rivals), body.object]
        prompt = prompts.load(PROMPT)
        shown = {"subject": "the user" if met.draft["subject"] == USER else met.draft["subject"]}
        data = orjson.dumps({**shown, "predicate": met.draft["predicate"], "values": inputs}).decode()
        reply = await llm.reply(prompt.text, data, prompts.MergedFact, budget)
        reason = refusal(reply.value, inputs) or _unfit(reply.value, met.draft)
        result = {"merged": reason is None, "reason": reason, "llm": budget.spent}
        if reason is not None or reply.value is None:
            return None, result
        origin = {"model": llm.model_for(prompts.MergedFact), "prompt_version": prompt.id}
        return (_one(body, met, reply.value), origin), result


def _unfit(value: str | None, draft: Doc) -> str | None:
    """Returns why the profile cannot have the value, or None."""
    name = field_of(draft)
    return "no_value" if name is not None and value is not None and value_of(name, value) is None else None


def _one(body: FactCreate, met: Contended, value: str) -> FactCreate:
    """Returns the merged fact: for the time of all together, with the least confidence, and with the trust that it
    takes to stand in their place."""
    start, end = met.union()
    return FactCreate.model_validate(
        body.model_dump(exclude_unset=True, exclude={"object_type", "valid_from", "valid_until"})
        | {
            "object": value,
            "valid_from": start,
            "valid_until": end,
            "trust": max(doc["trust"] for doc in met.rivals),
            "confidence": min([body.confidence, *(doc["confidence"] for doc in met.rivals)]),
            "cardinality": "one",
            "on_conflict": "last_write_wins",
        }
    )


def _ids(met: Contended) -> list[str]:
    return [doc["fact_id"] for doc in met.rivals]
