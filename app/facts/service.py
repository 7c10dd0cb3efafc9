"""Asserts, resolves and searches facts. Methods that write return a `WriteResult` and commit nothing.

An assertion becomes a draft, and an `Assertion` for the rules (`ledger.py`); ledgers of its groups decide what it does
to the facts that are known; their closed and written facts become the changes of one commit.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.core.clock import Clock, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import Json, JsonObject, Page, shown_as
from app.errors import Conflict, Forbidden, invalid, no_such
from app.facts import profile, schemas
from app.facts.aliases import AliasMap, AliasRepository
from app.facts.ledger import OPEN_END, OPEN_START, Assertion, Ledger, Shared, ValidSpan, statement
from app.facts.repository import FactFilters, FactRepository, View, about
from app.jobs import queue
from app.llm.base import LLM, configured
from app.memories.repository import SOURCE, Embeddable, Embeddings, TextToIndex
from app.memories.schemas import Source
from app.retrieval.retriever import RetrievalRequest, Retriever
from app.storage.changes import Change, IndexEntry
from app.storage.record_filters import split_filter
from app.storage.repository import Listing, Repository, partitions_of
from app.storage.schema import Eq, Filter, Range, both
from app.storage.scope import Partition, Scope
from app.storage.text import content_hash
from app.writes.executor import Precondition, WriteResult, etag

BOTH = "both"


def text_to_index(fact: schemas.FactRecord) -> TextToIndex:
    return TextToIndex(schemas.sentence(fact))


FACT: Embeddable[schemas.FactRecord] = Embeddable(schemas.FACTS, text_to_index, lambda _: {"pending": False})


@dataclass(frozen=True, slots=True)
class Asserted:
    """Ledgers after some assertions by group, for each assertion the id of the fact that represents it and whether that
    fact is new, and the changes that store the aliases that the rule for titles makes."""

    ledgers: dict[str, Ledger]
    facts: list[tuple[str, bool]]
    titles: list[Change]


class FactService:
    """The operations on facts within a caller's scope."""

    def __init__(self, facts: FactRepository, embeddings: Embeddings, retriever: Retriever, clock: Clock) -> None:
        self._facts, self._embeddings, self._retriever, self._clock = facts, embeddings, retriever, clock
        self._aliases = AliasRepository(facts.store, facts.scope)
        self._users = Repository(facts.store, facts.scope, profile.USERS)
        self._entries: dict[str, IndexEntry] = {}

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def assert_one(
        self, body: schemas.FactCreate, precondition: Precondition
    ) -> WriteResult[schemas.AssertedFact]:
        """Asserts one fact. Returns 201 if it is new, else 200."""
        outcome, created = await self._assert([body], precondition, [{}])
        (fact,) = outcome.body["items"]
        return WriteResult(fact, outcome.changes, 201 if created else 200, {"ETag": etag(fact)})

    async def assert_all(
        self, bodies: Sequence[schemas.FactCreate], precondition: Precondition, sources: Sequence[Source] | None = None
    ) -> WriteResult[schemas.FactBatchAsserted]:
        """Asserts all facts in their order, or none. `sources`: for facts that the service derives, the fields of each
        source beside the API key."""
        outcome, _ = await self._assert(bodies, precondition, sources or [{}] * len(bodies))
        return outcome

    async def _assert(
        self, bodies: Sequence[schemas.FactCreate], precondition: Precondition, sources: Sequence[Source]
    ) -> tuple[WriteResult[schemas.FactBatchAsserted], bool]:
        precondition.check(None)
        bodies = [require_single(body) for body in bodies]
        drafts = [draft_of(body, self._source(body, source)) for body, source in zip(bodies, sources, strict=True)]
        for draft in drafts:
            require_write(draft, self._facts.scope)
        asserted = await self._assert_drafts(bodies, drafts)
        items = list[schemas.AssertedFact]()
        for draft, (fact_id, is_new) in zip(drafts, asserted.facts, strict=True):
            ledger = asserted.ledgers[draft["group_id"]]
            # the facts that gave way to it
            ended = ledger.ended[fact_id] if is_new else ()
            items.append(
                {
                    **schemas.render(ledger.latest(fact_id)),
                    "superseded": [shown_as(schemas.EndedFact, {**old, "keep_both": _again(old)}) for old in ended],
                }
            )
        changes = await self._written(asserted.ledgers.values())
        return WriteResult({"items": items}, [*changes, *asserted.titles], 201), any(new for _, new in asserted.facts)

    async def _assert_drafts(
        self, bodies: Sequence[schemas.FactCreate], drafts: Sequence[schemas.FactRecord]
    ) -> Asserted:
        """Asserts the drafts, in their order, in the ledgers of their groups."""
        first: dict[tuple[str | None, str | None, str], str] = {}  # the spelling of a predicate that a scope had first
        for draft in drafts:
            named = _predicate_of(draft)
            if named not in first:
                first[named] = await self._facts.spelling(*named) or draft["predicate"]
            respell(draft, first[named])
        await self._embed(drafts)  # embedding comes first, to keep the time between reading and committing short
        now = rfc3339(self._clock.now())
        aliases, titles = await self._with_aliases(drafts, now)
        assertions = [
            assertion_of(body, draft, aliases[_owner(draft)]) for body, draft in zip(bodies, drafts, strict=True)
        ]
        start = min(least_start(assertion, now) for assertion in assertions)
        span = ValidSpan(start, max(assertion.end for assertion in assertions))
        ledgers = await self._open(drafts, span, now, aliases)
        for draft in drafts:  # another request may have made the group meanwhile
            if group := ledgers[draft["group_id"]].group:
                respell(draft, group["predicate"])
        unsaid = {
            _predicate_of(draft)
            for draft, assertion in zip(drafts, assertions, strict=True)
            if assertion.cardinality is None
        }
        many = {named for named in unsaid if await self._facts.takes_many(*named)}
        facts = list[tuple[str, bool]]()
        for draft, assertion in zip(drafts, assertions, strict=True):
            ledger, named = ledgers[draft["group_id"]], _predicate_of(draft)
            ledger.usual = "many" if named in many else ledger.usual
            facts.append(ledger.assert_fact(draft, assertion))
            await asyncio.sleep(0)  # each is compared with all of its group: 500 of one group take seconds
            many |= {named} if ledger.usual == "many" else set()
        return Asserted(ledgers, facts, titles)

    async def _with_aliases(
        self, drafts: Sequence[schemas.FactRecord], now: str
    ) -> tuple[dict[Partition, AliasMap], list[Change]]:
        """Returns the aliases of each owner, and the changes that store those that the rule for titles makes."""
        of_owners: dict[Partition, AliasMap] = {}
        changes: list[Change] = []
        for draft in drafts:
            owner = _owner(draft)
            if owner not in of_owners:
                of_owners[owner] = await self._aliases.of_owner(draft["agent_id"], draft["user_id"])
            names = [draft["subject"], *([draft["object"]] if draft["object_type"] == "entity" else [])]
            titles = self._aliases.with_titles(of_owners[owner], owner, names, now)
            of_owners[owner] = titles.aliases
            changes += map(self._aliases.insert, titles.new)
        return of_owners, changes

    async def _written(self, ledgers: Iterable[Ledger]) -> list[Change]:
        """Returns the changes of the ledgers, and those of the user records whose profiles they state."""
        distinct = _distinct(ledgers)
        changes = [change for ledger in distinct for change in await self._changes(ledger)]
        facts = [fact for ledger in distinct for fact in (*ledger.written.values(), *ledger.closed.values())]
        return [*changes, *await profile.touched(self._users, facts, rfc3339(self._clock.now()))]

    async def state_profile(
        self, user_id: str, stated: profile.StatedProfile
    ) -> tuple[list[Change], dict[str, schemas.FactRecord]]:
        """States fields of a profile: asserts the facts of the given values, and retracts those of null. Returns the
        changes without those of the user's record, and the facts that state fields then, by field. A value of less
        trust than the one that holds is stored as disputed."""
        bodies = stated.assertions(user_id)
        drafts = [draft_of(body, self._source(body, {})) for body in bodies]
        asserted = await self._assert_drafts(bodies, drafts) if drafts else Asserted({}, [], [])
        cleared = [draft_of(body, {**SOURCE}) for body in stated.cleared(user_id)]
        now = rfc3339(self._clock.now())
        opened = (
            await self._open(cleared, ValidSpan(now, OPEN_END), now, {_owner(fact): AliasMap() for fact in cleared})
            if cleared
            else {}
        )
        ledgers = {**asserted.ledgers, **opened}
        for fact in cleared:
            ledger = ledgers[fact["group_id"]]
            for fact_id in [fact["fact_id"] for fact in ledger.live.values() if fact["standing"] == "held"]:
                ledger.retract(fact_id)
        distinct = _distinct(ledgers.values())
        changes = [change for ledger in distinct for change in await self._changes(ledger)]
        return [*changes, *asserted.titles], profile.states(fact for ledger in distinct for fact in ledger.holding())

    def _source(self, body: schemas.FactCreate, derived: Source) -> Source:
        stated: Source = {} if body.source is None else body.source.stated()
        source: Source = {**SOURCE, **stated, "api_key_id": self._facts.scope.key_id, **derived}
        return source if body.origin is None else {**source, "origin": body.origin}

    async def retract(self, fact_id: str, precondition: Precondition) -> WriteResult[schemas.Fact]:
        """Closes a fact without a successor. Facts that it had bounded or replaced do not come back."""
        fact = await self._facts.get(fact_id)
        self._facts.require_write(fact)
        precondition.check(fact)
        if fact["status"] == "retracted":
            return _answer(fact)
        _require_live(fact)
        ledger = Ledger(await self._facts.group(fact["group_id"]), [fact], rfc3339(self._clock.now()))
        ledger.retract(fact_id)
        return _answer(ledger.latest(fact_id), await self._written([ledger]))

    async def ending(self, facts: Sequence[schemas.FactRecord], at: str) -> list[Change]:
        """Returns the changes that end facts at a time; those that begin later are retracted, and with `OPEN_START`
        all are. Raises Forbidden if the caller may not write one."""
        ledgers, now = dict[str, Ledger](), rfc3339(self._clock.now())
        distinct = {fact["fact_id"]: fact for fact in facts}.values()  # two memories may have taught the same fact
        for group_id in {fact["group_id"] for fact in distinct}:
            of_group = [fact for fact in distinct if fact["group_id"] == group_id]
            ledgers[group_id] = Ledger(await self._facts.group(group_id), of_group, now)
            for fact in of_group:
                self._facts.require_write(fact)
                ledgers[group_id].end(fact["fact_id"], at)
        return await self._written(ledgers.values())

    async def resolve(self, fact_id: str, keep: str, precondition: Precondition) -> WriteResult[schemas.Fact]:
        """Settles a dispute. Returns the fact that was kept. Raises Conflict if the fact is not disputed."""
        fact = await self._facts.get(fact_id)
        precondition.check(fact)
        if fact["status"] != "disputed":
            raise Conflict(f"This fact is not disputed: it is {fact['status']}.")
        if keep == BOTH and profile.field_of(fact) is not None:
            raise invalid("/keep", "must be one fact: the profile has one value at a time")
        span = ValidSpan(fact["valid_from"] or OPEN_START, fact["valid_until"] or OPEN_END)
        aliases = {_owner(fact): await self._aliases.of_owner(fact["agent_id"], fact["user_id"])}
        ledger = (await self._open([fact], span, rfc3339(self._clock.now()), aliases))[fact["group_id"]]
        _require_live(ledger.live.get(fact_id) or await self._facts.get(fact_id))
        if keep in (fact_id, BOTH):
            keep = ledger.keep(fact_id, beside=keep == BOTH)
        elif keep in ledger.contenders(fact_id):
            ledger.retract(fact_id)
        else:
            raise invalid("/keep", "must be this fact, one that it contends with now, or both")
        return _answer(ledger.latest(keep), await self._written([ledger]))

    async def delete(self, fact_id: str, precondition: Precondition) -> WriteResult[None]:
        """Deletes a fact and all other documents of its lineage. To correct a wrong fact, use `retract`."""
        fact = await self._facts.get_to_delete(fact_id)
        precondition.check(fact)
        if "supersedes" not in fact:  # it cannot be read, so nobody knows what gave way to it
            return WriteResult(None, [self._facts.delete(fact)], 204)
        return WriteResult(None, await self.deletion(fact), 204)

    async def deletion(self, fact: schemas.FactRecord) -> list[Change]:
        """Returns the changes that delete the lineage of a fact as if it had never been asserted.

        Facts of other objects that gave way to it come back for the time that no other fact holds, unless they were
        retracted since. What was disputed because of it alone holds. Raises NotFound if the fact was deleted."""
        rows = await self._facts.lineage(fact)
        gone = {row["fact_id"] for row in rows}
        replaced = await self._facts.get_many([old for row in rows for old in row["supersedes"]])
        retired = [
            old
            for old in sorted(replaced.values(), key=lambda old: old["known_from"])
            if old["lineage_id"] != fact["lineage_id"] and old["standing"] == "held"
        ]
        aliases = {_owner(fact): await self._aliases.of_owner(fact["agent_id"], fact["user_id"])}
        now = rfc3339(self._clock.now())
        ledgers = await self._open([fact, *retired], ValidSpan(OPEN_START, OPEN_END), now, aliases)
        ledger = ledgers[fact["group_id"]]
        for fact_id in gone:
            ledger.live.pop(fact_id, None)
        for old in retired:
            lineage = await self._facts.lineage(old)
            if aliases[_owner(fact)].object_of(old) == aliases[_owner(fact)].object_of(fact) or any(
                row["status"] == "retracted" for row in lineage
            ):
                continue
            left = [row for row in lineage if row["fact_id"] in old["superseded_by"]]
            ledgers[old["group_id"]].bring_back(old, left)
        for disputed in list(ledger.live.values()):
            was_for_it = disputed["standing"] == "disputed" and not gone.isdisjoint(disputed["disputes"])
            if was_for_it and not ledger.contenders(disputed["fact_id"]):
                ledger.keep(disputed["fact_id"])
        opened = _distinct(ledgers.values())
        changes = [change for each in opened for change in await self._changes(each)]
        if not ledger.written:  # otherwise the group has its next version by that
            if (group := await self._facts.group(fact["group_id"])) is None:  # it was deleted with its last fact
                raise no_such("fact")
            changes.append(await self._facts.left_by(fact, group))
        written = [new for each in opened for new in each.written.values()]
        return [*self._facts.remove(fact), *changes, *await profile.touched(self._users, [fact, *written], now)]

    async def _open(
        self, facts: Sequence[schemas.FactRecord], span: ValidSpan, now: str, aliases: Mapping[Partition, AliasMap]
    ) -> dict[str, Ledger]:
        """Opens the ledgers of the facts' groups, with the live facts that matter in the span. The groups of one entity
        share a ledger. Reads the groups before their facts, so that any later change makes the commit fail."""
        ids = {fact["group_id"]: aliases[_owner(fact)].groups(fact) for fact in facts}
        every = list(dict.fromkeys(group_id for shared in ids.values() for group_id in shared))
        groups = await self._facts.groups(every)
        objects = [key for fact in facts for key in aliases[_owner(fact)].keys(fact["object_key"])]
        live: dict[str, list[schemas.FactRecord]] = {group_id: [] for group_id in every}
        for near in await self._facts.near([*groups], span, objects) if groups else []:
            live[near["group_id"]].append(near)
        ledgers: dict[str, Ledger] = {}
        for fact in facts:
            main, *others = ids[fact["group_id"]]
            if main not in ledgers:
                of_owner = aliases[_owner(fact)]
                there = [groups[group_id] for group_id in others if group_id in groups]
                shared = Shared(main, there, of_owner.object_of) if of_owner else None
                of_entity = [known for group_id in (main, *others) for known in live[group_id]]
                ledgers[main] = Ledger(groups.get(main), of_entity, now, shared)
            ledgers[fact["group_id"]] = ledgers[main]
        return ledgers

    async def _changes(self, ledger: Ledger) -> list[Change]:
        closed, written = list(ledger.closed.values()), list(ledger.written.values())
        if not closed and not written:
            return []
        await self._embed([fact for fact in written if fact["fact_id"] not in ledger.like])
        changes: list[Change] = [self._facts.close(fact) for fact in closed]
        for fact in written:
            stored = ledger.like.get(fact["fact_id"])
            if stored is not None:
                changes += self._facts.add_like(fact, stored)
            else:
                changes += self._facts.add(fact, self._entries[schemas.sentence(fact)])
        return [*changes, *self._turns(ledger, [*closed, *written])]

    def _turns(self, ledger: Ledger, changed: Sequence[schemas.FactRecord]) -> list[Change]:
        """Returns the changes to the next versions of the ledger's groups. Every request that concerns an entity turns
        the group of its main name, so that one of two concurrent requests by different names fails."""
        fact, shared, state = changed[0], ledger.shared, (ledger.now, ledger.usual)
        if shared is None:
            return [self._facts.turn(ledger.group, fact, *state)]
        there = {shared.main, *(other["group_id"] for other in shared.others)}
        new = {fact["group_id"]: fact for fact in changed if fact["group_id"] not in there}
        return [
            self._facts.turn(ledger.group, {**fact, "group_id": shared.main}, *state),
            *(self._facts.turn(other, fact, *state) for other in shared.others),
            *(self._facts.turn(None, first, *state) for first in new.values()),
        ]

    async def _embed(self, facts: Sequence[schemas.FactRecord]) -> None:
        """Embeds facts. Each text is embedded once for the request, however often the handler runs."""
        missing = {
            schemas.sentence(fact): text_to_index(fact) for fact in facts if schemas.sentence(fact) not in self._entries
        }
        if missing:
            self._entries |= zip(missing, await self._embeddings.entries(list(missing.values())), strict=True)

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def page(self, filters: FactFilters, listing: Listing) -> Page[schemas.Fact]:
        aliases = await self._aliases_of(filters, filters["agent_id"], filters["user_id"])
        if filters["timeline"] and filters["as_of"] is not None:
            raise invalid("/query/as_of", "leave it out with timeline, which is every time")
        as_of = None if filters["timeline"] else filters["as_of"] or rfc3339(self._clock.now())
        asked, keep = split_filter(filters, schemas.FACT_FIELDS, schemas.FACTS)
        where = both(about(filters, aliases.keys), View(as_of, filters["known_at"]).of_status(filters["status"]), asked)
        return await self._facts.listed(where, listing, schemas.render, schemas.Fact, request=filters, keep=keep)

    async def _aliases_of(self, named: FactFilters, agent: str | None, user: str | None) -> AliasMap:
        """Returns the aliases for a request that names a subject or object. Without an owner there are none, so that no
        alias of one user is used for the facts of another. Shared aliases hold even where shared facts are left out."""
        if (named.get("subject") is None and named.get("object") is None) or (agent is None and user is None):
            return AliasMap()
        partitions = self._facts.scope.partitions(agent, user, include_shared=True)
        return await self._aliases.of_partitions(partitions, named.get("known_at"))

    async def get(self, fact_id: str) -> schemas.Fact:
        """Returns a fact. Raises NotFound."""
        return schemas.render(await self._facts.get(fact_id))

    async def history(self, fact_id: str, listing: Listing) -> Page[schemas.Fact]:
        """Returns a page of all facts of the fact's lineage."""
        fact = await self._facts.get(fact_id)
        of_lineage = Eq("lineage_id", fact["lineage_id"])
        return await self._facts.listed(of_lineage, listing, schemas.render, schemas.Fact, request=fact["lineage_id"])

    async def search(self, body: schemas.FactSearch) -> schemas.FactSearchResult:
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        named: FactFilters = {"subject": body.subject, "known_at": body.known_at}
        aliases = await self._aliases_of(named, body.agent_id, body.user_id)
        shared, of_facts = body.include_shared, (self._facts.store, self._facts.scope, schemas.FACTS)
        asked, keep = split_filter(body.asked(), schemas.FACT_FIELDS, schemas.FACTS, searched=True)
        wanted = RetrievalRequest(
            body.query,
            await partitions_of(*of_facts, body.agent_id, body.user_id, include_shared=shared),
            both(search_filter(body, rfc3339(now), aliases), asked),
            to_ms(now),
            body.top_k,
            keep=keep,
            mode=body.mode,
            known_at=body.known_at,
        )
        retrieved = await self._retriever.find(wanted)
        items: list[schemas.FoundFact] = [
            {"fact": schemas.render(hit.doc), "score": hit.score} for hit in retrieved.hits
        ]
        return {"items": items, **retrieved.how()}


