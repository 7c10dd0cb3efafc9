"""A task as prompt text: what is chosen, and in which order it stands."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import prompt_text
from app.tasks.schemas import TASKS as COLLECTION
from app.tasks.schemas import Note, TaskRecord
from app.tasks.working_memory import (
    ALL_RESULTS,
    CUT_MARK,
    LONG_VALUE,
    NEXT_STEPS,
    READING_ORDER,
    describe,
    entries,
    select,
)
from tests.support.memories import Json

TEXTS = st.text(alphabet=st.sampled_from("abz .\n\t\u2028€汉😀é<>`0#-[]:"), min_size=1, max_size=200).map(
    lambda text: f"x{text}"
)
VALUES = st.none() | st.integers(-9, 9) | TEXTS | st.dictionaries(TEXTS, st.booleans() | TEXTS, max_size=3)
STEPS = st.fixed_dictionaries(
    {
        "step": st.integers(-9, 99),
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed", "skipped"]),
        "action": TEXTS,
        "params": st.dictionaries(TEXTS, VALUES, max_size=2),
        "result": VALUES,
    }
)
NOTES = st.fixed_dictionaries({"priority": st.floats(-1, 1), "content": TEXTS}).map(
    lambda note: {**note, "tokens": prompt_text.count(str(note["content"]))}
)
EVIDENCE = st.fixed_dictionaries({"source": TEXTS, "content": TEXTS}).map(
    lambda piece: {**piece, "tokens": prompt_text.count(f"{piece['source']}: {piece['content']}")}
)
TASKS = st.fixed_dictionaries(
    {
        "goal": TEXTS,
        "status": st.just("in_progress"),
        "plan": st.lists(STEPS, max_size=12),
        "context": st.dictionaries(TEXTS, VALUES, max_size=4),
        "open_questions": st.lists(TEXTS, max_size=3),
        "scratchpad": st.lists(NOTES, max_size=4),
        "evidence": st.lists(EVIDENCE, max_size=4),
        "max_tokens": st.just(8000),
    }
)


def a_task(*statuses: str, **fields: Any) -> TaskRecord:
    """A task whose step i is `part i`."""
    plan: list[Json] = [
        {"step": at, "action": f"part {at}", "params": {}, "status": status, "result": None}
        for at, status in enumerate(statuses)
    ]
    empty: Json = {"context": {}, "open_questions": [], "scratchpad": [], "evidence": []}
    return COLLECTION.as_record(
        {"goal": "g", "status": "in_progress", "plan": plan, "max_tokens": 8000, **empty, **fields}
    )


def in_hand(task: TaskRecord, budget: int) -> str:
    """The step in hand as it is shown in so many tokens, without the mark of a cut."""
    lines = select(entries(task), budget)
    first = lines[0] if lines and lines[0].entry.group == "in_hand" else None
    return "" if first is None else first.text.removesuffix("\n").removesuffix(CUT_MARK)


@settings(deadline=None, max_examples=100)
@given(TASKS, st.integers(0, 1200))
def test_the_text_is_never_over_its_budget(task: TaskRecord, budget: int) -> None:
    text, size = describe(task, budget)
    assert size == prompt_text.count(text) <= budget
    whole, total = describe(task, None)
    assert total == prompt_text.count(whole)
    if total <= budget:
        assert text == whole


@settings(deadline=None, max_examples=100)
@given(TASKS, st.integers(60, 400))
def test_goal_and_step_in_hand_are_in_sixty_tokens(task: TaskRecord, budget: int) -> None:
    first = {line.entry.group for line in select(entries(task), budget)}
    assert "goal" in first
    assert ("in_hand" in first) == any(one["status"] in ("pending", "in_progress") for one in task["plan"])


@settings(deadline=None, max_examples=100)
@given(TASKS, st.integers(0, 300), st.integers(0, 300))
def test_more_budget_never_shows_less_of_the_step_in_hand(task: TaskRecord, one: int, other: int) -> None:
    assert in_hand(task, max(one, other)).startswith(in_hand(task, min(one, other)).rstrip())


@settings(deadline=None, max_examples=100)
@given(TASKS, st.integers(0, 600))
def test_each_entry_is_one_line_of_ours_in_reading_order(task: TaskRecord, budget: int) -> None:
    lines = select(entries(task), budget)
    lines.sort(key=lambda line: READING_ORDER.index(line.entry.group))
    text, _ = describe(task, budget)
    starts = [one for one in text.splitlines() if not one.startswith("  ")]
    words = {"in_hand": "step", "failed": "step", "next": "step", "result": "step", "question": "open"}
    assert len(starts) == len(lines)
    for line, start in zip(lines, starts, strict=True):
        word = start.split(" ")[0].rstrip(":")
        assert word in (words.get(line.entry.group, line.entry.group), "skipped")


@settings(deadline=None, max_examples=60)
@given(TASKS)
def test_entries_are_told_apart_by_kind_and_index(task: TaskRecord) -> None:
    found = [(one.kind, one.index) for one in entries(task)]
    assert len(found) == len(set(found))
    plan, listed = task["plan"], (task["context"], task["open_questions"], task["scratchpad"], task["evidence"])
    steps = [one for one in plan if one["status"] != "skipped"]
    lines = any(one["status"] in ("completed", "skipped") for one in plan)
    assert len(found) == 1 + len(steps) + lines + sum(map(len, listed))


def groups(task: TaskRecord) -> list[tuple[str, int | None]]:
    return [(one.group, one.index) for one in entries(task)]


def test_steps_come_in_the_order_of_use() -> None:
    statuses = ["completed", "failed", "pending", "completed", "in_progress", *["pending"] * 7]
    assert groups(a_task(*statuses)) == [
        ("in_hand", 4),
        ("goal", None),
        ("completed", None),
        ("failed", 1),
        *(("next", at) for at in (5, 6, 7, 8, 9, 10, 11, 2)),
        ("result", 3),
        ("result", 0),
    ]


def test_without_a_step_in_progress_the_first_pending_one_is_in_hand() -> None:
    assert groups(a_task("completed", "pending", "pending"))[0] == ("in_hand", 1)
    assert groups(a_task("completed", "failed"))[0] == ("goal", None)


def test_several_steps_in_progress_are_all_in_hand() -> None:
    found = groups(a_task("in_progress", "pending", "in_progress"))
    assert found == [("in_hand", 0), ("goal", None), ("in_hand", 2), ("next", 1)]


def test_the_further_steps_come_after_context_and_notes() -> None:
    note = {"priority": 0.0, "content": "n", "tokens": 1}
    found = groups(a_task(*["pending"] * 40, context={"a": 1}, scratchpad=[note], evidence=[]))
    kinds = [group for group, _ in found]
    assert kinds.index("context") == 2 + NEXT_STEPS
    assert kinds[kinds.index("note") + 1 :] == ["next"] * (39 - NEXT_STEPS)


def test_notes_come_by_priority_then_newest_and_evidence_newest_first() -> None:
    notes = [{"priority": p, "content": c, "tokens": 1} for p, c in ((1.0, "a"), (2.0, "b"), (1.0, "c"))]
    evidence = [{"source": "s", "content": str(at), "tokens": 3} for at in range(3)]
    found = groups(a_task(scratchpad=notes, evidence=evidence))
    assert found[1:] == [("note", 1), ("note", 2), ("note", 0), ("evidence", 2), ("evidence", 1), ("evidence", 0)]


@pytest.mark.parametrize(
    ("statuses", "line"),
    [
        ("cccp", "completed: 3 of 4 steps: 0–2"),
        ("cpcsc", "completed: 3 of 5 steps: 0, 2, 4; skipped: 3"),
        ("ssp", "skipped: 0–1"),
        ("cp" * 10, "completed: 10 of 20 steps: …, 4, 6, 8, 10, 12, 14, 16, 18"),
    ],
)
def test_completed_steps_are_one_line(statuses: str, line: str) -> None:
    names = {"c": "completed", "p": "pending", "s": "skipped"}
    text, _ = describe(a_task(*(names[one] for one in statuses)), None)
    assert text.splitlines()[1] == line


def test_steps_have_the_numbers_that_the_caller_gave_them() -> None:
    task = a_task("completed", "completed", "skipped", "in_progress", "pending")
    for step, number in zip(task["plan"], (3, 4, 10, 20, -1), strict=True):
        step["step"] = number
    text, _ = describe(task, None)
    assert text.splitlines() == [
        "goal [in_progress]: g",
        "completed: 2 of 5 steps: 3–4; skipped: 10",
        "step 20 [in_progress]: part 3",
        "step -1 [pending]: part 4",
        "step 4 [completed]: part 1",
        "step 3 [completed]: part 0",
    ]
    assert [one.index for one in entries(task) if one.kind == "step"] == [3, 4, 1, 0], "the place tells them apart"


def test_a_long_plan_keeps_neither_context_nor_notes_out() -> None:
    task = a_task(*["completed"] * 100, "in_progress", *["pending"] * 100, context={"focus": "speed"})
    for step in task["plan"]:
        step["action"] = f"{step['action']} of the work, told in rather many words " * 3
        step["result"] = "and so it went " * 50 if step["status"] == "completed" else None
    note: Note = {"id": "note_1", "priority": 1.0, "content": "mind the gap", "tokens": 4}
    task["scratchpad"] = [note]
    for budget in (250, 400, 1000):
        text, _ = describe(task, budget)
        assert "context focus: speed\n" in text
        assert "note (1): mind the gap\n" in text


@pytest.mark.parametrize("budget", [60, 100, 300])
def test_a_step_in_hand_that_is_too_long_is_cut_with_a_mark(budget: int) -> None:
    task = a_task("in_progress")
    task["plan"][0]["action"] = "carry\n<recalld_context> one more load " * 400
    text, size = describe(task, budget)
    goal, step, *more = text.splitlines()
    assert (goal, step) == ("goal [in_progress]: g", "step 0 [in_progress]: carry")
    assert all(one.startswith("  &lt;recalld_context> one more load") for one in more[:-1])
    assert more[-1].endswith(CUT_MARK)
    assert budget - 8 <= size <= budget


def test_a_long_goal_leaves_the_step_in_hand_three_quarters() -> None:
    task = a_task("in_progress", goal="reach the end of all things " * 500)
    task["plan"][0]["action"] = "walk on and on " * 30
    text, _ = describe(task, 200)
    assert f"step 0 [in_progress]: {'walk on and on ' * 30}".strip() + "\n" in text
    assert text.splitlines()[0].endswith(CUT_MARK)


def test_results_take_a_limited_part_of_a_text_without_a_budget() -> None:
    task = a_task(*["completed"] * 10)
    for step in task["plan"]:
        step["result"] = "a result of many words " * 2000
    text, size = describe(task, None)
    assert size < ALL_RESULTS + 300
    assert text.count(CUT_MARK) == 2
    assert "step 9 [completed]: part 9 → a result" in text
    assert "step 0 [completed]: part 0 → …\n" in text


def test_a_long_value_of_the_context_is_cut() -> None:
    text, size = describe(a_task(context={"log": "line after line " * 5000, "focus": "speed"}), None)
    assert size < LONG_VALUE + 40
    assert text.count(CUT_MARK) == 1
    assert "context focus: speed\n" in text


def test_a_long_note_is_cut_so_that_evidence_has_room_too() -> None:
    words = "one small word after another " * 300
    long = {"content": words, "tokens": prompt_text.count(words)}
    task = a_task("in_progress", scratchpad=[{"priority": 1.0, **long}], evidence=[{"source": "web", **long}])
    for budget in (160, 400, 2000):
        text, size = describe(task, budget)
        assert text.count(CUT_MARK) == 2
        assert "\nnote (1): one small word" in text
        assert "\nevidence (web): one small word" in text
        assert budget // 4 < size <= budget
