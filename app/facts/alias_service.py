"""Declares, lists and dismisses aliases. Each change is an operation that can be undone."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import Clock, rfc3339
from app.core.schemas import Identifier, Owned, example, shown
from app.errors import Conflict, LimitReached, NotFound, invalid, shortened
from app.facts.aliases import (
    ENTITY_ALIASES,
    MAX_ALIASES,
    AliasMap,
    AliasRecord,
    AliasRepository,
    AliasRule,
    EntityAlias,
    contained,
    new_alias,
    render_alias,
    untitled,
)
from app.facts.graph import Bound, EntityNode, GraphService, Sight
from app.facts.ledger import contend, statement
from app.facts.repository import FactRepository
from app.facts.schemas import FactName, FactRecord, key_of
from app.jobs import queue
from app.jobs.runner import Done, JobHandler, Run, undo_each
from app.memories.repository import of_partition
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.schema import Absent, Eq, In, both
from app.storage.scope import Partition
from app.writes.executor import WriteResult

AliasListStatus = TypeAliasType("AliasListStatus", Literal["active", "proposed", "dismissed", "any"])


class AliasesCreate(Owned):
    model_config = example({"user_id": "ada", "aliases": ["Ada"]})

    agent_id: Identifier | None = Field(None, description="For the facts of this agent; null: of every agent.")
    user_id: Identifier | None = Field(None, description="For the facts of this user; null: of all the agent's users.")
    aliases: Annotated[list[FactName], Field(min_length=1, max_length=20)] = Field(
        description="Other names of the entity. Compared without regard to case, width and spaces."
    )


@shown
class AliasList(TypedDict):
    entity: Annotated[str, Field(description="The name that stands for the entity.")]
    names: Annotated[list[str], Field(description="All its names, that one first.")]
    items: list[EntityAlias]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]
    truncated: Annotated[
        NotRequired[Bound | None],
        Field(default=None, description="The bound that the search for proposals met: then there may be more."),
    ]


@shown
class Contending(TypedDict):
    predicate: str
    fact_ids: Annotated[list[str], Field(description="Facts that cannot be true at the same time of one entity.")]


@shown
class AliasesChanged(AliasList):
    operation_id: Annotated[str | None, Field(description="To undo it; null: nothing has changed.")]
    contends: Annotated[
        list[Contending],
        Field(
            description="What is now said twice of the entity. It stays as it is until the next fact, or until a fact "
            "is retracted."
        ),
    ]


MAX_NAMES = 50
"""The limit of names of one entity."""
MAX_CONTENDING = 500
"""The limit of facts that are looked at for what is said twice."""


class AliasUndoStep(TypedDict):
    """How an operation left an alias, and what it was before: the fields that have changed, None for a new one."""

    alias_id: str
    version: int
    before: AliasRecord | None


@dataclass(slots=True)
class _Edit:
    """Changes of aliases, the steps that undo them, and the aliases as they are afterwards, by id."""

    changes: list[Change] = field(default_factory=list)
    undo: list[AliasUndoStep] = field(default_factory=list)
    after: dict[str, AliasRecord] = field(default_factory=dict)

    def applied(self, aliases: AliasMap) -> AliasMap:
        return AliasMap((aliases.records | self.after).values())


class AliasService:
    """The operations on aliases within a caller's scope. `undo_days`: for how long they can be undone."""

    def __init__(self, facts: FactRepository, graph: GraphService, clock: Clock, undo_days: float) -> None:
        self._facts, self._graph, self._clock, self._undo_days = facts, graph, clock, undo_days
        self._aliases = AliasRepository(facts.store, facts.scope)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def declare(self, name: str, body: AliasesCreate) -> WriteResult[AliasesChanged]:
        """Makes names one entity. Returns 201, or 200 if they were."""
        owner = Partition(body.agent_id, body.user_id)
        self._facts.scope.require_write(*_ids(owner))
        key = key_of(name)
        for index, alias in enumerate(body.aliases):
            if key_of(alias) == key:
                raise invalid(f"/aliases/{index}", "is the name itself: case, width and spaces make no difference")
        aliases, edit, now = await self._aliases.of_owner(*_ids(owner)), _Edit(), rfc3339(self._clock.now())
        for alias in body.aliases:
            self._put(edit, aliases, new_alias(owner, name, alias, "stated", now))
        after = edit.applied(aliases)
        if len(after.keys(key)) > MAX_NAMES:
            raise LimitReached(
                f"An entity has at most {MAX_NAMES} names, itself included, and this would make it "
                f"{len(after.keys(key))}: remove an alias first."
            )
        new = sum(isinstance(change, Insert) for change in edit.changes)
        if new and await self._aliases.count(of_partition(*_ids(owner))) + new > MAX_ALIASES:
            raise LimitReached(
                f"An agent and user have at most {MAX_ALIASES} aliases, dismissed ones included: remove one first."
            )
        # what the owner's facts say twice of the entity, where one can be true: it lives in Rome, and in Oslo
        where = both(
            of_partition(*_ids(owner)),
            In("subject_key", after.keys(key)),
            Eq("standing", "held"),
            Eq("cardinality", "one"),
            Absent("known_until"),
        )
        by_predicate: dict[str, list[FactRecord]] = {}
        for fact in await self._facts.find(where, order="asc", limit=MAX_CONTENDING):
            by_predicate.setdefault(fact["predicate_key"], []).append(fact)
        contends: list[Contending] = []
        for facts in by_predicate.values():
            statements = [statement(fact, after.object_of(fact)) for fact in facts]
            ids = [
                first.id
                for first in statements
                if any(
                    first.object != other.object and contend(first, other) and first.span.overlaps(other.span)
                    for other in statements
                )
            ]
            if ids:
                contends.append({"predicate": facts[0]["predicate"], "fact_ids": ids})
        return self._changed(owner, name, after, edit, contends, status=201)

    async def dismiss(self, name: str, alias: str, owner: Partition) -> WriteResult[AliasesChanged]:
        """Says that two names are not one entity: no rule joins or proposes them again. Raises NotFound if nothing
        joins or proposes them."""
        if owner == NOBODY:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        self._facts.scope.require_write(*_ids(owner))
        aliases, edit, now = await self._aliases.of_owner(*_ids(owner)), _Edit(), rfc3339(self._clock.now())
        key, other = key_of(name), key_of(alias)
        joined = key != other and aliases.root(key) == aliases.root(other)
        if not joined and not await self._is_proposed(name, alias, owner):
            raise NotFound(
                f"{shortened(name)} and {shortened(alias)} are no aliases of each other here, and no rule proposes it."
            )
        direct = new_alias(owner, name, alias, "stated", now)
        self._put(edit, aliases, {**direct, "status": "dismissed", "states": [{"status": "dismissed", "from": now}]})
        if _joined(edit.applied(aliases), key, other):  # by further names
            mine = [linking for linking in aliases.active if (linking["agent_id"], linking["user_id"]) == _ids(owner)]
            for linking in mine:
                is_direct = linking["alias_id"] == direct["alias_id"]
                if other in (linking["name_key"], linking["alias_key"]) and not is_direct:
                    self._put(edit, aliases, {**linking, "status": "dismissed", "updated_at": now})
        after = edit.applied(aliases)
        if _joined(after, key, other):
            raise Conflict("Aliases of another owner, such as the agent's for all its users, join these names.")
        return self._changed(owner, name, after, edit, [], status=200)

    def _put(self, edit: _Edit, aliases: AliasMap, alias: AliasRecord) -> None:
        """Adds the change that stores an alias, or gives the stored one the status and the names of `alias`."""
        old = aliases.records.get(alias["alias_id"]) or edit.after.get(alias["alias_id"])
        if old is None:
            edit.changes.append(self._aliases.insert(alias))
            edit.undo.append({"alias_id": alias["alias_id"], "version": 1, "before": None})
            edit.after[alias["alias_id"]] = alias
            return
        if old["status"] == alias["status"]:
            return
        changed, before = _renamed(alias), _renamed(old)
        if alias["status"] == "dismissed":  # its names stay
            changed, before = {"status": alias["status"]}, {"status": old["status"]}
        changed["states"] = [*old["states"], {"status": alias["status"], "from": alias["updated_at"]}]
        before["states"] = old["states"]
        edit.changes.append(self._aliases.update(old, changed, now=alias["updated_at"]))
        edit.undo.append({"alias_id": alias["alias_id"], "version": old["version"] + 1, "before": before})
        edit.after[alias["alias_id"]] = {**old, **changed}

    def _changed(
        self, owner: Partition, name: str, after: AliasMap, edit: _Edit, contends: list[Contending], *, status: int
    ) -> WriteResult[AliasesChanged]:
        body = _list_of(name, after, map(render_alias, after.of(key_of(name))))
        if not edit.changes:
            return WriteResult({**body, "operation_id": None, "contends": contends}, status=200)
        now, (agent, user) = self._clock.now(), _ids(owner)
        begun, _ = queue.new_operation(self._facts.scope, queue.ALIAS, now, agent_id=agent, user_id=user)
        number = len(edit.changes)
        until = rfc3339(now + timedelta(days=self._undo_days))
        done = queue.carried_out(begun, {"changed": number}, {"until": until, "aliases": edit.undo}, number)
        users = frozenset() if user is None else frozenset((user,))
        answer: AliasesChanged = {**body, "operation_id": begun["operation_id"], "contends": contends}
        return WriteResult(answer, [*edit.changes, done], status, users=users)

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def listed(self, name: str, sight: Sight, status: AliasListStatus) -> AliasList:
        """Returns the aliases of an entity, and the ones that rules propose."""
        graph = await self._graph.graph(sight)
        aliases, key = graph.aliases, key_of(name)
        names = set(aliases.keys(key))
        items: list[EntityAlias] = []
        truncated: Bound | None = None
        if status in ("active", "any"):
            items += map(render_alias, aliases.of(key))
        if status in ("dismissed", "any"):
            items += [
                render_alias(alias) for alias in aliases.dismissed if names & {alias["name_key"], alias["alias_key"]}
            ]
        if status in ("proposed", "any"):
            entities, truncated = await graph.entities("")
            items += proposals(name, entities, aliases, Partition(sight.agent_id, sight.user_id))
        return {**_list_of(name, aliases, items), "truncated": truncated}

    async def _is_proposed(self, name: str, alias: str, owner: Partition) -> bool:
        agent, user = _ids(owner)
        graph = await self._graph.graph(Sight(agent, user, True, None, None))
        entities, _ = await graph.entities("")
        proposed = proposals(name, entities, graph.aliases)
        return any(key_of(alias) in (key_of(proposal["name"]), key_of(proposal["alias"])) for proposal in proposed)


