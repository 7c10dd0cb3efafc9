"""What one caller may reach: a tenant, the bindings of the caller's key, and partitions (agent, user).

`Repository` checks every read of documents and every change against the scope, so no service can forget it. A search
(`Store.search`) reads those of `Scope.partitions`, and its caller shows only documents that `Scope.sees`, as the
retriever and `NearDuplicates` do. A service may call `require_write` early, too: a request that is refused then reads
and embeds nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypedDict

from app.errors import Forbidden
from app.storage.schema import Absent, Filter, In, Or, both


class _Any(Enum):
    ANY = "any"


ANY_AGENT: Final = _Any.ANY

SYSTEM: Final = ""
"""Tenant of the service's own records. No key can name it."""


class Partition(NamedTuple):
    """The (agent, user) pair that owns records. `agent=ANY_AGENT` stands for all partitions of the user, in searches
    only."""

    agent: str | None | _Any
    user: str | None


class PartitionOwner(NamedTuple):
    """The owners of a partition's records, with their tenant."""

    tenant: str
    agent: str | None
    user: str | None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions whose records one prompt for this agent and user may show, rules of the agent left out."""
        own = Partition(self.agent, self.user)
        both_named = self.agent is not None and self.user is not None
        return (own, Partition(None, self.user)) if both_named else (own,)


class Viewpoint(NamedTuple):
    """What a question is about, and the times (RFC 3339) that it is asked of: whose records, what was true at `as_of`,
    as far as it was known at `known_at` (None: now), without what has expired at `now`."""

    partitions: tuple[Partition, ...]
    user_id: str | None
    as_of: str
    now: str
    known_at: str | None = None


class Bindings(TypedDict):
    """The bindings of a scope as JSON, in the payload of a job."""

    agents: list[str] | None
    users: list[str] | None
    key_id: str | None
    rules: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """What one caller may reach: a tenant, and the agents and users that its key is bound to.

    None means unbound. Bindings only narrow a scope.
    """

    tenant: str
    agents: frozenset[str] | None = None
    users: frozenset[str] | None = None
    key_id: str | None = None
    """The id of the API key, as records keep it; None for callers without a key (in the audit trail, they are
    `Principal.key_id`: `anonymous`, and `unauthenticated` with `RECALLD_AUTH=off`)."""
    rules: bool = True
    """Whether the caller may write rules: memories that are pinned or instructions. False for a model over MCP, unless
    `RECALLD_MCP_INSTRUCTIONS=on`. `MemoryRepository.require_write` decides by the memory."""

    @property
    def is_bound(self) -> bool:
        """Whether the caller is bound to agents or users."""
        return self.agents is not None or self.users is not None

    def bindings(self) -> Bindings:
        """Returns the bindings as JSON, for a job that works for this caller. `of_bindings` reads them."""
        return {
            "agents": None if self.agents is None else sorted(self.agents),
            "users": None if self.users is None else sorted(self.users),
            "key_id": self.key_id,
            "rules": self.rules,
        }

    @classmethod
    def of_bindings(cls, tenant: str, bindings: Mapping[str, Any]) -> "Scope":
        """Returns the scope with bindings from `bindings()`."""
        agents, users = bindings.get("agents"), bindings.get("users")
        return cls(
            tenant,
            None if agents is None else frozenset(agents),
            None if users is None else frozenset(users),
            bindings.get("key_id"),
            bindings.get("rules", True),
        )

    def sees(self, doc: Mapping[str, Any]) -> bool:
        """Returns whether the document is visible. Bound keys also see documents without an agent or user."""
        if not self.is_bound:
            return True
        agent, user = doc.get("agent_id"), doc.get("user_id")
        return self._sees_agent(agent) and self._sees_user(user)

    def _sees_agent(self, agent: str | None) -> bool:
        return self.agents is None or agent is None or agent in self.agents

    def _sees_user(self, user: str | None) -> bool:
        return self.users is None or user is None or user in self.users

    def visible(self) -> Filter:
        """Returns `sees` as a filter."""
        return both(_bound("agent_id", self.agents), _bound("user_id", self.users))

    def writable(self) -> Filter:
        """Returns the condition of `require_write` as a filter: bound keys never change records shared beyond their
        bindings."""
        return both(_among("agent_id", self.agents), _among("user_id", self.users))

    def require_write(self, agent: str | None, user: str | None) -> None:
        """Raises Forbidden if a record with these owners is outside the bindings, or is shared with agents or users
        outside them."""
        if self.agents is not None and agent not in self.agents:
            raise Forbidden("This key is bound to other agents than the agent_id of this record.")
        if self.users is not None and user not in self.users:
            raise Forbidden("This key is bound to other users than the user_id of this record.")

    def partitions(self, agent: str | None, user: str | None, include_shared: bool) -> tuple[Partition, ...]:
        """Returns the partitions covered by a search for this agent and user, within the bindings."""
        if agent is None and user is not None:
            wanted: tuple[Partition, ...] = (Partition(ANY_AGENT, user),)
            if self.agents is not None:
                wanted = (*(Partition(bound, user) for bound in sorted(self.agents)), Partition(None, user))
        elif user is None or not include_shared:
            wanted = (Partition(agent, user),)
        else:
            wanted = (Partition(agent, user), Partition(agent, None), Partition(None, user))
        if not self.is_bound:
            return wanted
        return tuple(partition for partition in wanted if self._covers(partition))

    def _covers(self, partition: Partition) -> bool:
        agent = None if isinstance(partition.agent, _Any) else partition.agent
        return self._sees_agent(agent) and self._sees_user(partition.user)


def _among(field: str, allowed: frozenset[str] | None) -> Filter | None:
    return None if allowed is None else In(field, tuple(sorted(allowed)))


def _bound(field: str, allowed: frozenset[str] | None) -> Filter | None:
    return None if allowed is None else Or((Absent(field), In(field, tuple(sorted(allowed)))))
