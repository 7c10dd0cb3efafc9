"""The page of an entity: its names, facts, neighbours, mentions in memories and actions."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.actions.schemas import ACTIONS
from app.actions.schemas import render as render_action
from app.core.clock import Clock, rfc3339, to_ms
from app.entities.mentions import MentionIndex, Mentioning
from app.facts.alias_service import shown
from app.facts.aliases import AliasMap
from app.facts.graph import GraphService, Sight
from app.facts.keys import key_of
from app.facts.repository import FactRepository, View, any_of, of_pairs
from app.facts.schemas import render
from app.memories.decay_settings import Decays
from app.storage.filters import Eq, Filter, Has, Or, Range, both
from app.storage.protocol import Order
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Partition

MAX_NEIGHBORS = 1_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts of an entity in some partitions."""

    facts: FactRepository
    pairs: Sequence[Partition]
    keys: tuple[str, ...]

    async def find(self, where: Filter, limit: int, order: Order = "desc") -> list[Doc]:
        """Returns up to `limit` facts that begin or end at the entity, in the order in which they were stored."""
        ends = (any_of("subject_key", self.keys), both(any_of("object_key", self.keys), Eq("object_type", "entity")))
        asked = [both(of_pair, end, where) for of_pair in of_pairs(self.pairs) for end in ends]
        parts = await asyncio.gather(*(self.facts.find(one, order=order, limit=limit) for one in asked))
        found = {fact["fact_id"]: fact for part in parts for fact in part}.values()
        return sorted(found, key=lambda one: (one["created_at"], one["fact_id"]), reverse=order == "desc")[:limit]


class EntityService:
    """Reads what is known of entities, within a caller's scope. `model`: name of the embedding model."""

    def __init__(self, facts: FactRepository, decays: Decays, clock: Clock, model: str) -> None:
        self._facts, self._decays, self._clock, self._model = facts, decays, clock, model
        self._graph = GraphService(facts, clock)

    async def page(self, name: str, sight: Sight, limit: int) -> Doc:
        """Returns all that is known of an entity, up to `limit` items of each kind. Memories and actions are those of
        now, whatever the times of `sight`."""
        graph, now = await self._graph.graph(sight), rfc3339(self._clock.now())
        aliases, key = graph.aliases, graph.aliases.root(key_of(name))
        names = aliases.keys(key)
        scope = self._facts.scope
        pairs = scope.pairs(sight.agent_id, sight.user_id, sight.include_shared)
        view, moment = View(sight.as_of or now, sight.known_at), sight.as_of or now
        facts = _Facts(self._facts, pairs, names)
        index = MentionIndex(self._facts.store, scope, self._model, pairs, now)
        over = both(Eq("standing", "held"), view.known(), Range("valid_until", le=moment))
        current, earlier, first, actions = await asyncio.gather(
            facts.find(view.believed(), limit + 1),
            facts.find(over, limit + 1),
            facts.find(both(Eq("standing", "held"), view.known()), 1, "asc"),
            self._actions(pairs, names, limit + 1),
        )
        walk, latest, earliest = await asyncio.gather(
            graph.walk([key], 1, max_nodes=MAX_NEIGHBORS),
            index.of(names, limit),
            index.of(names, 1, latest=False),
        )
        seen = [fact["known_from"] for fact in (*first, *current, *earlier)]
        seen += [_happened(doc) for doc, _ in (*latest.found, *earliest.found)]
        seen += [action["timestamp"] for action in actions]
        return {
            "name": aliases.name(key) or _name_of(key, (*current, *earlier)) or name,
            "key": key,
            "names": [aliases.spelled(one) for one in names] if aliases.name(key) else [name],
            "aliases": [shown(doc) for doc in aliases.of(key)],
            "facts": _known(current, limit),
            "earlier": _known(earlier, limit),
            "neighbors": {"count": len(walk.nodes), "truncated": walk.truncated},
            "memories": await self._mentions(latest, aliases),
            "actions": {"items": [render_action(one) for one in actions[:limit]], "truncated": len(actions) > limit},
            "first_seen": min(seen, default=None),
            "last_seen": max(seen, default=None),
        }

    async def _mentions(self, mentioning: Mentioning, aliases: AliasMap) -> Doc:
        now_ms = to_ms(self._clock.now())
        items = [
            {"memory": await self._decays.shown(doc, now_ms), "names": [aliases.spelled(key) for key in keys]}
            for doc, keys in mentioning.found
        ]
        return {"items": items, "truncated": mentioning.more}

    async def _actions(self, pairs: Sequence[Partition], names: Sequence[str], limit: int) -> list[Doc]:
        actions = Repository(self._facts.store, self._facts.scope, ACTIONS)
        named = Or(tuple(Has("entity_keys", key) for key in names))
        parts = await asyncio.gather(*(actions.find(both(one, named), limit=limit) for one in of_pairs(pairs)))
        found = [action for part in parts for action in part]
        return sorted(found, key=lambda one: (one["timestamp"], one["action_id"]), reverse=True)[:limit]


def _known(facts: Sequence[Doc], limit: int) -> Doc:
    return {"items": [render(fact) for fact in facts[:limit]], "truncated": len(facts) > limit}


def _name_of(key: str, facts: Iterable[Doc]) -> str | None:
    """Returns the name of an entity as the first of these facts has it."""
    return next((one[side] for one in facts for side in ("subject", "object") if one[f"{side}_key"] == key), None)


def _happened(memory: Doc) -> str:
    return str(memory["event_at"] or memory["created_at"])
