"""Queries over procedures and their history."""

from collections.abc import Mapping
from typing import Any

from app.memories.repository import VersionedRepository, of_pair
from app.procedures.models import PROCEDURE_HISTORY, PROCEDURES
from app.storage.collection import Change, Doc, SearchEntry, Store
from app.storage.filters import Eq, Filter, Has, Range, both
from app.storage.scope import Scope
from app.storage.text import normalise_content

COUNTED = ("version", "success_count", "failure_count")
"""Each change moves one of these: who expects them all overwrites nothing that he has not seen."""


class ProcedureRepository(VersionedRepository):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, PROCEDURES, PROCEDURE_HISTORY)

    async def named(self, agent: str | None, user: str | None, name_key: str) -> Doc | None:
        """The active procedure of that name in the scope."""
        found = await self.find(both(of_pair(agent, user), Eq("name_key", name_key), Eq("status", "active")), limit=1)
        return found[0] if found else None

    # --- Changes ------------------------------------------------------------------------------------------------------

    def revise(self, doc: Doc, changed: Doc, now: str, entry: SearchEntry | None = None) -> list[Change]:
        """Replaces fields; the version that goes is kept as history."""
        seen = {name: doc[name] for name in COUNTED}
        return [self.update(doc, changed, now=now, expect=seen, entry=entry), self._past(doc, now)]

    def counted(self, doc: Doc, changed: Doc) -> list[Change]:
        """An outcome: nothing that moves the version."""
        return [self.append(doc, changed, expect={name: doc[name] for name in COUNTED})]


def listed(asked: Mapping[str, Any]) -> Filter:
    """The filter of a list: each named field as it is, nothing widened."""
    status, since, until = asked.get("status"), asked.get("since"), asked.get("until")
    return both(
        *(Eq(field, asked[field]) for field in ("agent_id", "user_id") if asked.get(field) is not None),
        None if asked.get("name") is None else Eq("name_key", normalise_content(asked["name"])),
        None if status in (None, "any") else Eq("status", status),
        None if asked.get("tag") is None else Has("tags", asked["tag"]),
        None if since is None and until is None else Range("created_at", ge=since, lt=until),
    )
