"""How profiles and experience grow: the pure rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.facts.profile import EMPTY_PROFILE, UserProfile
from app.memories.agents import Experience
from app.memories.schemas import Source
from app.profiles import agents, users
from app.storage.text import normalise_content
from tests.support.memories import Json

KEYS = st.sampled_from(["a", "b", "a.b", "$set", "", "ключ"])
WORDS = st.sampled_from(["tea", "Tea", " tea  ", "ＴＥＡ", "coffee", "long walks", "long  walks", "ключ", "x"])
SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
LINES = st.lists(WORDS, max_size=6)
LINE = st.none() | WORDS

PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "name": LINE,
        "age": st.none() | st.integers(0, 150),
        "home": LINE,
        "occupation": LINE,
        "interests": LINES,
        "conversation_preferences": LINES,
        "preferences": OBJECTS,
        "custom": OBJECTS,
    },
)
SOURCE: Source = {"origin": "api"}
NOW = "2026-06-01T00:00:00.000Z"


def grown(patches: list[Json]) -> UserProfile:
    profile = EMPTY_PROFILE.copy()
    for patch in patches:
        profile = users.merge_profile(profile, patch)
    return profile


def forms(texts: list[str]) -> list[str]:
    return [normalise_content(text) for text in texts]


def leaves(value: Json, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            found |= leaves(inner, (*path, key))
        else:
            found[(*path, key)] = repr(inner)
    return found


def named(patch: Any, path: tuple[str, ...]) -> bool:
    """Whether the patch says anything of this place, or replaces one around it."""
    for key in path:
        if not isinstance(patch, dict):
            return True
        if key not in patch:
            return False
        patch = patch[key]
    return True


@given(st.lists(PATCHES, max_size=4), PATCHES)
def test_a_patch_never_drops_what_it_does_not_name(patches: list[Json], patch: Json) -> None:
    old = grown(patches)
    before = repr((old, patch))
    new: Json = {**users.merge_profile(old, patch)}
    assert repr((old, patch)) == before
    assert new.keys() == old.keys()
    for name, value in old.items():
        if name not in patch:
            assert repr(new[name]) == repr(value)
        elif isinstance(value, list):
            assert set(forms(value)) <= set(forms(new[name]))
        elif isinstance(value, dict):
            there = leaves(new[name])
            for path, leaf in leaves(value).items():
                assert named(patch[name], path) or there[path] == leaf, path


@given(st.lists(PATCHES, max_size=4), PATCHES)
def test_what_a_patch_names_is_there_afterwards(patches: list[Json], patch: Json) -> None:
    new: Json = {**grown([*patches, patch])}
    for name, value in patch.items():
        if isinstance(value, list):
            found = forms(new[name])
            assert set(forms(value)) <= set(found)
            assert len(found) == len(set(found))
        elif isinstance(value, dict):
            for key, inner in value.items():
                assert (key in new[name]) == (inner is not None)
                if not isinstance(inner, dict) and inner is not None:
                    assert repr(new[name][key]) == repr(inner)
        else:
            assert new[name] == value


@given(st.lists(PATCHES, max_size=3), PATCHES)
def test_the_same_patch_twice_is_the_same_as_once(patches: list[Json], patch: Json) -> None:
    once = grown([*patches, patch])
    assert repr(users.merge_profile(once, patch)) == repr(once)


def test_a_text_is_kept_as_it_was_first_written() -> None:
    assert users.add_to(["Tea", "walks"], ["tea", "ＷＡＬＫＳ", "music"]) == ["Tea", "walks", "music"]


def empty() -> Experience:
    return agents.EMPTY_EXPERIENCE.copy()


@given(st.lists(st.dictionaries(st.sampled_from(agents.LESSONS), LINES, max_size=3), max_size=6))
def test_lessons_are_counted_and_each_is_there_once(patches: list[dict[str, list[str]]]) -> None:
    experience = empty()
    for patch in patches:
        experience = agents.merge_experience(experience, patch, SOURCE, NOW)
    for name in agents.LESSONS:
        said = forms([text for patch in patches for text in patch.get(name, [])])
        found = {normalise_content(one["text"]): one["seen"] for one in experience[name]}
        assert found == {text: said.count(text) for text in said}
        assert len(found) == len(experience[name])
    assert empty() == agents.EMPTY_EXPERIENCE


@given(st.lists(st.lists(st.integers(0, 70).map(lambda at: f"lesson {at}"), max_size=40), max_size=6))
def test_no_list_holds_more_than_fifty_and_the_least_seen_leave(rounds: list[list[str]]) -> None:
    experience = empty()
    for texts in rounds:
        before = {one["text"]: one["seen"] for one in experience["heuristics"]}
        experience = agents.merge_experience(experience, {"heuristics": texts}, SOURCE, NOW)
        after = {one["text"]: one["seen"] for one in experience["heuristics"]}
        assert len(after) == len(experience["heuristics"]) <= agents.MAX_LESSONS
        total = {text: before.get(text, 0) + texts.count(text) for text in {*before, *texts}}
        gone = [seen for text, seen in total.items() if text not in after]
        assert not gone or max(gone) <= min(after.values())
        assert len(after) == min(len(total), agents.MAX_LESSONS)


@pytest.mark.parametrize(
    "text",
    [
        "Ada likes short answers",
        "ask ADA first",
        "Tell Ada, then wait",
        "Always thank Ada.",
        "Ada's parcels get lost",
        "Ada’s parcels get lost",
        "(Lovelace) pays late",
        "écrire à ada: oui",
        "ask “Ada” twice",
        "mail ada@example.com",
    ],
)
def test_a_lesson_that_names_the_user_is_dropped(text: str) -> None:
    patch = {"heuristics": [text, "be brief"]}
    experience = agents.merge_experience(empty(), patch, SOURCE, NOW, ["Ada Lovelace"])
    assert [one["text"] for one in experience["heuristics"]] == ["be brief"]


@pytest.mark.parametrize("text", ["use adapters", "the Canadian dollar", "be brief", "a"])
def test_a_lesson_that_names_nobody_is_learned(text: str) -> None:
    experience = agents.merge_experience(empty(), {"heuristics": [text]}, SOURCE, NOW, ["Ada", "", "  "])
    assert [one["text"] for one in experience["heuristics"]] == [text]
