"""Which facts a question is about: filters in both times. Intervals are closed-open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.facts.models import key_of
from app.storage.filters import EVERYTHING, Absent, Eq, Filter, In, Or, Range, both
from app.storage.scope import ANY, Pair


@dataclass(frozen=True, slots=True)
class View:
    """A place in both times. `as_of` None: whatever the valid time. `known_at` None: as we know it now."""

    as_of: str | None
    known_at: str | None = None

    def held(self) -> Filter:
        """What was believed then, and true then."""
        return both(Eq("standing", "held"), self.known(), self.valid())

    def disputed(self) -> Filter:
        return both(Eq("standing", "disputed"), self.known(), self.valid())

    def known(self) -> Filter:
        """What stood in the books. Now means the last word, even where its moment has been put a little ahead."""
        if self.known_at is None:
            return Absent("known_until")
        return both(self.written(), Or((Absent("known_until"), Range("known_until", gt=self.known_at))))

    def written(self) -> Filter:
        return EVERYTHING if self.known_at is None else Range("known_from", le=self.known_at)

    def valid(self) -> Filter:
        return EVERYTHING if self.as_of is None else during(self.as_of)

    def of_status(self, status: str) -> Filter:
        """`superseded` and `retracted`: what had gone by then; `any`: all that was ever written by then."""
        if status == "active":
            return self.held()
        if status == "disputed":
            return self.disputed()
        if status == "any":
            return both(self.written(), self.valid())
        gone = None if self.known_at is None else Range("known_until", le=self.known_at)
        return both(Eq("status", status), gone, self.valid())


def during(moment: str) -> Filter:
    return both(
        Or((Absent("valid_from"), Range("valid_from", le=moment))),
        Or((Absent("valid_until"), Range("valid_until", gt=moment))),
    )


def about(asked: Mapping[str, Any]) -> Filter:
    """Owners exactly as they are named, texts by what they are compared by."""
    parts: list[Filter] = [Eq(name, asked[name]) for name in ("agent_id", "user_id") if asked.get(name) is not None]
    parts += [
        Eq(f"{name}_key", key_of(asked[name]))
        for name in ("subject", "predicate", "object")
        if asked.get(name) is not None
    ]
    if asked.get("object_type") is not None:
        parts.append(Eq("object_type", asked["object_type"]))
    return both(*parts)


def of_pairs(pairs: Sequence[Pair]) -> list[Filter]:
    """One filter for each user of the pairs, and one for what belongs to none: together they are the pairs, and each is
    a range of an index."""
    filters: list[Filter] = []
    for user in dict.fromkeys(pair.user for pair in pairs):
        agents = [pair.agent for pair in pairs if pair.user == user]
        of_user = Absent("user_id") if user is None else Eq("user_id", user)
        filters.append(both(of_user, None if ANY in agents else _one_of(agents)))
    return filters


def _one_of(agents: Sequence[Any]) -> Filter:
    named = tuple(agent for agent in agents if agent is not None)
    parts: list[Filter] = [In("agent_id", named)] if named else []
    if None in agents:
        parts.append(Absent("agent_id"))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))
