"""Texts that repeat what a finding doubts are marked, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from app.context.candidates import Candidate, Doubt, Heading
from app.context.marking import doubt_mark, mark_doubts

DOUBT = Doubt("m1", "My lesson is on 7 March in the hall.", "It is on 19 March.", "2026-02-01T00:00:00Z", later=True)
MARK = "(uncertain; later, 2026-02-01: It is on 19 March.)"


def marked(text: str, doubt: Doubt = DOUBT, **fields: object) -> str:
    item = Candidate("other", "message", text, **fields)  # type: ignore[arg-type]
    (found,) = mark_doubts([item], [doubt])
    return found.text


def test_a_repetition_is_marked_and_a_shared_word_is_not() -> None:
    assert marked("They said: my lesson is on 7 March in the hall!").endswith(MARK)
    assert marked("My lesson was fun.") == "My lesson was fun."
    assert marked("7 March is a Saturday.") == "7 March is a Saturday."


def test_the_statement_itself_is_marked_by_its_id() -> None:
    (found,) = mark_doubts([Candidate("m1", "message", "My lesson …")], [DOUBT])
    assert found.text == f"My lesson … {MARK}"


def test_an_answer_that_echoes_its_number_is_marked() -> None:
    doubt = Doubt("m1", DOUBT.text, DOUBT.other, DOUBT.other_at, later=True, session="s", seq=4)
    heading = Heading("s:2026-01-01", "2026-01-01", conversation=True)
    assert marked("Added: 7 March.", doubt, heading=heading, place=("2026-01-01", 5)).endswith(MARK)
    assert marked("Added: 7 March.", doubt, heading=heading, place=("2026-01-01", 9)) == "Added: 7 March."
    assert marked("Added: Friday.", doubt, heading=heading, place=("2026-01-01", 5)) == "Added: Friday."


def test_marks_name_what_was_said_otherwise() -> None:
    assert doubt_mark(Doubt("m", "a", "", "2026-01-01", later=False)) == "(uncertain: its time is past)"
    assert doubt_mark(Doubt("m", "a", "b\nc", "2026-01-01", later=False)) == "(uncertain; earlier, 2026-01-01: b c)"
    settled = Doubt("m", "a", "x" * 200, "2026-01-01", later=True, settled=True)
    assert doubt_mark(settled) == f"(earlier; since 2026-01-01: {'x' * 80}…)"


@given(st.lists(st.text("ab .7", max_size=30), max_size=5), st.text("ab .7", max_size=30))
def test_a_mark_stands_behind_the_text_and_marks_nothing_twice(texts: list[str], doubted: str) -> None:
    items = [Candidate(str(at), "message", text) for at, text in enumerate(texts)]
    doubt = Doubt("x", doubted, "b", "2026-01-01", later=True)
    for before, after in zip(items, mark_doubts(items, [doubt, doubt]), strict=True):
        assert after.text in (before.text, f"{before.text} {doubt_mark(doubt)}")
