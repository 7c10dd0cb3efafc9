"""Synthetic memories for the benchmarks: texts like talk, in words by their frequency, and random unit vectors."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from app.core.clock import rfc3339
from app.core.prompt_text import vocabulary
from app.embedding.onnx import MINILM_NAME
from app.lifespan import COLLECTIONS
from app.memories.models import MEMORIES
from app.memories.records import new_memory, passage
from app.storage.changes import Change, IndexEntry, Insert
from app.storage.schema import Doc
from app.storage.search import Floats
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text

AGENT = "bench"
BIG = 1_000_000
"""Number of the one user with many memories."""
DIM, MODEL = 384, MINILM_NAME
WORDS = 8_000
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = "Ada Ben Cleo Dmitri Emma Farid Grace Hana Ivan Jun Kofi Lena Mateo Nadia Omar Priya".split()


@dataclass(frozen=True, slots=True)
class Shape:
    memories: int
    users: int

    @property
    def each(self) -> int:
        return self.memories // self.users

    @classmethod
    def read(cls, text: str) -> "Shape":
        """`MEMORIES` or `MEMORIES:USERS`."""
        memories, _, users = text.partition(":")
        return cls(int(memories), int(users or 1))

    def __str__(self) -> str:
        return f"{self.memories:,} memories of {self.users:,} users"


class Texts:
    """Sentences of words drawn by Zipf's law."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words, self._weights = _words(), _weights()

    def sentence(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=words)).capitalize() + "."

    def memory(self) -> str:
        """About 20 words."""
        return self.sentence(self._random.randint(12, 28))

    def any(self, words: int) -> list[str]:
        """However seldom they are."""
        return self._random.sample(self._words, words)

    def question(self, number: int) -> str:
        """A question about some words of a new text. Every second one names a speaker."""
        subject, name = self.memory(), self._random.choice(NAMES) if number % 2 else "they"
        about = " ".join(self._random.sample(subject.rstrip(".").lower().split(), 5))
        return f"What did {name} say about {about}?"


def user(number: int) -> str:
    return f"user-{number}"


def owner(number: int) -> dict[str, str]:
    return {"agent_id": AGENT, "user_id": user(number)}


@cache
def _words() -> list[str]:
    """Plain words of the o200k vocabulary, which stand in the order of their frequency, more or less."""
    found = (token[1:].decode() for token in vocabulary() if token[:1] == b" " and token[1:].isalpha())
    return [word for word in found if word.isascii() and word.islower() and len(word) > 1][:WORDS]


@cache
def _weights() -> list[float]:
    return list(accumulate(1 / (rank + 2) for rank in range(len(_words()))))


def inserts(shape: Shape, seed: int = 7) -> Iterator[Insert]:
    """User by user; the first half of each one's memories are plain facts, the others turns of two speakers."""
    texts, vectors = Texts(seed), np.random.default_rng(seed)
    for number in range(shape.users):
        speakers = [NAMES[number % len(NAMES)], NAMES[(number + 5) % len(NAMES)]]
        for at in range(shape.each):
            turn = at >= shape.each // 2
            moment = rfc3339(START + timedelta(minutes=at))
            source = _turn(number, at, speakers) if turn else {}
            fields: dict[str, Any] = {
                **owner(number),
                "content": texts.memory(),
                "memory_type": "message" if turn else "fact",
                "importance": 0.3 if turn else 0.5,
                "event_at": moment if turn else None,
            }
            doc = new_memory(fields, source, moment, unique=not turn)
            yield Insert(MEMORIES, *embedded(doc, unit(vectors)))


def _turn(number: int, at: int, speakers: list[str]) -> dict[str, Any]:
    session, seq = divmod(at, 25)
    return {
        "origin": "message",
        "session_id": f"session-{number}-{session}",
        "message_seq": seq + 1,
        "speaker": speakers[seq % 2],
    }


def unit(random_numbers: np.random.Generator) -> Floats:
    """A random vector of unit length."""
    vector = random_numbers.standard_normal(DIM).astype(np.float32)
    found: Floats = vector / np.float32(np.linalg.norm(vector))
    return found


def embedded(doc: Doc, vector: Floats) -> tuple[Doc, IndexEntry]:
    """A memory of tenant `default` with its vector, as the service would have stored it."""
    doc |= {"tenant_id": "default", "embedding": {"model": MODEL, "dim": DIM, "status": "ready"}}
    text = passage(doc)
    return doc, IndexEntry(index_text(text.content, text.context, text.time), vector, MODEL)


async def commit_all(directory: Path, changes: Iterator[Change]) -> int:
    """Writes `changes` into a new store, and returns how many there were."""
    store, count = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM), 0
    try:
        while some := list(islice(changes, 500)):
            await store.commit(some)
            count += len(some)
    finally:
        await store.close()
    return count


def fill(directory: str | Path, shape: Shape) -> None:
    asyncio.run(commit_all(Path(directory), inserts(shape)))


def queries(shape: Shape, count: int, *, distinct: int, seed: int = 11) -> list[dict[str, Any]]:
    """Search bodies: `distinct` texts, over users at random; half of the texts name a speaker."""
    texts, at = Texts(seed), random.Random(seed)
    asked = [texts.question(number) + (f" {number}" if distinct > 64 else "") for number in range(distinct)]
    return [
        {"query": asked[number % distinct], **owner(at.randrange(shape.users)), "top_k": 10, "record_access": False}
        for number in range(count)
    ]