def search_filter(body: schemas.FactSearch, now: str, aliases: AliasMap) -> Filter:
    """Returns the filter of a search request at `now`, without its owner."""
    named: FactFilters = {"subject": body.subject, "predicate": body.predicate, "object_type": body.object_type}
    return both(
        View(body.as_of or now, body.known_at).of_status(body.status),
        about(named, aliases.keys),
        None if body.min_trust is None else Range("trust", ge=body.min_trust),
    )


def _again(fact: schemas.FactRecord) -> JsonObject | None:
    """Returns the body that states a fact once more, beside others."""
    if profile.field_of(fact) is not None:
        return None
    names = ("agent_id", "user_id", "subject", "predicate", "object", "object_type", "trust", "confidence")
    given: Json = {name: fact.get(name) for name in (*names, "valid_until") if fact.get(name) is not None}
    given |= {"metadata": fact["metadata"]} if fact["metadata"] else {}
    return given | {"valid_from": fact["valid_from"], "cardinality": "many"}


def _owner(fact: schemas.FactRecord) -> Partition:
    return Partition(fact["agent_id"], fact["user_id"])


def _predicate_of(fact: schemas.FactRecord) -> tuple[str | None, str | None, str]:
    """Returns the owners and the predicate of a fact: `("a", "ada", "lives in")`."""
    return fact["agent_id"], fact["user_id"], fact["predicate_key"]


