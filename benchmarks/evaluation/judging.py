"""Asks the questions of a set as searches, and judges what each mode finds.

A memory is evidence when its content is: texts that are equal to the service are shown once, and stand for each other.
The first 20 memories of a search are judged; `session hit@5` judges the first five sessions that show up.
"""

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from app.storage.text import content_hash
from benchmarks.evaluation.measures import DEPTH, METRICS, retrieval
from benchmarks.evaluation.service import Owner, Service, session_id
from benchmarks.evaluation.sets import Question, World

MODES = ("hybrid", "vector", "text")
SESSIONS = 5
SESSION_HIT = f"session hit@{SESSIONS}"
SESSION_DEPTH = 100
"""Memories asked for where sessions are judged: deep enough for five of them."""

Sessions: TypeAlias = Mapping[int, Collection[str]]
"""The sessions that hold a content, by its hash."""


@dataclass(frozen=True, slots=True)
class Set:
    """One file of worlds."""

    path: Path
    worlds: tuple[World, ...]

    @property
    def name(self) -> str:
        return next((question.group for world in self.worlds for question in world.questions), self.path.stem)

    @property
    def by_session(self) -> bool:
        """Whether sessions are judged: with five of them or fewer, nearly every search would hit."""
        return all(len({item.session for item in world.items} - {None}) > SESSIONS for world in self.worlds)

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*METRICS, SESSION_HIT) if self.by_session else METRICS

    @property
    def top_k(self) -> int:
        return SESSION_DEPTH if self.by_session else DEPTH


@dataclass(frozen=True, slots=True)
class Found:
    """What one mode found for one question."""

    ranks: tuple[int, ...]
    """Places of the evidence, from 0 on."""
    session_hit: bool
    score: float | None
    """Of the first memory; None where nothing was found."""
    first: str
    """Content of the first memory."""
    missing: Mapping[str, int | None]
    """Evidence that is not among the first five, with its place from 1 on, None where it was not found."""
    took_ms: Mapping[str, float]
    """As the service says: embed, search, total."""
    waited_ms: float
    """As the caller sees."""

    @property
    def right(self) -> bool:
        """The first memory is evidence."""
        return 0 in self.ranks


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, and what each mode found."""

    world: str
    question: Question
    evidence: int
    """Distinct texts that answer the question; 0: it was never answered."""
    found: Mapping[str, Found]

    def figures(self, mode: str) -> tuple[float, ...]:
        """METRICS and the session hit."""
        found = self.found[mode]
        return (*retrieval(found.ranks, self.evidence), float(found.session_hit))


def ask_set(service: Service, asked: Set, modes: Sequence[str], *, wall_clock: bool = False) -> list[Answer]:
    answers: list[Answer] = []
    for world in asked.worlds:
        start = time.perf_counter()
        answers += ask_world(service, world, modes, asked.top_k, wall_clock=wall_clock)
        took = time.perf_counter() - start
        print(
            f"{world.name}: {len(world.items)} items, {len(world.questions)} questions, {took:.0f} s", file=sys.stderr
        )
    return answers


def ask_world(
    service: Service, world: World, modes: Sequence[str], top_k: int, *, wall_clock: bool = False
) -> Iterator[Answer]:
    """Each question is asked in all modes before the next one; its vector is computed for the first that needs it."""
    owner = service.owner(world)
    sessions = _sessions(world, owner)
    for step in service.steps(world, owner):
        for question in step.questions:
            body = {**owner, "query": question.query, "top_k": top_k, "record_access": False}
            body |= {} if wall_clock else step.now
            evidence = {content_hash(text): text for text in question.evidence}
            found = {mode: judged(*service.search({**body, "mode": mode}), evidence, sessions) for mode in modes}
            yield Answer(world.name, question, len(evidence), found)


def judged(answer: Mapping[str, Any], waited_ms: float, evidence: Mapping[int, str], sessions: Sessions) -> Found:
    """`evidence`: contents by their hash."""
    items = answer["items"]
    hashes = [content_hash(item["memory"]["content"]) for item in items]
    places = {known: hashes.index(known) for known in evidence if known in hashes}
    shown = list(dict.fromkeys(item["memory"]["source"]["session_id"] for item in items))[:SESSIONS]
    return Found(
        ranks=tuple(sorted(places.values())),
        session_hit=any(session in shown for known in evidence for session in sessions.get(known, ())),
        score=items[0]["score"] if items else None,
        first=items[0]["memory"]["content"] if items else "",
        missing={
            text: places[known] + 1 if known in places else None
            for known, text in evidence.items()
            if places.get(known, DEPTH) >= 5
        },
        took_ms=answer["took_ms"],
        waited_ms=waited_ms,
    )


def _sessions(world: World, owner: Owner) -> Sessions:
    held: dict[int, set[str]] = {}
    for item in world.items:
        if item.session is not None:
            held.setdefault(content_hash(item.content), set()).add(session_id(owner, item.session))
    return held
