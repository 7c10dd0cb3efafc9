"""`recalld doctor` finds each kind of fault that it looks for; here they are planted behind the engine's back."""

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from app.storage.sqlite.store import EmbeddedStore
from tests.support.declared import entry, further_windows, numbered, random_vector, thing

pytestmark = pytest.mark.anyio
Raw = Callable[..., list[Any]]

FAULTS = {
    "a document that is no JSON": ("things: documents", "UPDATE things SET doc = '{' WHERE id = 'one'"),
    "a document under another id": ("things: documents", "UPDATE things SET id = 'other' WHERE id = 'one'"),
    "a document under another tenant": ("things: documents", "UPDATE things SET tenant = 'other' WHERE id = 'one'"),
    "a column that says something else": ("things: documents", "UPDATE things SET name = 'x' WHERE id = 'one'"),
    "a list column that says something else": ("things: documents", "UPDATE things SET tags = '[]' WHERE id = 'one'"),
    "a document without its tenant": (
        "things: documents",
        "UPDATE things SET doc = json_remove(doc, '$.tenant_id') WHERE id = 'one'",
    ),
    "a document that is a list": ("things: documents", "UPDATE things SET doc = '[]' WHERE id = 'one'"),
    "a search row without a document": ("entries: search rows", "DELETE FROM entries WHERE id = 'first'"),
    "a document without a search row": ("entries: search rows", "DELETE FROM entries_search WHERE row = 1"),
    "a document with a tombstone": ("entries: search rows", "UPDATE entries_search SET head = NULL WHERE row = 1"),
    "a search row in another's partition": (
        "entries: search rows",
        "UPDATE partitions SET user = 'somebody else' WHERE collection = 'entries'",
    ),
    "a record that is cut off": ("entries: search rows", "UPDATE entries_search SET head = x'00' WHERE row = 1"),
    "terms that are cut off": ("entries: search rows", "UPDATE entries_search SET terms = x'00' WHERE row = 1"),
    "facets that are cut off": ("entries: search rows", "UPDATE entries_search SET facets = x'00' WHERE row = 1"),
    "windows that are cut off": (
        "entries: search rows",
        "UPDATE entries_search SET vector = substr(vector, 1, 20) WHERE row = 3",
    ),
    "windows that are gone": ("entries: search rows", "UPDATE entries_search SET vector = x'' WHERE row = 3"),
    "a partition that counts wrong": ("entries: partitions", "UPDATE partitions SET count = count + 1"),
    "a row newer than its partition": ("entries: partitions", "UPDATE entries_search SET rev = rev + 1 WHERE row = 1"),
    "a partition that says another model": ("entries: partitions", "UPDATE partitions SET model = 7"),
    "a kept vector of no row": (
        "entries: search rows",
        "INSERT INTO kept_vectors SELECT partition, 99, x'01000000', x'00' FROM partitions LIMIT 1",
    ),
    "rows of no partition": ("entries: search rows", "DELETE FROM partitions"),
}


@pytest.fixture
async def filled(store: EmbeddedStore) -> EmbeddedStore:
    await store.commit([thing("one", name="n", tags=["t"], done=True, score=0.5), thing("two"), numbered(1)])
    long = entry("long", "third", vector=random_vector(2), further=further_windows(2))
    await store.commit([entry("tea", "first", vector=random_vector(1)), entry("roses", "second", kind="a"), long])
    return store


async def test_a_sound_store_has_no_faults(filled: EmbeddedStore) -> None:
    assert [finding for finding in await filled.check(deep=True) if not finding.ok] == []


@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_a_planted_fault_is_found(filled: EmbeddedStore, raw: Raw, fault: str) -> None:
    name, statement = FAULTS[fault]
    raw(statement)
    found = [finding for finding in await filled.check(deep=True) if not finding.ok]
    assert name in [finding.name for finding in found]
    assert all("fault" in finding.detail for finding in found)


async def test_an_index_that_lost_a_row_is_found(filled: EmbeddedStore, raw: Raw) -> None:
    (statement,) = [sql for (sql,) in raw("SELECT sql FROM sqlite_schema WHERE name = 'things_id'")]
    broken = statement.replace("UNIQUE ", "") + " WHERE id <> 'one'"
    connection = apsw.Connection(str(filled._path))
    connection.execute("DROP INDEX things_id")
    connection.execute(broken)
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'things_id'", (statement,))
    connection.execute("PRAGMA writable_schema = RESET").fetchall()
    connection.close()
    (first, *_) = await filled.check(deep=True)
    assert (first.name, first.ok) == ("database", False)
    assert "things_id" in first.detail
