"""The collections of procedures: how an agent does things, and how often that worked."""

from collections.abc import Mapping
from typing import Any

from app.storage.filters import Eq
from app.storage.schema import Collection, SearchSchema, Unique

INTERNAL = frozenset({"tenant_id", "name_key", "content_hash"})
"""Fields that never leave the service."""


def situation(procedure: Mapping[str, Any]) -> str:
    """Returns the text by which a procedure is found: when to use it, not how it is done."""
    return "\n".join([procedure["name"], procedure["trigger"], *procedure["preconditions"]])


PROCEDURES = Collection(
    name="procedures",
    id_field="procedure_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "name_key": "text",
        "status": "text",
        "tags": "list",
        "created_at": "time",
    },
    unique=(Unique("name", ("agent_id", "user_id", "name_key"), Eq("status", "active")),),
    indexes=(("agent_id", "user_id"), ("agent_id",), ("user_id",), ("name_key",)),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("status", "tags"),
        ranges=("success_rate", "trust", "created_at"),
        time=("created_at",),
        anchor=("created_at",),
        text=situation,
    ),
    internal=INTERNAL,
)
"""`name_key` is the name without differences of case, width and white space. `success_rate` is computed from the counts
at each outcome, so that a search can filter by it. `content_hash` is that of the id, so that no procedure hides another
in a search."""

PROCEDURE_HISTORY = Collection(
    name="procedure_history",
    id_field="history_id",
    fields={"agent_id": "text", "user_id": "text", "record_id": "text"},
    order="version",
    indexes=(("record_id",), ("user_id",)),
    opaque=("record",),
    audited=False,
    internal=INTERNAL,
)
"""One document for each replaced version of a procedure, stored by the change that replaced it."""
