"""Synthetic memories for the benchmarks, loaded through the storage layer as `recalld migrate` loads.

Texts are like talk, in words by their frequency, with words of a topic. Vectors lean to the topic, as an embedding
model's do: two of a topic have a cosine about 0.3, others about 0.05. Users write in turn, a session of messages or a
handful of facts at a time, over most of a year, so that nothing lies in a better order on the disk than in life.
"""

import asyncio
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.clock import rfc3339
from app.core.prompt_text import vocabulary
from app.embedding.onnx import PACKAGED_DIM, TAUGHT
from app.lifespan import COLLECTIONS
from app.memories.repository import new_memory, text_to_index
from app.memories.schemas import MEMORIES, MemoryRecord, Source
from app.storage.changes import IndexEntry
from app.storage.index.record_codec import pack
from app.storage.schema import OwnedRecord
from app.storage.search import Floats
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text
from app.storage.transfer import Record

AGENT = "bench"
BIG = 1_000_000
"""Number of the one user with many memories."""
DIM, MODEL = PACKAGED_DIM, TAUGHT.name
WORDS = 8_000
NAMES = "Ada Ben Cleo Dmitri Emma Farid Grace Hana Ivan Jun Kofi Lena Mateo Nadia Omar Priya".split()
TURN = 25
"""Memories that a user writes at a time, at most."""
DAYS = 300
TOPICS, A_USERS, TOPIC_WORDS = 400, 6, 40
PIECE, AHEAD = 80, 6
"""Turns that a process makes at once, and how many pieces are made ahead."""
MANY = 20_000
"""Memories from which on other processes make them."""

Turn = tuple[int, int, int]
"""A user's number, how often the user has written before, and the memories of this time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`memories` of `users`, as many of each, and `big` of one more user."""

    memories: int
    users: int
    big: int = 0

    @property
    def each(self) -> int:
        return self.memories // self.users

    @property
    def total(self) -> int:
        return self.memories + self.big

    @property
    def name(self) -> str:
        return f"{self.memories}-{self.users}-{self.big}"

    @classmethod
    def read(cls, text: str) -> "Shape":
        """`MEMORIES` or `MEMORIES:USERS`."""
        memories, _, users = text.partition(":")
        return cls(int(memories), int(users or 1))

    def __str__(self) -> str:
        return f"{self.memories:,} memories of {self.users:,} users"

    def turns(self) -> list[Turn]:
        """In the order of time."""
        writers = [*((number, self.each) for number in range(self.users)), (BIG, self.big)]
        order = [number for number, memories in writers for _ in range(0, memories, TURN)]
        random.Random(1).shuffle(order)
        left, seen = dict(writers), dict.fromkeys(order, 0)
        turns = []
        for number in order:
            turns.append((number, seen[number], min(TURN, left[number])))
            left[number] -= TURN
            seen[number] += 1
        return turns


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


@cache
def _words() -> list[str]:
    """Plain words of the o200k vocabulary, which stand in the order of their frequency, more or less."""
    found = (token[1:].decode() for token in vocabulary() if token[:1] == b" " and token[1:].isalpha())
    return [word for word in found if word.isascii() and word.islower() and len(word) > 1][:WORDS]


@cache
def _weights() -> list[float]:
    return list(accumulate(1 / (rank + 2) for rank in range(len(_words()))))


def owner(number: int) -> OwnedRecord:
    return {"agent_id": AGENT, "user_id": f"user-{number}"}


def queries(shape: Shape, count: int, *, distinct: int, seed: int = 11) -> list[dict[str, Any]]:
    """Search bodies: `distinct` texts, over users at random; half of the texts name a speaker."""
    texts, at = Texts(seed), random.Random(seed)
    asked = [texts.question(number) + (f" {number}" if distinct > 64 else "") for number in range(distinct)]
    return [
        {"query": asked[number % distinct], **owner(at.randrange(shape.users)), "top_k": 10, "record_access": False}
        for number in range(count)
    ]


# --- Stores -----------------------------------------------------------------------------------------------------------


def build(directory: str | Path, shape: Shape) -> float | None:
    """Makes a store. Returns how many memories a second, None where it was there already.

    Ends the program if a former run did not finish the store."""
    directory = Path(directory)
    finished = directory / "finished"
    if finished.exists():
        return None
    if directory.exists() and any(directory.iterdir()):
        sys.exit(f"{directory} was not finished: remove it.")
    started = time.perf_counter()
    asyncio.run(load(directory, shape))
    finished.touch()
    return shape.total / (time.perf_counter() - started)


