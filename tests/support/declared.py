"""Collections declared for the contract suite, and makers of their documents; nothing here knows an engine."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from app.storage.changes import IndexEntry, Insert
from app.storage.schema import EVERYTHING, Absent, And, Collection, Doc, Eq, Filter, Not, SearchSchema, Unique
from app.storage.scope import Partition
from app.storage.search import Floats, SearchQuery
from app.storage.text import content_hash, index_text, term_ids, terms

DIM = 16
MODEL = "model-a"
T, OTHER = "tenant-1", "tenant-2"
AU = Partition("agent", "user")

THINGS = Collection(
    name="things",
    id_field="thing_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "group": "text",
        "name": "text",
        "state": "text",
        "slot": "number",
        "score": "number",
        "done": "flag",
        "due": "time",
        "tags": "list",
        "origin.place": "text",
    },
    unique=(
        Unique("name", ("group", "name"), And((Eq("state", "open"), Not(Absent("name"))))),
        Unique("name_of_done", ("name",), And((Eq("done", True), Not(Absent("name"))))),
        Unique("slot", ("group", "slot"), Not(Absent("slot"))),
    ),
    indexes=(("group",), ("agent_id", "user_id")),
    covered=("state", "done"),
    opaque=("metadata",),
)
NUMBERED = Collection(
    name="numbered",
    id_field="numbered_id",
    fields={"parent": "text", "seq": "number"},
    order="seq",
    indexes=(("parent",),),
)
COUNTED = Collection(
    name="counted_notes",
    counted=True,
    id_field="note_id",
    fields={"parent": "text"},
    opaque=("context",),
)
SEARCHED = SearchSchema(
    facets=("kind", "tags"),
    ranges=("event_at", "created_at", "weight"),
    time=("event_at", "created_at"),
    anchor=("anchored_at", "created_at"),
)
ENTRIES = Collection(
    name="entries",
    counted=True,
    id_field="entry_id",
    fields={"agent_id": "text", "user_id": "text", "kind": "text", "tags": "list", "created_at": "time"},
    indexes=(("agent_id", "user_id"),),
    searched=SEARCHED,
)
"""Searched; its session is no facet, so that neighbours must follow a change of the session all the same."""

_ids = count(1)


def fresh(prefix: str = "t") -> str:
    return f"{prefix}{next(_ids):08d}"


def at(second: int) -> str:
    return f"2026-03-01T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000Z"


def thing(thing_id: str | None = None, *, tenant: str = T, **fields: Any) -> Insert:
    doc = {"tenant_id": tenant, "thing_id": thing_id or fresh(), "version": 1, "created_at": at(0), **fields}
    return Insert(THINGS, doc)


def numbered(seq: Any, parent: str = "p", tenant: str = T) -> Insert:
    return Insert(NUMBERED, {"tenant_id": tenant, "numbered_id": fresh(), "parent": parent, "seq": seq})


def unit(*components: float) -> Floats:
    whole = np.zeros(DIM, np.float32)
    whole[: len(components)] = components
    return whole / np.float32(np.linalg.norm(whole))


def random_vector(seed: int, dim: int = DIM) -> Floats:
    whole = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    made: Floats = whole / np.float32(np.linalg.norm(whole))
    return made


def further_windows(seed: int, dim: int = DIM) -> Floats | None:
    """Of the text of that seed: none, one, two, none …"""
    return np.stack([random_vector(1_000 + 10 * seed + at, dim) for at in range(seed % 3)]) if seed % 3 else None


def search_entry(
    text: str, vector: Floats | None = None, model: str = MODEL, further: Floats | None = None
) -> IndexEntry:
    return IndexEntry(index_text(text), vector, model, further)


def entry_doc(
    text: str, entry_id: str | None = None, *, tenant: str = T, partition: Partition = AU, **fields: Any
) -> Doc:
    return {
        "tenant_id": tenant,
        "entry_id": entry_id or fresh("e"),
        "agent_id": partition.agent,
        "user_id": partition.user,
        "content_hash": content_hash(text),
        "base_importance": 0.5,
        "version": 1,
        "created_at": at(0),
        **fields,
    }


def entry(
    text: str,
    entry_id: str | None = None,
    *,
    vector: Floats | None = None,
    further: Floats | None = None,
    **fields: Any,
) -> Insert:
    """A searchable document of `ENTRIES`."""
    return Insert(ENTRIES, entry_doc(text, entry_id, **fields), search_entry(text, vector, further=further))


def ask(
    text: str = "",
    *,
    tenant: str = T,
    partitions: Sequence[Partition] = (AU,),
    where: Filter = EVERYTHING,
    vector: Floats | None = None,
    model: str = MODEL,
) -> SearchQuery:
    wanted = term_ids(terms(text)) if text else np.empty(0, np.uint32)
    return SearchQuery(tenant, tuple(partitions), where, vector, model, wanted)
