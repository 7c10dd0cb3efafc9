"""The job that asserts a fact with `on_conflict: merge`.

The model is asked for one object that says what the new fact and those that it contends with say. Its answer is taken
if rules find nothing in it that none of them says, and something of each. Else the fact is asserted as by `temporal`.
The operation can be undone.

The job that merges books of facts which an earlier version kept apart by the spelling of their predicates.

A scheduled run starts an operation for each tenant that has such books, so that each can be inspected and undone. Every
group is looked at once: an undone merge is not made again.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypedDict

import orjson

from app.core.clock import Clock
from app.core.language import words
from app.core.schemas import Json
from app.embedding.embedder import Embedder
from app.facts.keys import USER, field_of, predicate_key, value_of
from app.facts.merging import Book, BookMerge, Contended, contended, plain
from app.facts.models import FactGroupRecord, FactRecord
from app.facts.repository import FactRepository
from app.facts.schemas import FACT_GROUPS, FACTS, RULE, FactCreate
from app.jobs import queue
from app.jobs.models import MERGE_PREDICATES
from app.jobs.runner import Done, Run
from app.jobs.skipping import skipping
from app.learning import prompts
from app.learning.checks import stands
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, id_of, undo_of
from app.llm.base import LLM, configured
from app.memories.embedding import Embeddings
from app.memories.models import MemorySource
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.repository import anything, pages
from app.storage.schema import Absent, In, Not, both
from app.storage.scope import SYSTEM, Scope

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

        async def plan() -> tuple[DerivationResult, list[Change]]:
            assertion, source, report = body, MemorySource(), result
            if merged is not None:
                now = await contended(facts, body, self._tools.clock)
                if _ids(now) == _ids(met):
                    assertion, source = merged
                else:
                    report = {**result, "merged": False, "reason": "changed_meanwhile"}
            outcome = await self._tools.facts(scope).assert_all([assertion], ALWAYS, [source])
            (fact,) = outcome.body["items"]
            return {**report, "fact_ids": [fact["fact_id"]], "status": fact["status"]}, list(outcome.changes)

        owner: DerivationRecord = {"agent_id": met.draft["agent_id"], "user_id": met.draft["user_id"]}
        derivation_id = id_of([str(run.lease.job.operation_id)], PROMPT)
        done = await commit_noted(run, plan, derivation_id, owner)
        return Done({**(done or {"merged": False, "reason": "done_before"})}, await undo_of(run, self._undo_days))

    async def _merged(
        self, met: Contended, body: FactCreate, scope: Scope
    ) -> tuple[tuple[FactCreate, MemorySource] | None, DerivationResult]:
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
        origin: MemorySource = {"model": llm.model_for(prompts.MergedFact), "prompt_version": prompt.id}
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


PAGE = 200
MAX_LISTED = 100
"""The limit of predicates that a report names."""
EARLIER = Absent("rule")
"""Filters groups that were made under an earlier rule and not looked at since."""


class MergedPredicate(TypedDict):
    """A predicate whose books were merged, with its spellings and the number of books."""

    predicate: str
    spellings: list[str]
    books: int


class _Merged:
    """What a run did, or would do."""

    def __init__(self) -> None:
        self.books = self.facts = 0
        self._listed: dict[str, MergedPredicate] = {}

    def add(self, book: Book) -> None:
        """Counts a book. The report names predicates and no subjects, which may be people."""
        self.facts += len(book.moving)
        if not book.joined:
            return
        self.books += 1
        blank: MergedPredicate = {"predicate": book.predicate, "spellings": [], "books": 0}
        if book.key in self._listed or len(self._listed) < MAX_LISTED:
            listed = self._listed.setdefault(book.key, blank)
            listed["books"] += 1
            listed["spellings"] = list(dict.fromkeys([*listed["spellings"], *book.spellings]))

    def report(self) -> Json:
        """Returns the counts and the merged predicates."""
        return {"books": self.books, "facts": self.facts, "merges": list(self._listed.values())}


class PredicateJobs:
    """Runs the merges."""

    def __init__(self, store: Store, embedder: Embedder, clock: Clock, undo_days: float) -> None:
        self._store, self._embedder, self._clock, self._undo_days = store, embedder, clock, undo_days

    async def has_work(self) -> bool:
        """Returns True if a group was not looked at by the present rule. Only reads."""
        return await anything(self._store, [(FACT_GROUPS, EARLIER)])

    async def handle(self, run: Run) -> Done:
        """Merges the books of a tenant. An interrupted run can be repeated: it goes on with what is left."""
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        dry_run, merged, seen = bool(run.payload.get("dry_run")), _Merged(), set[str]()
        facts = FactRepository(self._store, Scope(run.tenant))
        merge = BookMerge(facts, Embeddings(self._embedder), self._clock)
        find = partial(self._store.find, FACT_GROUPS, run.tenant, EARLIER)
        async for groups in pages(find, FACT_GROUPS, PAGE):
            looked_at: list[Change] = []
            for group in groups:
                if group["group_id"] in seen:
                    continue
                first = await facts.first_of(group["group_id"])
                with skipping(*((FACT_GROUPS, group["group_id"]) if first is None else (FACTS, first["fact_id"]))):
                    if first is None or first["predicate_key"] == predicate_key(first["predicate"]):
                        looked_at.append(_looked_at(facts, group, first))
                        continue
                    book = await merge.book_of(first)
                    seen |= {*book.left}
                    if dry_run or await self._commit(run, merge, book, first):
                        merged.add(book)
            if not dry_run:
                # a group that has changed meanwhile is looked at again by another run
                await run.commit_each(looked_at)
            await run.progress(merged.facts, None)
        undo = None if dry_run else await undo_of(run, self._undo_days)
        return Done({"dry_run": dry_run, **merged.report()}, undo)

    async def _commit(self, run: Run, merge: BookMerge, book: Book, first: FactRecord) -> bool:
        """Commits the merge of a book. Returns False if there was nothing left to merge, or it was undone before."""

        async def plan() -> tuple[DerivationResult, list[Change]]:
            now = await merge.book_of(first)  # read anew, since another request may have changed it
            return {"facts": len(now.moving)}, await merge.changes(now) if now.moving else []

        ids = sorted(fact["fact_id"] for fact in book.moving)
        owner: DerivationRecord = {"agent_id": first["agent_id"], "user_id": first["user_id"]}
        result = await commit_noted(run, plan, id_of(ids, MERGE_PREDICATES, str(RULE)), owner)
        return result is not None

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each tenant that has groups to look at."""
        tenants: list[str] = []
        while groups := await self._store.find(
            FACT_GROUPS, None, both(EARLIER, Not(In("tenant_id", tuple(tenants))) if tenants else None), limit=1
        ):
            tenants.append(groups[0]["tenant_id"])
        for tenant in tenants:
            _, changes = queue.start(Scope(tenant), MERGE_PREDICATES, {"dry_run": False}, self._clock.now())
            await run.commit(changes)
        return Done({"operations": len(tenants)})


def _looked_at(facts: FactRepository, group: FactGroupRecord, first: FactRecord | None) -> Change:
    """Returns the change that notes that a group was looked at. `first` is its first fact, if it has one."""
    if first is None:
        return facts.mark(group)
    return facts.mark(group, predicate=first["predicate"], predicate_key=first["predicate_key"])
