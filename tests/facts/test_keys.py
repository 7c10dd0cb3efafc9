"""How the parts of facts are compared, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.facts.schemas import MAX_KEY, key_of, predicate_key, sentence, spoken

words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("predicate", "key"),
    [
        ("lives in", "lives in"),
        ("lives_in", "lives in"),
        ("livesIn", "lives in"),
        ("Lives-In", "lives in"),
        ("LIVES_IN", "lives in"),
        ("  lives __ in ", "lives in"),
        ("ｌｉｖｅｓ＿Ｉｎ", "lives in"),
        ("hasURL", "has url"),
        ("HTTPServerOf", "http server of"),
        ("usesAPIs", "uses apis"),
        ("version2Of", "version2 of"),
        ("größteStadtVon", "grösste stadt von"),
        ("живёт_в", "живёт в"),
        ("住んでいる", "住んでいる"),
        ("livesin", "livesin"),
        ("_", "_"),
        ("--", "--"),
        ("→", "→"),
    ],
)
def test_a_predicate_is_compared_by_its_words(predicate: str, key: str) -> None:
    assert predicate_key(predicate) == key


@given(words)
def test_every_way_to_join_words_is_one_predicate(parts: list[str]) -> None:
    key = predicate_key(" ".join(parts))
    camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
    for spelling in ("_".join(parts), "-".join(parts), camel, " ".join(parts).upper(), "_".join(parts).title()):
        assert predicate_key(spelling) == key


@given(st.text(min_size=1))
def test_a_key_is_its_own_key_and_never_empty_or_long(text: str) -> None:
    key = predicate_key(text)
    assert predicate_key(key) == key
    assert len(key) <= MAX_KEY
    assert bool(key) == bool(key_of(text))


@given(st.text(min_size=1), st.text(min_size=1))
def test_case_width_and_spaces_make_no_difference(one: str, other: str) -> None:
    """Unless humps tell their words apart, which case did not."""
    if key_of(one) == key_of(other) and one.islower() == other.islower() is True:
        assert predicate_key(one) == predicate_key(other)


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ("lives_in", "lives in"),
        ("livesIn", "lives in"),
        ("Lives-In", "lives in"),
        ("lives  in", "lives in"),
        ("hasURL", "has URL"),
        ("Likes", "Likes"),
        ("→", "→"),
    ],
)
def test_a_predicate_is_said_in_words(predicate: str, said: str) -> None:
    assert spoken(predicate) == said
    assert sentence({"subject": "Ada", "predicate": predicate, "object": "x"}) == f"Ada {said} x"
