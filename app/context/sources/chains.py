"""Chains of facts: what a query needs and no single fact says.

"When does Emil's school open?" needs "Emil attends Fernhill Primary" and "Fernhill Primary opens at 08:20". The search
finds the first by the name in the query. The second has little in common with the query, and other schools' hours have
as much. A chain goes from a fact that the search found to what else is known of an entity in it.

The strength of a step is the share that its fact has in all facts that lead on from the entity. Each counts by the root
of its score: few of them answer by themselves, so that small scores tell little. The score of a chain is that of its
first fact times these shares, so it is never more than that of its weakest link. At an entity with many facts, of which
none stands out, a chain ends.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import pairwise
from math import sqrt

from app.context.source import Candidate, same_text
from app.core.clock import day_of
from app.facts.graph import Graph
from app.facts.schemas import FactRecord, sentence, spoken

STEPS = 2
"""Maximum steps from a fact that the search found."""
HEADS = 20
"""Maximum facts from which chains begin, the best ones that the search found."""
MOST_CHAINS = 20
"""Maximum chains that one step goes on from, and that are returned."""
FACTS_AT_ONCE = 200
"""Maximum facts that one read returns; a step makes at most four."""
LEAST_SHARE = 0.15
"""Minimum strength of a step."""
LEAST_WORTH = 0.1
"""Minimum score of a chain as a share of the best score of a single fact."""
WHOLE = 0.5
"""A chain takes the place of its first facts in a prompt if its score is at least this share of theirs. If it is less,
they stand by themselves, where their own score puts them."""

IsNamed = Callable[[str], bool]
"""Returns whether the query names the entity with this key, or the entity is the user, of whom every query is. Facts of
such an entity are found by the search; a chain does not go on from it."""


@dataclass(frozen=True, slots=True)
class FactChain:
    """Facts of which each shares an entity with the one before.

    `scores`: that of the chain up to each of its facts. `open`: keys of entities from which it may go on.
    """

    facts: tuple[FactRecord, ...]
    scores: tuple[float, ...]
    open: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The score of the whole chain."""
        return self.scores[-1]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its facts."""
        return tuple(fact["fact_id"] for fact in self.facts)

    def steps(
        self, at: str, facts: Sequence[FactRecord], score_of: Callable[[FactRecord], float], named: IsNamed
    ) -> Iterator["FactChain"]:
        """Yields the chain with each fact that leads on from the entity `at`, if its share is large enough."""
        own_ids = self.ids
        onward = [fact for fact in facts if fact["fact_id"] not in own_ids]
        parts = [sqrt(max(0.0, score_of(fact))) for fact in onward]
        total = sum(parts)
        for fact, part in zip(onward, parts, strict=True):
            share = part / total if total else 0.0
            if share >= LEAST_SHARE:
                ends = tuple(end for end in _ends(fact) if end != at and not named(end))
                yield FactChain((*self.facts, fact), (*self.scores, self.score * share), ends)


async def chains_from(
    facts: Sequence[FactRecord], scores: Mapping[str, float], graph: Graph, named: IsNamed, seconds: float
) -> list[FactChain]:
    """Returns the chains that begin with the first of `facts`, which the search found, best first:
    those that were read in time.

    `scores`: the score of each of `facts`, by id. Another fact is taken to answer as little as the last of them.
    """
    least, worth = min(scores.values(), default=0.0), LEAST_WORTH * max(scores.values(), default=0.0)

    def score_of(fact: FactRecord) -> float:
        return scores.get(fact["fact_id"], least)

    chains: list[FactChain] = []
    heads = [fact for fact in facts[:HEADS] if score_of(fact) >= worth]
    growing = [
        FactChain((fact,), (score_of(fact),), tuple(end for end in _ends(fact) if not named(end))) for fact in heads
    ]
    deadline = asyncio.get_running_loop().time() + seconds
    for _ in range(STEPS):
        keys = list(dict.fromkeys(key for chain in growing for key in chain.open))
        if not keys:
            break
        try:
            async with asyncio.timeout_at(deadline):
                facts_by_key = await graph.facts_at(keys, FACTS_AT_ONCE)
        except TimeoutError:
            break
        steps = (
            step
            for chain in growing
            for key in chain.open
            for step in chain.steps(key, facts_by_key[key], score_of, named)
        )
        growing = sorted((step for step in steps if step.score >= worth), key=lambda chain: -chain.score)[:MOST_CHAINS]
        chains += growing
    return sorted(chains, key=lambda chain: -chain.score)[:MOST_CHAINS]


def _ends(fact: FactRecord) -> tuple[str, ...]:
    """Returns the keys of the entities of a fact. A literal, such as a number or a date, is none."""
    ends = [fact["subject_key"], *([fact["object_key"]] if fact["object_type"] == "entity" else [])]
    return tuple(dict.fromkeys(ends))


def lines_of(chains: Sequence[FactChain], scores: Mapping[str, float]) -> list[FactChain]:
    """Returns what each chain adds to those before it: its last facts, which none of them has.

    A longer chain takes the place of one that it goes on from, unless it is much weaker. Left out are chains that add
    nothing, and those whose last fact the search found to answer better by itself.
    """
    better = [chain for chain in chains if chain.score > scores.get(chain.ids[-1], 0.0)]
    stated, lines = set[str](), list[FactChain]()
    for chain in better:
        if chain.ids[-1] not in stated:
            longer = (
                other
                for other in better
                if other.ids[: len(chain.ids)] == chain.ids
                and _start(other) < len(chain.ids)
                and other.ids[-1] not in stated
            )
            longest = max(longer, key=lambda other: len(other.facts), default=chain)
            # of "A → B → C → D", after a line "A → B → C", it is 2, and the line is "C → D" alone
            first = max([_start(longest), *(at + 1 for at, fact_id in enumerate(longest.ids) if fact_id in stated)])
            lines.append(FactChain(longest.facts[first:], longest.scores[first:]))
            stated.update(longest.ids[first:])
    return sorted(lines, key=lambda line: -line.score)


def _start(chain: FactChain) -> int:
    """Returns the place of the first fact that the chain may take the place of."""
    return next(at for at, score in enumerate(chain.scores) if chain.score >= WHOLE * score)


def as_line(facts: Sequence[FactRecord], spans: Sequence[str]) -> str:
    """Returns a chain as one line: `Emil attends Fernhill Primary → opens at 08:20`. `spans`: the time for which each
    fact holds, as text.

    An arrow goes on from the object that was named last, and a comma says more of the same subject. A fact that does
    neither stands whole behind a semicolon: `StreamingAPI uses DRF; The user prefers DRF`.
    """
    line = f"{sentence(facts[0])}{spans[0]}"
    for (before, fact), span in zip(pairwise(facts), spans[1:], strict=True):
        statement = f"{spoken(fact['predicate'])} {fact['object']}"
        if fact["subject_key"] == before["object_key"]:
            line += f" → {statement}"
        elif fact["subject_key"] == before["subject_key"]:
            line += f", {statement}"
        else:
            line += f"; {sentence(fact)}"
        line += span
    return line


def fact_item(facts: Sequence[FactRecord], score: float | None, zone: tzinfo) -> Candidate:
    """Returns one line of one fact, or of a chain of them. `zone`: whose days the line names."""
    spans = [_span(fact, zone) for fact in facts]
    return Candidate(
        facts[-1]["fact_id"],
        "fact",
        as_line(facts, spans),
        score,
        keys=frozenset({same_text(as_line(facts, [""] * len(facts)))}),
        says=frozenset(same_text(sentence(fact)) for fact in facts),
        fact_ids=tuple(fact["fact_id"] for fact in facts),
    )


def _span(fact: FactRecord, zone: tzinfo) -> str:
    """Returns when a fact holds: " (since 2026-05-01)", " (2019-01-01 to 2026-05-01)".

    A fact that was asserted without a date begins when it was told. Nobody said that it began on that day, so it is not
    shown.
    """
    since = None if fact.get("start_assumed") else fact["valid_from"]
    begun, ended = day_of(since or "", zone), day_of(fact["valid_until"] or "", zone)
    if begun and ended:
        return f" ({begun} to {ended})"
    return f" (since {begun})" if begun else f" (until {ended})" if ended else ""
