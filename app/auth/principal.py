"""The authenticated caller, and the one place that checks verbs. The scope checks bindings (`storage/scope.py`)."""

from dataclasses import dataclass
from functools import cache

from app.errors import Forbidden
from app.storage.scope import Scope

VERBS = ("read", "write", "admin")
ANONYMOUS, UNAUTHENTICATED = "anonymous", "unauthenticated"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: its key, verbs and scope."""

    key_id: str
    """The id of the API key, or `anonymous` / `unauthenticated`."""
    lineage: str
    """The id that a key shares with the keys it was rotated to, so that a retry with the new key counts as a retry."""
    verbs: frozenset[str]
    scope: Scope
    requests_per_second: float | None = None
    """The limit of this key; None: the limit of the settings applies."""

    def require(self, verb: str) -> None:
        """Raises Forbidden if the key lacks the verb."""
        if verb not in self.verbs:
            raise Forbidden(f"This needs a key with the verb {verb}.")


@cache
def unauthenticated(name: str) -> Principal:
    """Returns a principal with all verbs for tenant `default`, for callers without a key."""
    return Principal(name, name, frozenset(VERBS), Scope("default"))
