"""Who is calling, and the one place where verbs are enforced. Bindings are the scope's (`storage/scope.py`)."""

from dataclasses import dataclass
from functools import cache

from app.errors import Forbidden
from app.storage.scope import Scope

VERBS = ("read", "write", "admin")
ANONYMOUS, UNAUTHENTICATED = "anonymous", "unauthenticated"


@dataclass(frozen=True, slots=True)
class Principal:
    key_id: str
    """Of the API key, or `anonymous` / `unauthenticated`."""
    lineage: str
    """The id that a key and those that it was rotated to have in common: a retry with the new key is still a retry."""
    verbs: frozenset[str]
    scope: Scope
    requests_per_second: float | None = None
    """The key's own limit; None: as the setting says."""

    def require(self, verb: str) -> None:
        if verb not in self.verbs:
            raise Forbidden(f"This needs a key with the verb {verb}.")


@cache
def unauthenticated(name: str) -> Principal:
    """Everybody is tenant `default` while no key was ever made, or where authentication is off."""
    return Principal(name, name, frozenset(VERBS), Scope("default"))
