"""The benchmarks' memories are what the service would have stored."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np

from app.memories.schemas import MEMORIES
from app.storage.index.record_codec import head_dtype
from benchmarks.data import BIG, DIM, TURN, Shape, made


def test_each_user_has_as_many_memories_and_the_times_mix_the_users() -> None:
    turns = Shape(2_000, 20, 500).turns()
    assert Counter(number for number, _, _ in turns) == {**dict.fromkeys(range(20), 4), BIG: 20}
    assert len(set(turns)) == len(turns)
    assert len({number for number, _, _ in turns[:20]}) > 5
    assert Counter(count for _, _, count in Shape(120, 2).turns()) == {25: 4, 10: 2}, "60 memories of each"


def test_memories_are_whole_and_can_be_found() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    records = made(list(enumerate([(3, 1, 25), (3, 2, 25)])), start, timedelta(hours=1))
    assert [record.doc["memory_type"] for record in records] == ["fact"] * TURN + ["message"] * TURN
    assert len({record.doc["memory_id"] for record in records}) == 2 * TURN
    assert {record.doc["source"]["session_id"] for record in records} == {None, "s-3-2"}
    created = [record.doc["created_at"] for record in records]
    assert created == sorted(created)
    assert MEMORIES.searched is not None
    for record in records:
        assert record.packed is not None
        assert len(record.packed.head) == head_dtype(len(MEMORIES.searched.ranges)).itemsize
        assert len(record.packed.vector or b"") == DIM
    vectors = np.array([np.frombuffer(record.packed.vector or b"", np.int8) for record in records if record.packed])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    assert 0.15 < cosines[0, 1] < 0.45, "the same topic"
    assert -0.15 < cosines[0, 5] < 0.3, "another"
