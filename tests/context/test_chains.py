"""Chains of facts: their strength, their bounds, their lines."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from app.context.sources.chains import HEADS, STEPS, FactChain, as_line, chains_from, lines_of
from app.facts.graph import Graph
from app.facts.schemas import FactRecord, ObjectType

pytestmark = [pytest.mark.anyio, pytest.mark.before_store]
SECONDS = 60


def fact(subject: str, predicate: str, object: str, kind: ObjectType = "entity") -> FactRecord:
    return {
        "fact_id": f"{subject}-{object}",
        "subject": subject,
        "predicate": predicate,
        "object": object,
        "object_type": kind,
        "subject_key": subject.lower(),
        "object_key": object.lower(),
    }


class Known:
    """The facts of a graph. `reads`: the keys of each read."""

    def __init__(self, *facts: FactRecord) -> None:
        self._facts, self.reads = facts, list[Sequence[str]]()

    async def facts_at(self, keys: Sequence[str], most: int) -> dict[str, list[FactRecord]]:
        self.reads.append(keys)
        return {key: [one for one in self._facts if key in (one["subject_key"], one["object_key"])] for key in keys}


def unnamed(key: str) -> bool:
    return False


async def chains_of(
    known: Known, found: Sequence[FactRecord], scores: Sequence[float], named: Callable[[str], bool] = unnamed
) -> list[FactChain]:
    by_id = {one["fact_id"]: score for one, score in zip(found, scores, strict=True)}
    return await chains_from(found, by_id, cast(Graph, known), named, SECONDS)


async def test_the_strength_of_a_step_is_its_share_of_what_leads_on() -> None:
    head, one, other = fact("Ben", "boss", "Cleo"), fact("Cleo", "city", "Oslo"), fact("Cleo", "pet", "Rex")
    found = await chains_of(Known(head, one, other), [head, one, other], [0.8, 0.0009, 0.0001])
    assert [(chain.facts[-1]["object"], round(chain.score, 6)) for chain in found] == [("Oslo", 0.6), ("Rex", 0.2)]


async def test_a_chain_ends_at_an_entity_where_no_fact_stands_out() -> None:
    head, hub = fact("Ben", "city", "Oslo"), [fact(f"P{at}", "city", "Oslo") for at in range(50)]
    assert await chains_of(Known(head, *hub), [head], [0.9]) == []


async def test_a_chain_does_not_go_on_from_what_the_query_names() -> None:
    head, other = fact("Ben", "boss", "Cleo"), fact("Ben", "pet", "Rex")
    assert await chains_of(Known(head, other), [head], [0.9], lambda key: key == "ben") == []


async def test_steps_and_beginnings_are_bounded_and_nothing_is_read_for_nothing() -> None:
    row = [fact(f"E{at}", "next", f"E{at + 1}") for at in range(9)]
    known = Known(*row)
    found = await chains_of(known, row[:1], [0.9])
    assert (max(len(chain.facts) for chain in found), len(known.reads)) == (STEPS + 1, STEPS)
    crowd = [fact(f"A{at}", "knows", f"B{at}") for at in range(100)]
    known = Known(*crowd)
    assert await chains_of(known, crowd, [0.5] * 100) == []
    assert [len(keys) for keys in known.reads] == [2 * HEADS]
    nothing = Known()
    assert await chains_of(nothing, [], []) == []
    assert nothing.reads == []


async def test_what_is_not_read_in_time_is_left_out() -> None:
    class Slow(Known):
        async def facts_at(self, keys: Sequence[str], most: int) -> dict[str, list[FactRecord]]:
            if self.reads:
                await asyncio.Event().wait()
            return await super().facts_at(keys, most)

    row = [fact("A", "r", "B"), fact("B", "r", "C"), fact("C", "r", "D")]
    found = await chains_from(row[:1], {row[0]["fact_id"]: 0.9}, cast(Graph, Slow(*row)), unnamed, 0.2)
    assert [[one["object"] for one in chain.facts] for chain in found] == [["B", "C"]]


def test_a_line_repeats_no_fact_of_another_one() -> None:
    head, one, other = fact("Ben", "boss", "Cleo"), fact("Cleo", "city", "Oslo"), fact("Cleo", "pet", "Rex")
    chains = [
        FactChain((head, one), (0.9, 0.5)),
        FactChain((head, other), (0.9, 0.45)),
        FactChain((one, head), (0.2, 0.2)),
    ]
    scores = {head["fact_id"]: 0.9, one["fact_id"]: 0.01}
    assert [line.facts for line in lines_of(chains, scores)] == [(head, one), (other,)]


def test_the_first_fact_of_a_weak_chain_stands_by_itself() -> None:
    head, one = fact("Ben", "boss", "Cleo"), fact("Cleo", "city", "Oslo")
    assert [line.facts for line in lines_of([FactChain((head, one), (0.9, 0.2))], {head["fact_id"]: 0.9})] == [(one,)]
    assert lines_of([FactChain((head, one), (0.9, 0.2))], {head["fact_id"]: 0.9, one["fact_id"]: 0.3}) == []


def test_a_chain_takes_the_place_of_a_shorter_one_unless_it_is_much_weaker() -> None:
    facts = fact("Ben", "boss", "Cleo"), fact("Cleo", "assistant", "Dov"), fact("Dov", "extension", "4417", "literal")
    short = FactChain(facts[:2], (0.9, 0.8))
    scores = {facts[0]["fact_id"]: 0.9}
    assert [line.facts for line in lines_of([short, FactChain(facts, (0.9, 0.8, 0.7))], scores)] == [facts]
    assert [line.facts for line in lines_of([short, FactChain(facts, (0.9, 0.8, 0.3))], scores)] == [
        facts[:2],
        facts[2:],
    ]
    scores |= {facts[2]["fact_id"]: 0.75}
    assert [line.facts for line in lines_of([short, FactChain(facts, (0.9, 0.8, 0.7))], scores)] == [facts[:2]]


def test_a_line_reads_from_its_first_fact_to_its_last() -> None:
    facts = [
        fact("Ben", "has_boss", "Cleo"),
        fact("Cleo", "sits_in", "Oslo"),
        fact("Cleo", "extension", "4417", "literal"),
        fact("Dov", "assists", "Cleo"),
    ]
    line = "Ben has boss Cleo → sits in Oslo, extension 4417; Dov assists Cleo"
    assert as_line(facts, [""] * 4) == line
    assert as_line(facts[:2], [" (now)", " (now)"]) == "Ben has boss Cleo (now) → sits in Oslo (now)"
