"""A store of a million synthetic memories, loaded through the storage layer as `recalld migrate` loads.

Users write in turn, a session of turns or a handful of facts at a time, over most of a year, so that nothing lies in a
better order on the disk than in life. Texts share the words of a topic, and their vectors lean to it, as an embedding
model's do: two of a topic have a cosine about 0.3, others about 0.05.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from app.core.clock import rfc3339
from app.lifespan import COLLECTIONS
from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.storage.index.record_codec import pack
from app.storage.schema import Doc
from app.storage.search import Floats
from app.storage.sqlite.store import EmbeddedStore
from app.storage.transfer import Record
from benchmarks.data import BIG, DIM, NAMES, Texts, embedded, owner
from benchmarks.scale_copies import multiply

AT_ONCE = 25
DAYS = 300
TOPICS, A_USERS, TOPIC_WORDS = 400, 6, 40
AHEAD = 6
NOTE = "scale.json"


@dataclass(frozen=True, slots=True)
class Size:
    """`big` memories of one user beside `memories` of `users`, of which `copies` at a time differ in their ids only."""

    memories: int
    users: int
    big: int = 0
    copies: int = 1

    @property
    def name(self) -> str:
        return f"{self.memories}-{self.users}-{self.big}" + (f"-{self.copies}" if self.copies > 1 else "")

    @property
    def total(self) -> int:
        return self.memories + self.big

    @property
    def drawn(self) -> "Size":
        """What is drawn before it is copied."""
        return Size(self.memories // self.copies, self.users // self.copies, self.big)

    def parts(self) -> list[tuple[int, int]]:
        """Whose turn it is, and for which time, in the order of time; each time brings `AT_ONCE` memories."""
        each = self.memories // self.users // AT_ONCE
        turns = [number for number in range(self.users) for _ in range(each)] + [BIG] * (self.big // AT_ONCE)
        random.Random(1).shuffle(turns)
        seen: dict[int, Iterator[int]] = {}
        return [(number, next(seen.setdefault(number, count()))) for number in turns]


SMALL = Size(10_000, 100)


def build(folder: Path, size: Size) -> float | None:
    """Makes the store, unless it is there already; how many memories a second, None where it was there."""
    directory = folder / size.name
    note = directory / NOTE
    if note.exists():
        return None
    if directory.exists():
        sys.exit(f"{directory} was not finished: remove it.")
    started = time.perf_counter()
    asyncio.run(_load(directory, size.drawn))
    if size.copies > 1:
        multiply(directory, size.drawn.users, size.copies, AT_ONCE)
    rate = size.total / (time.perf_counter() - started)
    note.write_text(json.dumps(asdict(size) | {"a second": round(rate)}) + "\n", encoding="utf-8")
    return rate


async def _load(directory: Path, size: Size) -> None:
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    started, done = time.perf_counter(), 0
    try:
        for records in _produced(size):
            done += await store.load(MEMORIES, records)
            if done % 100_000 < len(records):
                print(f"  {done:,} loaded, {done / (time.perf_counter() - started):,.0f}/s", file=sys.stderr)
    finally:
        await store.close()


def _produced(size: Size) -> Iterator[list[Record]]:
    """In order, made by other processes, a few pieces ahead."""
    parts = list(enumerate(size.parts()))
    step = timedelta(days=DAYS) / len(parts)
    start = datetime.now(UTC) - timedelta(days=DAYS)
    pieces = [parts[at : at + 80] for at in range(0, len(parts), 80)]
    waiting: deque[Future[list[Record]]] = deque()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        left = iter(pieces)
        waiting.extend(pool.submit(made, piece, start, step) for piece in islice(left, AHEAD))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(made, piece, start, step) for piece in islice(left, 1))


def made(piece: Sequence[tuple[int, tuple[int, int]]], start: datetime, step: timedelta) -> list[Record]:
    return [one for place, (number, turn) in piece for one in _memories(number, turn, place, start + step * place)]


def _memories(number: int, turn: int, seed: int, moment: datetime) -> Iterator[Record]:
    texts, vectors = Texts(seed), np.random.default_rng(seed)
    speakers = [NAMES[number % len(NAMES)], NAMES[(number + 5) % len(NAMES)]]
    for at in range(AT_ONCE):
        topic = _topics_of(number)[(turn + at // 5) % A_USERS]
        said = turn % 2 == 1
        when = rfc3339(moment + timedelta(seconds=20 * at))
        session = {"origin": "message", "session_id": f"s-{number}-{turn}", "message_seq": at + 1}
        fields: dict[str, Any] = {
            **owner(number),
            "content": f"{texts.memory()[:-1]} {_topic_words(topic, seed + at)}.",
            "memory_type": "message" if said else "fact",
            "importance": 0.3 if said else round(0.3 + 0.6 * float(vectors.random()), 2),
            "tags": [f"topic-{topic}"] if at % 4 == 0 else [],
            "event_at": when if said else None,
        }
        source = {**session, "speaker": speakers[at % 2]} if said else {}
        yield record(new_memory(fields, source, when, unique=not said), _vector(topic, vectors))


def record(doc: Doc, vector: Floats) -> Record:
    """A memory of tenant `default`, as another store would export it."""
    doc, entry = embedded(doc, vector)
    assert MEMORIES.searched is not None
    return Record(doc, pack(MEMORIES.searched, doc, entry, 0), "")


def _vector(topic: int, random_numbers: np.random.Generator) -> Floats:
    """Of unit length: a part common to all, the topic's, and noise."""
    common, topics = _centres()
    mixed = 0.25 * common + 0.6 * topics[topic] + random_numbers.standard_normal(DIM) / DIM**0.5
    unit: Floats = (mixed / np.linalg.norm(mixed)).astype(np.float32)
    return unit


@cache
def _centres() -> tuple[Floats, Floats]:
    """(DIM,) and (TOPICS, DIM), of unit length."""
    drawn = np.random.default_rng(3).standard_normal((TOPICS + 1, DIM)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn[0], drawn[1:]


@cache
def _topics_of(number: int) -> list[int]:
    return random.Random(number).sample(range(TOPICS), A_USERS)


@cache
def _words_of(topic: int) -> list[str]:
    return Texts(topic).any(TOPIC_WORDS)


def _topic_words(topic: int, at: int) -> str:
    words = _words_of(topic)
    return " ".join(words[(at * step) % len(words)] for step in (3, 7, 11))
