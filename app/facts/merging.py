"""Merging facts: by a language model that an assertion asks for, and by the rule for predicates.

`queued` and `contended` prepare what the model is asked: which facts an assertion contends with.

`BookMerge` merges books that an earlier version kept apart because their predicates differ in spelling alone. A book is
a group of facts (one scope, subject and predicate). Facts of an earlier key move to the group of the present one. There
the rules decide as if they had been asserted in the order in which they became known; what has to change is closed and
stated again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.core.clock import Clock, rfc3339
from app.facts.aliases import AliasRepository
from app.facts.conflict_resolution import OPEN_END, ValidSpan
from app.facts.drafts import assertion_of, computed, draft_of, least_start, require_single
from app.facts.keys import group_of, predicate_key
from app.facts.ledger import Ledger, statement
from app.facts.models import FactGroupRecord, FactRecord
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS, FactCreate
from app.facts.service import passage
from app.jobs import queue
from app.jobs.models import MERGE_FACT
from app.llm.base import LLM, configured
from app.memories.embedding import Embeddings
from app.storage.changes import Change, Update
from app.storage.schema import value_at
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult


def queued(scope: Scope, body: FactCreate, precondition: IfMatch, llm: LLM | None, now: datetime) -> WriteResult:
    """Returns 202 with the operation that asserts a fact and merges it with those that it contends with. Raises
    LLMNotConfigured, Forbidden or Invalid; nothing is written then."""
    precondition.check(None)
    draft = draft_of(plain(body), {})
    agent, user = draft["agent_id"], draft["user_id"]
    scope.require_write(agent, user)
    configured(llm)
    payload = {"body": body.model_dump(mode="json", exclude_unset=True), **scope.bindings()}
    operation, changes = queue.start(scope, MERGE_FACT, payload, now, agent_id=agent, user_id=user)
    return WriteResult(operation, changes, 202)


def plain(body: FactCreate) -> FactCreate:
    """Returns the assertion as it is made where nothing is merged. Raises Invalid."""
    return require_single(body.model_copy(update={"on_conflict": "temporal"}))


@dataclass(frozen=True, slots=True)
class Contended:
    """What an assertion meets: its draft, the span for which it is made, and the facts that it contends with."""

    draft: FactRecord
    span: ValidSpan
    rivals: list[FactRecord]

    def union(self) -> tuple[str | None, str | None]:
        """Returns the start and the end of the time that the assertion and its rivals cover together."""
        spans = [self.span, *(statement(rival).span for rival in self.rivals)]
        start, end = min(span.start for span in spans), max(span.end for span in spans)
        return start or None, None if end == OPEN_END else end


async def contended(facts: FactRepository, body: FactCreate, clock: Clock) -> Contended:
    """Returns the undisputed facts of another object that an assertion contends with, the earliest first."""
    draft, now = draft_of(body, {}), rfc3339(clock.now())
    aliases = await AliasRepository(facts.store, facts.scope).of_owner(draft["agent_id"], draft["user_id"])
    assertion = assertion_of(body, draft, aliases)
    span = ValidSpan(least_start(assertion, now), assertion.end)
    near = await facts.near(aliases.groups(draft), span, list(aliases.keys(draft["object_key"])))
    ledger = Ledger(await facts.group(draft["group_id"]), near, now)
    usual = assertion.cardinality or ledger.usual
    others = [fact for fact in near if fact["standing"] == "held" and aliases.object_of(fact) != assertion.object[0]]
    rivals = [fact for fact in others if usual == fact["cardinality"] == "one" and statement(fact).span.overlaps(span)]
    return Contended(draft, span, sorted(rivals, key=lambda fact: fact["valid_from"] or ""))


@dataclass(frozen=True, slots=True)
class Book:
    """A group of facts, and the facts of earlier groups that belong into it."""

    group_id: str
    key: str
    predicate: str
    """The spelling that is shown: the first of the scope."""
    there: list[FactRecord]
    moving: list[FactRecord]
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

    def moved(self, fact: FactRecord) -> FactRecord:
        """Returns a fact as it is in this book."""
        respelled: FactRecord = {**fact, "predicate": self.predicate, "predicate_key": self.key}
        return {**respelled, **computed(respelled)}


class BookMerge:
    """Reads and merges books within a scope. Returns changes and commits nothing."""

    def __init__(self, facts: FactRepository, embeddings: Embeddings, clock: Clock) -> None:
        self._facts, self._embeddings, self._clock = facts, embeddings, clock

    async def book_of(self, fact: FactRecord) -> Book:
        """Returns the book that a fact belongs into, with all that belongs there and is elsewhere. Groups that were
        looked at by the present rule before, such as those of an undone merge, stay as they are."""
        key = predicate_key(fact["predicate"])
        group_id = group_of(fact["agent_id"], fact["user_id"], fact["subject_key"], key)
        alike = [like for like in await self._facts.about_subject(fact) if predicate_key(like["predicate"]) == key]
        elsewhere = list(dict.fromkeys(like["group_id"] for like in alike if like["group_id"] != group_id))
        groups = await self._facts.groups(elsewhere) if elsewhere else {}
        left = [other for other in elsewhere if other in groups and groups[other].get("rule") is None]
        there = [like for like in alike if like["group_id"] == group_id]
        moving = [like for like in alike if like["group_id"] in left]
        spelling = await self._facts.spelling(fact["agent_id"], fact["user_id"], key)
        return Book(group_id, key, spelling or alike[0]["predicate"], there, moving, left)

    async def changes(self, book: Book) -> list[Change]:
        """Returns the changes that merge a book."""
        groups = await self._facts.groups([book.group_id, *book.left])
        latest = max(groups.values(), key=lambda group: group["known"])
        ledger = Ledger(latest, [], rfc3339(self._clock.now()))
        live = [fact for fact in (*book.there, *book.moving) if fact["known_until"] is None]
        for fact in sorted(live, key=lambda fact: (fact["known_from"], fact["fact_id"])):
            ledger.take_in(book.moved(fact))
        changes = [
            self._rewritten(fact, ledger.latest(fact["fact_id"]) if fact in live else book.moved(fact))
            for fact in (*book.there, *book.moving)
        ]
        result: list[Change] = [change for change in changes if change is not None]
        for fact in ledger.written.values():
            like = ledger.like.get(fact["fact_id"])
            if like is not None:
                result += self._facts.add_like(fact, like)
            else:
                (entry,) = await self._embeddings.entries([passage(fact)])
                result += self._facts.add(fact, entry)
        return [*result, *self._turned(book, groups, ledger)]

    def _rewritten(self, old: FactRecord, new: FactRecord) -> Update[FactRecord] | None:
        """Returns the change of a stored fact, or None if it stays as it is. The version moves only when it is
        closed."""
        after: FactRecord = {
            "predicate": new["predicate"],
            **computed(new),
            "status": new["status"],
            "known_until": new["known_until"],
            "superseded_by": new["superseded_by"],
            "updated_at": new["updated_at"],
        }
        fields = FACTS.as_record({name: value for name, value in after.items() if value != value_at(old, name)})
        if not fields:
            return None
        closed = {"version": 1} if new["version"] > old["version"] else {}
        expect = {"version": old["version"], "group_id": old["group_id"]}
        return Update(FACTS, self._facts.scope.tenant, old["fact_id"], fields, closed, expect)

    def _turned(self, book: Book, groups: Mapping[str, FactGroupRecord], ledger: Ledger) -> list[Change]:
        """Returns the changes of the groups."""
        marks: list[Change] = [self._facts.mark(groups[group_id]) for group_id in book.left]
        here = groups.get(book.group_id)
        if here is None:
            fact = book.moved(book.moving[0])
            return [self._facts.turn(None, fact, ledger.now, ledger.usual), *marks]
        turned = self._facts.mark(
            here,
            predicate=book.predicate,
            predicate_key=book.key,
            known=ledger.now,
            usual=ledger.usual,
            updated_at=ledger.now,
        )
        return [turned, *marks]