def _distinct(ledgers: Iterable[Ledger]) -> list[Ledger]:
    """Returns each ledger once: the groups of one entity share one."""
    return list({id(ledger): ledger for ledger in ledgers}.values())


def _require_live(fact: schemas.FactRecord) -> None:
    if fact["known_until"] is not None:
        by = f" by {', '.join(fact['superseded_by'])}" if fact["superseded_by"] else ""
        raise Conflict(f"This fact is {fact['status']} already{by}.")


def _answer(fact: schemas.FactRecord, changes: Sequence[Change] = ()) -> WriteResult[schemas.Fact]:
    return WriteResult(schemas.render(fact), changes, headers={"ETag": etag(fact)})


# --- Drafts: what an assertion gives to its facts ---------------------------------------------------------------------


def draft_of(body: schemas.FactCreate, source: Source) -> schemas.FactRecord:
    """Returns the fields that an assertion gives to every fact that it creates."""
    fields = profile.settled(
        {
            "agent_id": body.agent_id,
            "user_id": body.user_id,
            "subject": body.subject,
            "predicate": body.predicate,
            "object": body.object,
            "confidence": body.confidence,
            "trust": body.trust,
            "always": body.always,
            "metadata": body.metadata,
        }
    )
    kind = body.object_type or schemas.object_type(body.object)
    return {**fields, "object_type": kind, **computed(fields), "source": source}


