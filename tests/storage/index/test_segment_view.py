from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.index.segment import ENTRY_BITS, MIN_TAIL, Postings

keys = st.sampled_from([0, 1, 2, 7, 2**31, 2**32 - 1])
appends = st.lists(st.lists(st.tuples(keys, st.integers(1, 255)), max_size=6), max_size=10)


def held(postings: Postings, key: int) -> list[tuple[int, int]]:
    rows, counts = postings.lookup(key)
    return sorted(zip(rows.tolist(), counts.tolist(), strict=True))


def fill(postings: Postings, given_rows: list[list[tuple[int, int]]]) -> dict[int, list[tuple[int, int]]]:
    oracle = defaultdict(list)
    for row, entries in enumerate(given_rows):
        for key, count in entries:
            oracle[key].append((row, count))
        found = np.array([key for key, _ in entries], np.uint32)
        counts = np.array([count for _, count in entries], np.uint8)
        postings.append(found, np.full(len(entries), row, np.int32), counts)
    return oracle


@settings(deadline=None)
@given(appends, st.lists(keys))
def test_a_lookup_finds_what_a_dictionary_would(given_rows: list[list[tuple[int, int]]], asked: list[int]) -> None:
    postings = Postings(np.dtype("<u4"))
    oracle = fill(postings, given_rows)
    for key in [*asked, *oracle]:
        assert held(postings, key) == sorted(oracle.get(key, []))


@settings(deadline=None)
@given(st.lists(st.dictionaries(keys, st.integers(1, 255)), max_size=10), st.lists(keys, max_size=5))
def test_a_table_of_several_keys_holds_their_counts(given_rows: list[dict[int, int]], asked: list[int]) -> None:
    postings = Postings(np.dtype("<u4"))
    fill(postings, [list(entries.items()) for entries in given_rows])
    table, found = postings.spread(np.array(asked, np.uint32), len(given_rows))
    assert table.tolist() == [[entries.get(key, 0) for entries in given_rows] for key in asked]
    assert found == [sum(key in entries for entries in given_rows) for key in asked]


def test_merging_the_tail_changes_no_answer() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 50, (3 * MIN_TAIL, 2)).tolist()
    given_rows = [[(int(key), 1 + int(count))] for key, count in drawn]
    postings = Postings(np.dtype("<u4"))
    oracle = fill(postings, given_rows)
    assert all(held(postings, key) == sorted(oracle[key]) for key in range(50))
    assert postings.nbytes >= 9 * len(drawn)


def test_rows_beyond_what_is_packed_with_their_keys_are_found_too() -> None:
    rng = np.random.default_rng(2)
    keys, rows = rng.integers(0, 9, 500).astype(np.uint32), np.arange(500, dtype=np.int32) + (1 << ENTRY_BITS) - 250
    counts = rng.integers(1, 256, 500).astype(np.uint8)
    for far in (rows, rows - 250):  # the last ones fit, all of them
        postings = Postings(np.dtype("<u4"))
        postings.append(keys, far, counts)
        for key in range(9):
            at = keys == key
            assert held(postings, key) == list(zip(far[at].tolist(), counts[at].tolist(), strict=True))


def test_an_unknown_key_and_an_empty_append_are_nothing() -> None:
    postings = Postings(np.dtype("<u8"))
    postings.append(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.uint8))
    assert held(postings, 2**64 - 1) == []
