"""Merging facts: by a language model that an assertion asks for, and by the rule for predicates.

`queued` and `contended` prepare what the model is asked: which facts an assertion contends with.

`BookMerge` merges books that an earlier version kept apart because their predicates differ in spelling alone. A book is
a group of facts (one scope, subject and predicate). Facts of an earlier key move to the group of the present one. There
the rules decide as if they had been asserted in the order in which they became known; what has to change is closed and
stated again.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.core.clock import Clock, rfc3339
from app.facts.aliases import AliasRepository
from app.facts.conflict_resolution import OPEN_END, OPEN_START, ValidSpan
from app.facts.drafts import assertion_of, computed, draft_of, least_start, require_single
from app.facts.keys import group_of, predicate_key
from app.facts.ledger import Ledger, statement
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate
from app.facts.service import passage
from app.jobs import queue
from app.jobs.models import MERGE_FACT
from app.llm.base import LLM, configured
from app.memories.embedding import Embeddings
from app.storage.changes import Change, Update
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult


def queued(scope: Scope, body: FactCreate, precondition: IfMatch, llm: LLM | None, now: datetime) -> WriteResult:
    """Returns 202 with the operation that asserts a fact and merges it with those that it contends with. Raises
    LLMNotConfigured, Forbidden or Invalid; nothing is written then."""
    precondition.check(None)
    draft = draft_of(plain(body), {})
    owner = {name: draft[name] for name in ("agent_id", "user_id")}
    scope.require_write(owner["agent_id"], owner["user_id"])
    configured(llm)
    payload = {"body": body.model_dump(mode="json", exclude_unset=True), **scope.bindings()}
    operation, changes = queue.start(scope, MERGE_FACT, payload, now, **owner)
    return WriteResult(operation, changes, 202)


def plain(body: FactCreate) -> FactCreate:
    """Returns the assertion as it is made where nothing is merged. Raises Invalid."""
    return require_single(body.model_copy(update={"on_conflict": "temporal"}))


@dataclass(frozen=True, slots=True)
class Contended:
    """What an assertion meets: its draft, the span for which it is made, and the facts that it contends with."""

    draft: Doc
    span: ValidSpan
    rivals: list[Doc]

    def union(self) -> tuple[str | None, str | None]:
        """Returns the start and the end of the time that the assertion and its rivals cover together."""
        spans = [self.span, *(statement(doc).span for doc in self.rivals)]
        start, end = min(one.start for one in spans), max(one.end for one in spans)
        return start or None, None if end == OPEN_END else end


async def contended(facts: FactRepository, body: FactCreate, clock: Clock) -> Contended:
    """Returns the undisputed facts of another object that an assertion contends with, the earliest first."""
    draft, now = draft_of(body, {}), rfc3339(clock.now())
    aliases = await AliasRepository(facts.store, facts.scope).of_owner(draft["agent_id"], draft["user_id"])
    said = assertion_of(body, draft, aliases)
    span = ValidSpan(least_start(said, now) if said.start is None else said.start or OPEN_START, said.end)
    near = await facts.near(aliases.groups(draft), span, list(aliases.keys(draft["object_key"])))
    ledger = Ledger(await facts.group(draft["group_id"]), near, now)
    usual = said.cardinality or ledger.usual
    undisputed = [doc for doc in near if doc["standing"] == "held" and aliases.object_of(doc) != said.object[0]]
    rivals = [doc for doc in undisputed if usual == doc["cardinality"] == "one" and statement(doc).span.overlaps(span)]
    return Contended(draft, span, sorted(rivals, key=lambda doc: doc["valid_from"] or ""))


CLOSED = ("status", "known_until", "superseded_by", "updated_at")


@dataclass(frozen=True, slots=True)
class Book:
    """A group of facts, and the facts of earlier groups that belong into it."""

    group_id: str
    key: str
    predicate: str
    """The spelling that is shown: the first of the scope."""
    there: list[Doc]
    moving: list[Doc]
    left: list[str]
    """The ids of the groups that the moving facts leave."""

    @property
    def joined(self) -> bool:
        """True if facts of several groups come together."""
        return len(self.left) + bool(self.there) > 1

    @property
    def spellings(self) -> list[str]:
        """The spellings of the predicate, in the order of creation."""
        facts = sorted((*self.there, *self.moving), key=lambda fact: (fact["created_at"], fact["fact_id"]))
        return list(dict.fromkeys(fact["predicate"] for fact in facts))

    def moved(self, fact: Doc) -> Doc:
        """Returns a fact as it is in this book."""
        said = {**fact, "predicate": self.predicate, "predicate_key": self.key}
        return said | computed(said)


class BookMerge:
    """Reads and merges books within a scope. Returns changes and commits nothing."""

    def __init__(self, facts: FactRepository, embeddings: Embeddings, clock: Clock) -> None:
        self._facts, self._embeddings, self._clock = facts, embeddings, clock

    async def book_of(self, fact: Doc) -> Book:
        """Returns the book that a fact belongs into, with all that belongs there and is elsewhere. Groups that were
        looked at by the present rule before, such as those of an undone merge, stay as they are."""
        key = predicate_key(fact["predicate"])
        group_id = group_of(fact["agent_id"], fact["user_id"], fact["subject_key"], key)
        alike = [one for one in await self._facts.about_subject(fact) if predicate_key(one["predicate"]) == key]
        elsewhere = dict.fromkeys(one["group_id"] for one in alike if one["group_id"] != group_id)
        groups = await self._facts.groups([*elsewhere]) if elsewhere else {}
        left = [one for one in elsewhere if one in groups and groups[one].get("rule") is None]
        there = [one for one in alike if one["group_id"] == group_id]
        moving = [one for one in alike if one["group_id"] in left]
        spelling = await self._facts.spelling(fact["agent_id"], fact["user_id"], key)
        return Book(group_id, key, spelling or alike[0]["predicate"], there, moving, left)

    async def changes(self, book: Book) -> list[Change]:
        """Returns the changes that merge a book."""
        groups = await self._facts.groups([book.group_id, *book.left])
        latest = max((group for group in groups.values()), key=lambda group: str(group["known"]))
        ledger = Ledger(latest, [], rfc3339(self._clock.now()))
        live = [one for one in (*book.there, *book.moving) if one["known_until"] is None]
        for fact in sorted(live, key=lambda one: (one["known_from"], one["fact_id"])):
            ledger.take_in(book.moved(fact))
        changes = [
            self._rewritten(fact, ledger.latest(fact["fact_id"]) if fact in live else book.moved(fact))
            for fact in (*book.there, *book.moving)
        ]
        result: list[Change] = [change for change in changes if change is not None]
        for doc in ledger.written.values():
            result += await self._written(doc, ledger.like.get(doc["fact_id"]))
        return [*result, *self._turned(book, groups, ledger)]

    def _rewritten(self, old: Doc, new: Doc) -> Update | None:
        """Returns the change of a stored fact, or None if it stays as it is. The version moves only when it is
        closed."""
        names = ("predicate", *computed(new), *CLOSED)
        fields: dict[str, Any] = {name: new[name] for name in names if new[name] != old[name]}
        if not fields:
            return None
        closed = {"version": 1} if new["version"] > old["version"] else {}
        expect = {"version": old["version"], "group_id": old["group_id"]}
        return Update(self._facts.collection, self._facts.scope.tenant, old["fact_id"], fields, closed, expect)

    async def _written(self, doc: Doc, like: str | None) -> list[Change]:
        if like is not None:
            return self._facts.add_like(doc, like)
        (entry,) = await self._embeddings.entries([passage(doc)])
        return self._facts.add(doc, entry)

    def _turned(self, book: Book, groups: dict[str, Doc], ledger: Ledger) -> list[Change]:
        """Returns the changes of the groups."""
        marks: list[Change] = [self._facts.mark(groups[one]) for one in book.left]
        here = groups.get(book.group_id)
        if here is None:
            fact = book.moved(book.moving[0])
            return [self._facts.turn(None, fact, ledger.now, ledger.usual), *marks]
        spelled = {"predicate": book.predicate, "predicate_key": book.key}
        said = {"known": ledger.now, "usual": ledger.usual, "updated_at": ledger.now}
        return [self._facts.mark(here, **spelled, **said), *marks]