def require_single(body: schemas.FactCreate) -> schemas.FactCreate:
    """Returns the assertion, with cardinality `one` for a fact of the profile. Raises Invalid for a fact of the profile
    with several values, and for a merge, which is a request of its own."""
    if body.on_conflict == "merge":
        raise invalid("/on_conflict", "must not be merge here: a fact is merged by POST /v1/facts")
    # the field of the profile that an assertion states, or None
    if profile.field_of({"user_id": body.user_id, "subject": body.subject, "predicate": body.predicate}) is None:
        return body
    if body.cardinality == "many":
        raise invalid("/cardinality", "must be one: the profile has one value at a time")
    if body.on_conflict == "keep_both":
        raise invalid("/on_conflict", "must keep one value: the profile has one at a time")
    return body.model_copy(update={"cardinality": "one"})


def computed(fact: schemas.FactRecord) -> schemas.FactRecord:
    """Returns the internal fields, which are derived from the others."""
    subject_key, key = schemas.key_of(fact["subject"]), schemas.predicate_key(fact["predicate"])
    return {
        "group_id": schemas.group_of(fact["agent_id"], fact["user_id"], subject_key, key),
        "subject_key": subject_key,
        "predicate_key": key,
        "object_key": schemas.key_of(fact["object"]),
        "content_hash": content_hash(schemas.sentence(fact)),
    }


