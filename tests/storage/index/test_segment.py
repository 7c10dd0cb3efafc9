from typing import Any

import numpy as np
import pytest

from app.core.clock import to_ms
from app.storage.index.record_codec import Row, pack
from app.storage.index.segment import MIN_DEAD, Segment
from app.storage.schema import EVERYTHING, Absent, Eq, Filter, Range
from app.storage.search import Columns, concatenate
from tests.support.declared import DIM, SEARCHED, ask, at, entry_doc, random_vector, search_entry


def row(number: int, text: str = "tea", rev: int = 1, **fields: Any) -> Row:
    return Row(number, pack(SEARCHED, entry_doc(text, **fields), search_entry(text, random_vector(number)), rev))


def turn(number: int, ordinal: int, session: str = "s", rev: int = 1) -> Row:
    return row(number, rev=rev, source={"session_id": session, "message_seq": ordinal})


def made(*rows: Row) -> Segment:
    segment = Segment(SEARCHED, DIM)
    segment.apply(rows)
    return segment


def columns(segment: Segment, where: Filter = EVERYTHING, text: str = "tea") -> Columns:
    return segment.columns(ask(text, where=where, vector=random_vector(0)))


def previous(segment: Segment) -> dict[int, int | None]:
    found = columns(segment)
    ids = found.rows.tolist()
    return {ids[i]: ids[at] if at >= 0 else None for i, at in enumerate(found.previous.tolist())}


def test_an_empty_segment_answers() -> None:
    found = columns(made())
    assert (len(found.rows), found.term_counts.shape, found.count, found.mean_length) == (0, (1, 0), 0, 0)


def test_applying_twice_changes_nothing() -> None:
    rows = [row(1), row(2, "coffee"), Row(3, None)]
    segment = made(*rows)
    before = columns(segment)
    segment.apply(rows)
    assert all(
        np.array_equal(getattr(before, name), getattr(columns(segment), name)) for name in ("rows", "term_counts", "df")
    )
    assert len(segment) == 2


def test_filling_at_once_is_applying_one_by_one() -> None:
    rows = [turn(number, number * 7 % 12, session="st"[number % 2]) for number in range(20)] + [
        row(30),
        row(31, "mate"),
    ]
    filled = made(*rows)
    slowly = Segment(SEARCHED, DIM)
    for one in rows:
        slowly.apply([one])
    assert previous(filled) == previous(slowly)
    changed = [turn(40, 3, session="s"), turn(5, 50, session="t", rev=2), Row(31, None)]
    for segment in (filled, slowly):
        segment.apply(changed)
    assert previous(filled) == previous(slowly)
    mine, theirs = columns(filled), columns(slowly)
    for name in ("rows", "term_counts", "df", "cosine", "has_vector", "length", "time", "content"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    together = [found.session[:, np.newaxis] == found.session for found in (mine, theirs)]
    assert np.array_equal(*together)


def test_the_dead_are_left_out_of_every_column() -> None:
    segment = made(*(row(i, "tea roses" if i % 2 else "tea") for i in range(6)))
    segment.apply([Row(1, None), Row(4, None)])
    found = columns(segment, text="roses")
    assert found.rows.tolist() == [0, 2, 3, 5]
    assert found.term_counts.tolist() == [[0, 0, 1, 1]]
    assert (found.df.tolist(), found.count, found.mean_length) == ([2], 4, 1.5)
    assert all(len(getattr(found, name)) == 4 for name in ("cosine", "matched", "previous", "time", "speaker"))


def test_a_changed_record_is_overwritten_where_it_stands() -> None:
    segment = made(row(1), row(2))
    segment.apply([row(1, base_importance=0.125)])
    assert columns(segment).rows.tolist() == [1, 2]
    assert columns(segment).base_importance.tolist() == [0.125, 0.5]


def test_an_access_keeps_what_was_derived_from_everything_else() -> None:
    segment = made(*(row(i) for i in range(4)))
    segment.apply([Row(0, None)])
    before = columns(segment)
    segment.apply([row(2, base_importance=0.125, anchored_at=at(9)), row(3, pinned=True)])
    after = columns(segment)
    assert after.memo is before.memo
    assert after.length is before.length
    assert (after.base_importance.tolist(), after.pinned.tolist()) == ([0.5, 0.125, 0.5], [False, False, True])
    assert after.anchor.tolist() == [before.anchor[0], to_ms(at(9)), before.anchor[2]]
    assert (before.base_importance.tolist(), before.pinned.tolist()) == ([0.5] * 3, [False] * 3)
    segment.apply([row(2, weight=3)])
    assert columns(segment).memo is not after.memo
    assert columns(segment, Eq("kind", "x")).matched.tolist() == [False] * 3
    assert columns(segment, Range("weight", ge=3)).matched.tolist() == [False, True, False]


def test_a_changed_text_makes_a_new_entry() -> None:
    segment = made(row(1), row(2))
    segment.apply([row(1, "coffee", rev=2)])
    found = columns(segment)
    assert sorted(zip(found.rows.tolist(), found.term_counts[0].tolist(), strict=True)) == [(1, 0), (2, 1)]


def test_a_conversation_is_linked_by_ordinal_in_whatever_order_it_comes() -> None:
    segment = made(turn(1, 1), turn(2, 3))
    segment.apply([turn(3, 2)])
    segment.apply([turn(4, 4), turn(5, 1, "other")])
    assert previous(segment) == {1: None, 3: 1, 2: 3, 4: 2, 5: None}


def test_neighbours_close_the_gap_of_the_dead() -> None:
    segment = made(*(turn(i, i) for i in range(1, 5)))
    segment.apply([Row(2, None)])
    segment.apply([Row(4, None)])
    segment.apply([turn(6, 6)])
    assert previous(segment) == {1: None, 3: 1, 6: 3}


def test_a_segment_wears_out_when_a_quarter_is_dead() -> None:
    segment = made(*(row(i) for i in range(100)))
    segment.apply([Row(i, None) for i in range(MIN_DEAD)])
    assert not segment.worn
    segment.apply([Row(MIN_DEAD, None)])
    assert segment.worn


def test_growing_keeps_what_was_there() -> None:
    segment = made(row(0, "coffee"))
    for i in range(1, 40):
        segment.apply([row(i, "tea" if i % 3 else "coffee")])
    assert columns(segment).term_counts[0].tolist() == [1.0 if i % 3 else 0.0 for i in range(40)]
    assert segment.nbytes > 40 * (DIM + 8)


@pytest.mark.parametrize("where", [Eq("weight", 1), Absent("kind"), Range("kind", ge="a"), Eq("undeclared", "x")])
def test_a_filter_by_what_is_not_kept_is_an_error(where: Filter) -> None:
    with pytest.raises((KeyError, ValueError)):
        columns(made(row(1)), where)


def test_pairs_are_joined_without_mixing_sessions() -> None:
    one, two = columns(made(turn(1, 1), turn(2, 2))), columns(made(turn(3, 1), turn(4, 2), row(5)))
    both = concatenate([one, two])
    assert both.previous.tolist() == [-1, 0, -1, 2, -1]
    assert both.following.tolist() == [1, -1, 3, -1, -1]
    assert both.session.tolist()[0] == both.session.tolist()[1] != both.session.tolist()[2]
    assert (both.count, both.df.tolist(), both.session.tolist()[4]) == (5, [5], -1)
