"""A partition that SQLite joined is the partition that its rows hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.storage.changes import Delete
from app.storage.index.record_codec import model_id
from app.storage.index.segment import Segment
from app.storage.sqlite import search_rows
from app.storage.sqlite.connections import connect
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.support.declared import AU, DIM, ENTRIES, T, ask, entry, random_vector

pytestmark = pytest.mark.anyio


async def test_what_the_database_joins_is_what_the_rows_hold(store: EmbeddedStore, tmp_path: Path) -> None:
    vectors = [
        None,
        random_vector(1),
        random_vector(2, dim=8),
        *(random_vector(number) for number in range(3, 2 * search_rows.BLOCK + 3)),
    ]
    texts = [f"tea {'roses ' * (number % 3)}{number}" for number in range(len(vectors))]
    made = [
        entry(text, vector=vector, tags=["x"] * (at % 2))
        for at, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]
    await store.commit([*made, entry("tea of another", user_id="another")])
    await store.commit([Delete(ENTRIES, T, made[at].doc["entry_id"]) for at in (1, 7)])
    connection = connect(tmp_path / FILE_NAME, 50)
    (state,) = search_rows.read(connection, ENTRIES, T, [AU])
    assert ENTRIES.searched is not None
    query = ask("tea roses 5", vector=random_vector(5))
    model = model_id(query.model, DIM)
    joined = search_rows.whole(connection, ENTRIES, state, Segment(ENTRIES.searched, DIM), model)
    rows = Segment(ENTRIES.searched, DIM)
    rows.apply(search_rows.changed_rows(connection, ENTRIES, state.number, 0, model, DIM))
    assert len(joined) == len(rows) == state.count == 2 * search_rows.BLOCK + 1
    one, other = joined.columns(query), rows.columns(query)
    names = ("rows", "cosine", "has_vector", "term_counts", "df", "length", "time", "content", "previous", "session")
    for name in names:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.count_nonzero(one.has_vector) == 2 * search_rows.BLOCK - 1
    empty = search_rows.whole(
        connection, ENTRIES, replace(state, number=state.number + 99), Segment(ENTRIES.searched, DIM), model
    )
    assert len(empty) == 0
    connection.close()