def respell(draft: schemas.FactRecord, predicate: str) -> None:
    """Gives the draft this spelling of its predicate, and computes its internal fields again."""
    if draft["predicate"] != predicate:
        draft["predicate"] = predicate
        draft.update(computed(draft))


def assertion_of(body: schemas.FactCreate, draft: schemas.FactRecord, aliases: AliasMap) -> Assertion:
    """Returns the assertion for the conflict rules."""
    start = (body.valid_from or OPEN_START) if "valid_from" in body.model_fields_set else None
    identity = aliases.object_of(draft), draft["object_type"]
    end = body.valid_until or OPEN_END
    policy: schemas.ConflictPolicy = "temporal" if body.on_conflict == "merge" else body.on_conflict
    # what was learned without a time begins when it was told
    assumed = start is not None and start == draft["source"].get("said_at")
    return Assertion(identity, start, end, body.trust, body.cardinality, policy, assumed=assumed)


def least_start(assertion: Assertion, now: str) -> str:
    """Returns the earliest start that the assertion may get, before the facts that it meets are read."""
    if assertion.start is not None:
        return assertion.start
    return now if assertion.end == OPEN_END else OPEN_START


def require_write(draft: schemas.FactRecord, scope: Scope) -> None:
    """Raises Forbidden if the caller may not assert this. Facts of the profile are of no agent: a caller that is bound
    to agents would change what all agents see."""
    field = profile.field_of(draft)
    if field is not None and scope.agents is not None:
        raise Forbidden(
            f"{draft['subject']} {draft['predicate']} is the {field} of the user's profile, which all agents see. "
            "A key that is bound to agents reads it and may not change it."
        )
    scope.require_write(draft["agent_id"], draft["user_id"])


