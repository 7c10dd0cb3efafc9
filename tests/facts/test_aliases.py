"""Names of one entity, as pure rules."""

from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.facts.alias_service import proposals
from app.facts.aliases import AliasMap, AliasRecord, alias_id, new_alias, titled, untitled
from app.facts.graph import EntityNode
from app.facts.repository import of_partitions
from app.facts.schemas import key_of
from app.storage.schema import Absent, Eq, In, Or, both
from app.storage.scope import Partition

OWNER = Partition("a", "u")


def alias(name: str, other: str, status: Literal["active", "dismissed"] = "active") -> AliasRecord:
    return {**new_alias(OWNER, name, other, "stated", "2026-01-01T00:00:00.000Z"), "status": status}


def proposed(name: str, *entities: str, aliases: AliasMap | None = None) -> set[tuple[str, str, str]]:
    there = {key_of(one): EntityNode(one) for one in entities}
    return {
        (one["name"], one["alias"], one["rule"])
        for one in proposals(name, there, AliasMap() if aliases is None else aliases)
    }


@pytest.mark.parametrize(
    ("name", "rest", "full"),
    [
        ("Dr. Ada Lovelace", "Ada Lovelace", "Ada Lovelace"),
        ("Prof. Dr. Ada Lovelace", "Ada Lovelace", "Ada Lovelace"),
        ("frau Erika Mustermann", "Erika Mustermann", "Erika Mustermann"),
        ("Mr. Smith", "Smith", None),
        ("Señora Ana de la Cruz", "Ana de la Cruz", "Ana de la Cruz"),
        ("Ada Lovelace", None, None),
        ("Dr.", None, None),
        ("Drake Bell", None, None),
    ],
)
def test_titles_are_left_out(name: str, rest: str | None, full: str | None) -> None:
    assert (untitled(name), titled(name)) == (rest, full)


NAMES = st.sampled_from("abcdefg")
PAIRS = st.lists(st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]), max_size=8)


@given(PAIRS, PAIRS)
def test_names_are_one_if_active_aliases_join_them(active: list[tuple[str, str]], gone: list[tuple[str, str]]) -> None:
    docs = {one["alias_id"]: one for one in [*(alias(*pair) for pair in active)]}
    for pair in gone:
        dismissed = alias(*pair, status="dismissed")
        if dismissed["alias_id"] not in docs:
            docs[dismissed["alias_id"]] = dismissed
    found = AliasMap(docs.values())
    for name in "abcdefg":
        reached = {name}
        while more := {two for pair in active for one, two in (pair, pair[::-1]) if one in reached} - reached:
            reached |= more
        assert set(found.keys(name)) == reached
        assert {found.root(one) for one in reached} == {found.root(name)}
        assert found.root(name) in reached
    assert bool(found) == bool(active)


@given(PAIRS)
def test_the_order_of_records_changes_nothing(pairs: list[tuple[str, str]]) -> None:
    docs = {one["alias_id"]: one for one in (alias(*pair) for pair in pairs)}
    one, other = AliasMap(docs.values()), AliasMap(reversed(docs.values()))
    assert all(one.keys(name) == other.keys(name) for name in "abcdefg")


def test_a_pair_has_one_id_in_either_direction_for_each_owner() -> None:
    assert alias_id("a", "u", "x", "y") == alias_id("a", "u", "y", "x") != alias_id("a", "v", "x", "y")


def test_the_only_full_name_is_proposed() -> None:
    known = ("Ada", "Ada Lovelace", "Ben", "Acme")
    assert proposed("Ada", *known) == {("Ada Lovelace", "Ada", "contains")}
    assert proposed("Ada Lovelace", *known) == {("Ada Lovelace", "Ada", "contains")}
    assert proposed("Ben", *known) == set()
    assert proposed("Dr. Lovelace", *known) == {("Ada Lovelace", "Dr. Lovelace", "contains")}


def test_of_two_full_names_none_is_proposed() -> None:
    assert proposed("Ada", "Ada Lovelace", "Ada Byron") == set()
    assert proposed("Ada Lovelace", "Ada", "Ada Byron") == set()


def test_full_names_of_one_entity_are_one() -> None:
    same = AliasMap([alias("Ada Lovelace", "Ada Byron")])
    assert {one[1] for one in proposed("Ada", "Ada Lovelace", "Ada Byron", aliases=same)} == {"Ada"}


def test_titles_of_earlier_facts_are_proposed() -> None:
    assert proposed("Ada Lovelace", "Dr. Ada Lovelace") == {("Ada Lovelace", "Dr. Ada Lovelace", "title")}


def test_what_was_dismissed_is_not_proposed_again() -> None:
    gone = AliasMap([alias("Ada Lovelace", "Ada", status="dismissed")])
    assert proposed("Ada", "Ada Lovelace", aliases=gone) == set()


def test_filters_of_partitions_are_one_for_each_user_of_one_look_at_each_partition() -> None:
    class Looked(list[Partition]):
        looks = 0

        def __iter__(self) -> Iterator[Partition]:
            self.looks += 1
            return super().__iter__()

    partitions = Looked([Partition(agent, user) for user in ("u", "v", None) for agent in ("a", None)])
    shared = Or((In("agent_id", ("a",)), Absent("agent_id")))
    of_users = (Eq("user_id", "u"), Eq("user_id", "v"), Absent("user_id"))
    assert of_partitions(partitions) == [both(of_user, shared) for of_user in of_users]
    assert partitions.looks == 1
