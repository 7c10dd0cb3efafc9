"""The pure rules of a task's state."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import prompt_text
from app.core.schemas import merge_patch
from app.tasks import service
from app.tasks.schemas import Evidence, Note, TaskStatus
from tests.support.memories import Json

KEYS = st.sampled_from(["a", "b", "a.b", "$set", "", "ключ", "__proto__", "a/b", "0"])
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)

ALLOWED = {
    ("pending", "in_progress"),
    ("pending", "completed"),
    ("pending", "failed"),
    ("pending", "cancelled"),
    ("in_progress", "completed"),
    ("in_progress", "failed"),
    ("in_progress", "cancelled"),
    ("failed", "in_progress"),
}


def oracle(target: Any, patch: Any) -> Any:
    """RFC 7396 §2, word by word."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        target = dict(target)
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = oracle(target.get(name), value)
        return target
    return patch


@given(VALUES, VALUES)
def test_a_merge_patch_does_what_the_rfc_says(target: Any, patch: Any) -> None:
    assert repr(merge_patch(target, patch)) == repr(oracle(target, patch))


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_passes_the_examples_of_the_rfc(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_changes_neither_of_its_arguments_and_is_the_same_twice(target: Json, patch: Json) -> None:
    before = repr((target, patch))
    once = merge_patch(target, patch)
    assert repr(merge_patch(once, patch)) == repr(once)
    assert repr((target, patch)) == before
    assert {key: once[key] for key in target if key not in patch} == {k: v for k, v in target.items() if k not in patch}


NOTES = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([-1.0, 0.0, 0.5, 2.0])).map(
        lambda one: {"tokens": one[0], "priority": one[1]}
    ),
    max_size=12,
).map(lambda notes: [{**note, "id": str(at)} for at, note in enumerate(notes)])


@given(NOTES, st.integers(1, 60))
def test_the_scratchpad_is_never_over_its_bound_and_what_goes_is_the_least(notes: list[Note], limit: int) -> None:
    kept, evicted = service.bound(notes, limit)
    assert sum(one["tokens"] for one in kept) <= limit
    assert sorted([*kept, *evicted], key=lambda one: int(one["id"])) == notes
    assert [one for one in notes if one in kept] == kept  # in their order

    def rank(one: Note) -> tuple[bool, float, int]:
        return one["tokens"] <= limit, one["priority"], int(one["id"])

    assert evicted == sorted(notes, key=rank)[: len(evicted)]
    if evicted:  # none went that could have stayed
        assert sum(one["tokens"] for one in kept) + evicted[-1]["tokens"] > limit
    assert service.bound(kept, limit) == (kept, [])


@pytest.mark.parametrize("old", ["pending", "in_progress", "completed", "failed", "cancelled"])
@pytest.mark.parametrize("new", ["pending", "in_progress", "completed", "failed", "cancelled"])
def test_only_the_moves_of_the_table_are_allowed(old: TaskStatus, new: TaskStatus) -> None:
    assert service.may_move(old, new) == (old == new or (old, new) in ALLOWED)


EVIDENCE = st.lists(st.integers(0, 30), max_size=12).map(
    lambda sizes: [{"source": "s", "content": str(at), "tokens": size} for at, size in enumerate(sizes)]
)


@given(EVIDENCE, st.integers(1, 60))
def test_evidence_is_never_over_its_bound_and_the_oldest_goes(evidence: list[Evidence], limit: int) -> None:
    kept, evicted = service.bound_evidence(evidence, limit)
    assert sum(one["tokens"] for one in kept) <= limit
    could_fit = [one for one in evidence if one["tokens"] <= limit]
    assert kept == could_fit[len(could_fit) - len(kept) :]  # the newest, in their order
    assert sorted([*kept, *evicted], key=lambda one: int(one["content"])) == evidence
    older = could_fit[: len(could_fit) - len(kept)]
    if older:  # none went that could have stayed
        assert sum(one["tokens"] for one in kept) + older[-1]["tokens"] > limit
    assert service.bound_evidence(kept, limit) == (kept, [])


def test_new_evidence_is_counted() -> None:
    old = [service.new_evidence("paper", "one two three"), service.new_evidence("web", "four five six")]
    size = prompt_text.count("web: four five six")
    kept, evicted = service.bound_evidence(old, size)
    assert kept == [{**old[1], "tokens": size}]
    assert evicted == [{**old[0], "tokens": prompt_text.count("paper: one two three")}]


def test_a_task_holds_a_limited_number_of_pieces_however_small() -> None:
    pieces: list[Evidence] = [
        {"source": "s", "content": str(at), "tokens": 1} for at in range(service.MAX_EVIDENCE + 3)
    ]
    kept, evicted = service.bound_evidence(pieces, 1_000_000)
    assert (kept, evicted) == (pieces[3:], pieces[:3])
