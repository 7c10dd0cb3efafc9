"""Long texts: a vector for each window, the best of which counts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.index.record_codec import (
    Block,
    Row,
    holds_windows,
    is_long,
    join_windows,
    model_id,
    pack,
    quantise,
    split_windows,
)
from app.storage.index.segment import Segment
from app.storage.search import Columns, Floats
from tests.support.declared import DIM, MODEL, SEARCHED, ask, entry_doc, random_vector, search_entry

OTHER_MODEL = "model-b"


def windows_of(seed: int, count: int, dim: int = DIM) -> Floats:
    return np.stack([random_vector(100 * seed + at, dim) for at in range(count)])


def row(number: int, windows: Floats | None, rev: int = 1, model: str = MODEL) -> Row:
    if windows is None:
        entry = search_entry("tea")
    else:
        entry = search_entry("tea", windows[0], model, windows[1:] if len(windows) > 1 else None)
    return Row(number, pack(SEARCHED, entry_doc("tea"), entry, rev))


def made(*rows: Row) -> Segment:
    segment = Segment(SEARCHED, DIM)
    segment.apply(rows)
    return segment


def filled(*rows: Row) -> Segment:
    """As a large pair is read."""
    packed = [row.packed for row in rows if row.packed is not None]
    vectors, terms, facets = ([getattr(one, part) or b"" for one in packed] for part in ("vector", "terms", "facets"))
    lengths = [[len(part) for part in parts] for parts in (vectors, terms, facets)]
    heads = b"".join(one.head for one in packed)
    segment = Segment(SEARCHED, DIM)
    segment.fill(
        [Block([row.id for row in rows], heads, *(b"".join(each) for each in (vectors, terms, facets)), *lengths)],
        len(rows),
    )
    return segment


def brute(windows: Floats | None, query: Floats) -> float:
    """The largest cosine of the int8 vectors, by plain arithmetic."""
    if windows is None:
        return 0.0
    whole = [quantise(window).astype(np.float64) for window in windows]
    asked = quantise(query).astype(np.float64)
    return float(max(one @ asked / np.linalg.norm(one) / np.linalg.norm(asked) for one in whole))


counts = st.lists(st.none() | st.integers(1, 8), min_size=1, max_size=12)


@settings(deadline=None)
@given(counts, st.integers(0, 50), st.data())
def test_the_best_window_is_the_largest_of_all_cosines(given: list[int | None], seed: int, data: Any) -> None:
    each = [None if count is None else windows_of(seed + at, count) for at, count in enumerate(given)]
    rows = [row(at, windows) for at, windows in enumerate(each)]
    cut = data.draw(st.integers(0, len(rows)))
    one_by_one = made(*rows[:cut])
    one_by_one.apply(rows[cut:])
    query = random_vector(9_000 + seed)
    for segment in (one_by_one, filled(*rows)):
        found = segment.columns(ask(vector=query))
        assert found.cosine.tolist() == pytest.approx([brute(windows, query) for windows in each], abs=1e-5)
        first = segment.columns(replace(ask(vector=query), first_windows=True))
        alone = [None if windows is None else windows[:1] for windows in each]
        assert first.cosine.tolist() == pytest.approx([brute(windows, query) for windows in alone], abs=1e-5)
        assert found.has_vector.tolist() == [windows is not None for windows in each]


@given(st.integers(0, 100))
@settings(deadline=None)
def test_short_texts_have_the_very_columns_that_they_had(seed: int) -> None:
    """Whether a long one stands among them or not."""
    short = [row(at, windows_of(seed + at, 1)) for at in range(5)]
    plain = made(*short).columns(ask("tea", vector=random_vector(seed)))
    mixed = made(*short, row(9, windows_of(seed + 9, 3))).columns(ask("tea", vector=random_vector(seed)))
    for name in ("rows", "cosine", "has_vector", "time", "flags", "length", "content"):
        assert getattr(plain, name).tobytes() == getattr(mixed, name)[:5].tobytes(), name


def test_a_record_of_one_window_is_as_long_as_its_vector_and_one_of_several_is_marked() -> None:
    one, several = row(1, windows_of(1, 1)).packed, row(1, windows_of(1, 3)).packed
    assert one is not None
    assert several is not None
    assert (len(one.vector or b""), is_long(SEARCHED, one.head)) == (DIM, False)
    assert (len(several.vector or b""), is_long(SEARCHED, several.head)) == (3 * DIM + 1, True)
    first, further = split_windows(several.vector or b"", long=True)
    assert first == one.vector
    assert join_windows([first, further[:DIM], further[DIM:]]) == several.vector


@pytest.mark.parametrize(("length", "last", "fits"), [(49, 3, True), (48, 3, False), (33, 2, True), (17, 1, False)])
def test_a_vector_that_lost_a_byte_holds_no_windows(length: int, last: int, fits: bool) -> None:
    assert holds_windows(length, last) is fits


def cosines(segment: Segment, seed: int, model: str = MODEL) -> Columns:
    return segment.columns(ask(vector=random_vector(seed), model=model))


def test_a_text_that_is_rewritten_has_the_windows_of_the_new_one() -> None:
    segment = made(row(1, windows_of(1, 4)), row(2, windows_of(2, 2)))
    segment.apply([row(1, windows_of(3, 2), rev=2), Row(2, None), row(3, windows_of(4, 8))])
    query = random_vector(5)
    found = segment.columns(ask(vector=query))
    expected = {1: brute(windows_of(3, 2), query), 3: brute(windows_of(4, 8), query)}
    assert dict(zip(found.rows.tolist(), found.cosine.tolist(), strict=True)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("dim", [DIM, 2 * DIM, 3 * DIM + 1])
def test_windows_of_another_model_are_never_compared(dim: int) -> None:
    """Even where its windows, put together, are as long as some of ours."""
    segment = made(
        row(1, windows_of(1, 3)),
        row(2, windows_of(2, 1, dim), model=OTHER_MODEL),
        row(3, windows_of(3, 3, dim), model=OTHER_MODEL),
    )
    found = cosines(segment, 7)
    assert found.has_vector.tolist() == [True, False, False]
    assert found.cosine[0] == pytest.approx(brute(windows_of(1, 3), random_vector(7)), abs=1e-5)
    assert not found.cosine[1:].any()
    if dim == DIM:
        assert cosines(segment, 7, OTHER_MODEL).has_vector.tolist() == [False, True, True]
    else:
        assert model_id(OTHER_MODEL, dim) != model_id(OTHER_MODEL, DIM)


def test_a_changed_record_keeps_its_windows() -> None:
    windows = windows_of(1, 3)
    segment = made(row(1, windows))
    before = cosines(segment, 3).cosine.tolist()
    old = row(1, windows).packed
    assert old is not None
    pinned = pack(SEARCHED, entry_doc("tea", pinned=True), search_entry("tea", windows[0], MODEL, windows[1:]), 1)
    segment.apply([Row(1, pinned)])
    found = cosines(segment, 3)
    assert found.pinned.tolist() == [True]
    assert found.cosine.tolist() == before


def test_windows_count_to_what_a_segment_takes() -> None:
    short, long = made(row(1, windows_of(1, 1))), made(row(1, windows_of(1, 8)))
    assert long.nbytes >= short.nbytes + 7 * DIM


def test_further_windows_must_be_of_unit_length() -> None:
    with pytest.raises(ValueError, match="further windows"):
        search_entry("tea", random_vector(1), MODEL, 2 * windows_of(1, 2))
