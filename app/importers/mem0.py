"""Reads exports of mem0: the result of `get_all` or a page of the platform's API, with `results` (or a bare list) and
`relations`."""

from collections.abc import Iterator
from typing import Any

from app.core.schemas import Json
from app.importers.models import (
    DefaultOwner,
    ImportRecord,
    ImportResult,
    SkippedRecord,
    Unreadable,
    each,
    memory,
    time,
    words,
)


def read(file: Any, owner: DefaultOwner) -> Iterator[ImportResult]:
    """Yields the records of a file."""
    whole = {"results": file} if isinstance(file, list) else file

    def one(record: Json, where: str) -> Iterator[ImportResult]:
        expires = time(record.get("expiration_date"))
        if expires is not None and expires <= owner.now:
            raise Unreadable("it has expired")
        metadata = record.get("metadata")
        more = {name: record[name] for name in ("run_id", "app_id", "actor_id", "role") if record.get(name) is not None}
        yield memory(
            "mem0",
            where,
            record,
            record.get("memory") or record.get("text"),
            **owner.of(record.get("agent_id"), record.get("user_id")),
            tags=words(record.get("categories")),
            metadata={**(metadata if isinstance(metadata, dict) else {}), **more},
            event_at=time(record.get("created_at")),
            expires_at=expires,
        )

    def relation(record: Json, where: str) -> Iterator[ImportResult]:
        named_by = {"subject": "source", "predicate": "relationship", "object": "target"}
        named = {ours: record.get(theirs) for ours, theirs in named_by.items()}
        named["object"] = named["object"] or record.get("destination")
        if not all(isinstance(value, str) and value.strip() for value in named.values()):
            raise Unreadable("it lacks source, relationship or target")
        yield ImportRecord("fact", where, {**named, **owner.of(None, record.get("user_id")), "cardinality": "many"})

    if "results" in whole:
        yield from each(whole["results"], "/results", one)
    if whole.get("relations"):
        yield from each(whole["relations"], "/relations", relation)
    if whole.get("next"):
        yield SkippedRecord("/next", "this is one page of several: import the others, too")