# --- Merging by a language model --------------------------------------------------------------------------------------


def queued(
    scope: Scope, body: schemas.FactCreate, precondition: Precondition, llm: LLM | None, now: datetime
) -> WriteResult:
    """Returns 202 with the operation that asserts a fact and merges it with those that it contends with. Raises
    LLMNotConfigured, Forbidden or Invalid; nothing is written then."""
    precondition.check(None)
    draft = draft_of(plain(body), {})
    agent, user = draft["agent_id"], draft["user_id"]
    scope.require_write(agent, user)
    configured(llm)
    payload = {"body": body.model_dump(mode="json", exclude_unset=True), **scope.bindings()}
    operation, changes = queue.start(scope, queue.MERGE_FACT, payload, now, agent_id=agent, user_id=user)
    return WriteResult(operation, changes, 202)


def plain(body: schemas.FactCreate) -> schemas.FactCreate:
    """Returns the assertion as it is made where nothing is merged. Raises Invalid."""
    return require_single(body.model_copy(update={"on_conflict": "temporal"}))


@dataclass(frozen=True, slots=True)
class Contended:
    """What an assertion meets: its draft, the span for which it is made, and the facts that it contends with."""

    draft: schemas.FactRecord
    span: ValidSpan
    rivals: list[schemas.FactRecord]

    def union(self) -> tuple[str | None, str | None]:
        """Returns the start and the end of the time that the assertion and its rivals cover together."""
        spans = [self.span, *(statement(rival).span for rival in self.rivals)]
        start, end = min(span.start for span in spans), max(span.end for span in spans)
        return start or None, None if end == OPEN_END else end


async def contended(facts: FactRepository, body: schemas.FactCreate, clock: Clock) -> Contended:
    """Returns the undisputed facts of another object that an assertion contends with, the earliest first."""
    draft, now = draft_of(body, {}), rfc3339(clock.now())
    aliases = await AliasRepository(facts.store, facts.scope).of_owner(draft["agent_id"], draft["user_id"])
    assertion = assertion_of(body, draft, aliases)
    span = ValidSpan(least_start(assertion, now), assertion.end)
    near = await facts.near(aliases.groups(draft), span, list(aliases.keys(draft["object_key"])))
    ledger = Ledger(await facts.group(draft["group_id"]), near, now)
    is_many = ledger.usual == "many" or await facts.takes_many(
        draft["agent_id"], draft["user_id"], draft["predicate_key"]
    )
    usual = assertion.cardinality or ("many" if is_many else "one")
    others = [fact for fact in near if fact["standing"] == "held" and aliases.object_of(fact) != assertion.object[0]]
    rivals = [fact for fact in others if usual == fact["cardinality"] == "one" and statement(fact).span.overlaps(span)]
    return Contended(draft, span, sorted(rivals, key=lambda fact: fact["valid_from"] or ""))