NOBODY = Partition(None, None)


def proposals(
    name: str, entities: dict[str, EntityNode], aliases: AliasMap, owner: Partition = NOBODY
) -> list[EntityAlias]:
    """Returns the aliases that rules propose for an entity: full names that begin or end with its name if there is just
    one, names that its name begins or ends with, and the same names with other titles."""
    mine = set(aliases.keys(key_of(name)))
    spelled = {key: entity.name for key, entity in entities.items()} | {key: aliases.spelled(key) for key in mine}
    spelled[key_of(name)] = name
    dismissed = {frozenset((alias["name_key"], alias["alias_key"])) for alias in aliases.dismissed}
    rules: dict[tuple[str, str], AliasRule] = {}  # of the keys of a full name and of its other name
    for key in sorted(spelled):
        for own in sorted(mine) if key not in mine else []:
            if frozenset((key, own)) in dismissed:
                continue
            if (untitled(key) or key) == (untitled(own) or own) and " " in (untitled(key) or key):
                rules[min((key, own), key=len), max((key, own), key=len)] = "title"
            elif contained(own, key) and _alone(own, spelled, aliases):
                rules[key, own] = "contains"
            elif contained(key, own) and _alone(key, spelled, aliases):
                rules[own, key] = "contains"
    agent, user = _ids(owner)
    return [
        {
            "agent_id": agent,
            "user_id": user,
            "name": spelled[full],
            "alias": spelled[other],
            "rule": rule,
            "status": "proposed",
            "created_at": None,
        }
        for (full, other), rule in rules.items()
    ]


