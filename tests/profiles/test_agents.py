"""Which lessons answer a query."""

from typing import Any

import pytest

from app.memories.agents import AGENTS, Experience, Lesson
from app.profiles.agents import EMPTY_EXPERIENCE, likely_helps, ranked_lessons


def experience(knowledge: str = "", **lists: list[tuple[str, int]]) -> Experience:
    """Lessons as (text, how often seen)."""
    lessons = {
        name: [{"text": text, "seen": seen, "learned_at": "2026-05-01"} for text, seen in pairs]
        for name, pairs in lists.items()
    }
    whole = {**EMPTY_EXPERIENCE, "procedural_knowledge": knowledge, **lessons}
    return AGENTS.as_record({"experience": whole})["experience"]


def texts(query: str, *args: Any, **lists: Any) -> list[str]:
    return [lesson.text for lesson in ranked_lessons(query, experience(*args, **lists))]


def test_words_decide_and_how_often_it_was_seen_breaks_ties() -> None:
    found = texts(
        "refund a parcel",
        heuristics=[("Be brief.", 1), ("Ask twice.", 9)],
        tool_patterns=[("The parcel tool refunds.", 1), ("Check the parcel.", 2)],
    )
    assert found == ["The parcel tool refunds.", "Check the parcel.", "Ask twice.", "Be brief."]


def test_of_equal_lessons_the_newest_comes_first() -> None:
    dated: list[Lesson] = [
        {"text": "Be brief.", "learned_at": "2026-04-30", "seen": 9},
        {"text": "Ask twice.", "learned_at": "2026-05-01", "seen": 9},
        {"text": "Be kind.", "learned_at": "2026-05-02", "seen": 1},
    ]
    found = ranked_lessons("refund", {**experience("Say hello."), "heuristics": dated})
    assert [one.text for one in found] == ["Say hello.", "Be kind.", "Ask twice.", "Be brief."]


def test_a_rare_word_counts_more_than_one_that_most_lessons_hold() -> None:
    lessons = [(f"User rule {number}", 9) for number in range(8)] + [("Insurance first", 1)]
    assert texts("user insurance", heuristics=lessons)[0] == "Insurance first"


def test_scores_lie_between_the_least_and_the_most() -> None:
    found = ranked_lessons("refund the parcel", experience(heuristics=[("Refund the parcel", 1), ("Be brief", 1)]))
    assert [lesson.score for lesson in found] == [pytest.approx(likely_helps(1)), pytest.approx(likely_helps(0))]
    assert ranked_lessons("...", experience(heuristics=[("Be brief", 1)]))[0].score == likely_helps(0)


def test_knowledge_competes_paragraph_by_paragraph() -> None:
    found = ranked_lessons("returns", experience("Say hello.\n\n  Returns take\n30 days.  \n \nSay goodbye."))
    assert [(one.name, one.index, one.text) for one in found] == [
        ("procedural_knowledge", 1, "Returns take\n30 days."),
        ("procedural_knowledge", 0, "Say hello."),
        ("procedural_knowledge", 2, "Say goodbye."),
    ]


def test_any_script_is_read() -> None:
    found = texts("退款怎么办", heuristics=[("先道歉", 5), ("退款前检查包裹", 1)])
    assert found[0] == "退款前检查包裹"


def test_without_experience_there_is_nothing() -> None:
    assert ranked_lessons("refund", experience()) == []