async def load(directory: Path, shape: Shape) -> None:
    """Adds the memories of the shape to the store in a folder, which may be a new one."""
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    started, done = time.perf_counter(), 0
    try:
        for records in _produced(shape):
            done += await store.load(MEMORIES, records)
            if done % 100_000 < len(records):
                print(f"  {done:,} loaded, {done / (time.perf_counter() - started):,.0f}/s", file=sys.stderr)
    finally:
        await store.close()


def _produced(shape: Shape) -> Iterator[list[Record]]:
    """In order. Many are made by other processes, a few pieces ahead."""
    turns = list(enumerate(shape.turns()))
    step = timedelta(days=DAYS) / len(turns)
    start = datetime.now(UTC) - timedelta(days=DAYS)
    pieces = iter([turns[at : at + PIECE] for at in range(0, len(turns), PIECE)])
    if shape.total < MANY:
        yield from (made(piece, start, step) for piece in pieces)
        return
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        waiting = deque[Future[list[Record]]](pool.submit(made, piece, start, step) for piece in islice(pieces, AHEAD))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(made, piece, start, step) for piece in islice(pieces, 1))


def made(piece: Sequence[tuple[int, Turn]], start: datetime, step: timedelta) -> list[Record]:
    """The memories of some turns, each with its place in time."""
    return [one for place, turn in piece for one in _memories(*turn, place, start + step * place)]


def _memories(number: int, turn: int, count: int, seed: int, moment: datetime) -> Iterator[Record]:
    """Facts and sessions alternate; another half of the users begins with a session."""
    texts, vectors = Texts(seed), np.random.default_rng(seed)
    speakers = [NAMES[number % len(NAMES)], NAMES[(number + 5) % len(NAMES)]]
    said = (number + turn) % 2 == 1
    for at in range(count):
        topic = _topics_of(number)[(turn + at // 5) % A_USERS]
        when = rfc3339(moment + timedelta(seconds=20 * at))
        session: Source = {"origin": "message", "session_id": f"s-{number}-{turn}", "message_seq": at + 1}
        words = _words_of(topic)
        topical = " ".join(words[((seed + at) * step) % len(words)] for step in (3, 7, 11))
        fields: MemoryRecord = {
            "agent_id": AGENT,
            "user_id": f"user-{number}",
            "content": f"{texts.memory()[:-1]} {topical}.",
            "memory_type": "message" if said else "fact",
            "importance": 0.3 if said else round(0.3 + 0.6 * float(vectors.random()), 2),
            "tags": [f"topic-{topic}"] if at % 4 == 0 else [],
            "event_at": when if said else None,
        }
        source: Source = {**session, "speaker": speakers[at % 2]} if said else {}
        yield record(new_memory(fields, source, when, unique=not said), _vector(topic, vectors))


def record(memory: MemoryRecord, vector: Floats) -> Record:
    """A memory of tenant `default`, as another store would export it."""
    memory |= {"tenant_id": "default", "embedding": {"model": MODEL, "dim": DIM, "status": "ready"}}
    text = text_to_index(memory)
    entry = IndexEntry(index_text(text.content, text.context, text.time), vector, MODEL)
    assert MEMORIES.searched is not None
    return Record({**memory}, pack(MEMORIES.searched, memory, entry, 0), "")


def unit(vector: NDArray[np.floating[Any]]) -> Floats:
    """A vector of unit length."""
    found: Floats = (vector / np.linalg.norm(vector)).astype(np.float32)
    return found


def _vector(topic: int, random_numbers: np.random.Generator) -> Floats:
    """A part common to all, the topic's, and noise."""
    centres = _centres()
    return unit(0.25 * centres[-1] + 0.6 * centres[topic] + random_numbers.standard_normal(DIM) / DIM**0.5)


@cache
def _centres() -> list[Floats]:
    return [unit(drawn) for drawn in np.random.default_rng(3).standard_normal((TOPICS + 1, DIM))]


@cache
def _topics_of(number: int) -> list[int]:
    return random.Random(number).sample(range(TOPICS), A_USERS)


@cache
def _words_of(topic: int) -> list[str]:
    return Texts(topic).any(TOPIC_WORDS)