def _alone(part: str, keys: Iterable[str], aliases: AliasMap) -> bool:
    """Returns True if the names that begin or end with this part are those of one entity."""
    full = {aliases.root(untitled(key) or key) for key in keys if contained(part, key)}
    return len(full) == 1


def _joined(aliases: AliasMap, key: str, other: str) -> bool:
    return aliases.root(key) == aliases.root(other)


def _list_of(name: str, aliases: AliasMap, items: Iterable[EntityAlias]) -> AliasList:
    keys = aliases.keys(key_of(name))
    names = [aliases.spelled(key) for key in keys] if aliases.name(key_of(name)) else [name for _ in keys]
    return {"entity": names[0], "names": names, "next_cursor": None, "items": [*items]}


def _renamed(alias: AliasRecord) -> AliasRecord:
    """Returns the fields that declaring an alias again changes."""
    return {
        "status": alias["status"],
        "name": alias["name"],
        "alias": alias["alias"],
        "rule": alias["rule"],
        "name_key": alias["name_key"],
        "alias_key": alias["alias_key"],
    }


def _ids(owner: Partition) -> tuple[str | None, str | None]:
    return owner.agent if isinstance(owner.agent, str) else None, owner.user


async def undo_aliases(run: Run) -> Done:
    """Undoes an operation on aliases. An alias that was changed again since is left as it is, and counted."""

    async def steps() -> AsyncIterator[AliasUndoStep]:
        done: list[AliasUndoStep] = run.payload["undo"]["aliases"]
        for step in done:
            alias = await run.store.get(ENTITY_ALIASES, run.tenant, step["alias_id"])
            restored = True
            with queue.skipping(ENTITY_ALIASES, step["alias_id"]):
                restored = _restored(alias, step)
            if not restored:
                yield step

    async def back(step: AliasUndoStep) -> list[Change] | None:
        alias = await run.store.get(ENTITY_ALIASES, run.tenant, step["alias_id"])
        if alias is None or alias["version"] != step["version"]:
            return None
        expect = {"version": alias["version"]}
        if step["before"] is None:
            return [Delete(ENTITY_ALIASES, run.tenant, alias["alias_id"], expect)]
        before: AliasRecord = {**step["before"], "updated_at": rfc3339(run.clock.now())}
        return [Update(ENTITY_ALIASES, run.tenant, alias["alias_id"], before, {"version": 1}, expect)]

    return await undo_each(run, ENTITY_ALIASES, steps(), back)


def _restored(alias: AliasRecord | None, step: AliasUndoStep) -> bool:
    """Returns True if an earlier attempt of the run undid this step."""
    before = step["before"]
    if alias is None or before is None:
        return alias is None and before is None
    return alias["version"] == step["version"] + 1 and alias["status"] == before["status"]


ALIAS_UNDO: dict[str, JobHandler] = {queue.ALIAS: undo_aliases}
