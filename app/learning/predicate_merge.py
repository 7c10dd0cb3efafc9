"""The job that merges books of facts which an earlier version kept apart by the spelling of their predicates.

A scheduled run starts an operation for each tenant that has such books, so that each can be inspected and undone. Every
group is looked at once: an undone merge is not made again.
"""

from functools import partial
from typing import TypedDict

from app.core.clock import Clock
from app.core.schemas import Json
from app.embedding.embedder import Embedder
from app.facts.keys import predicate_key
from app.facts.merging import Book, BookMerge
from app.facts.models import FactGroupRecord, FactRecord
from app.facts.repository import FactRepository
from app.facts.schemas import FACT_GROUPS, FACTS, RULE
from app.jobs import queue
from app.jobs.models import MERGE_PREDICATES
from app.jobs.runner import Done, Run
from app.jobs.skipping import skipping
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, id_of, undo_of
from app.memories.embedding import Embeddings
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.repository import anything, pages
from app.storage.schema import Absent, In, Not, both
from app.storage.scope import SYSTEM, Scope

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
