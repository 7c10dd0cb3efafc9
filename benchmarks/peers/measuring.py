"""What is measured of one product: a load, searches, memory and a start, in one run of a few minutes."""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

from app.core.prompt_text import count
from benchmarks.evaluation.sets import World
from benchmarks.harness import Connection, Server, megabytes
from benchmarks.load import Client, Load, Timing, encoded
from benchmarks.peers.products import Place, Product, Request

CALLERS, BULK_CALLERS, KNOWN, HITS = 16, 4, 16, 10
WARM_UP = 10
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Size:
    """`memories` of all `users`; `alone` of them are added one by one. The others are numbers of searches."""

    memories: int
    users: int
    alone: int
    new: int
    known: int
    new_together: int
    known_together: int


FULL = Size(1_600, 10, alone=200, new=300, known=300, new_together=480, known_together=960)
QUICK = Size(320, 10, alone=40, new=60, known=60, new_together=64, known_together=160)


@dataclass(frozen=True, slots=True)
class Asked:
    query: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class User:
    texts: list[str]
    questions: list[Asked]


def users_of(worlds: Sequence[World], size: Size) -> list[User]:
    """As many users, each with as many texts: of one world, of a part of a long one, or of several that are short.

    A text is what was said, after its speaker's name; nothing is stored twice for a user. A question is asked if all
    that answers it is stored. Raises ValueError for too few texts."""
    each, users = size.memories // size.users, list[User]()
    waiting = iter([part for world in worlds for part in _parts(world, each)])
    while len(users) < size.users:
        texts: dict[str, None] = {}
        questions = list[Asked]()
        while len(texts) < each:
            world = next(waiting, None)
            if world is None:
                raise ValueError(f"the texts are enough for {len(users)} users with {each} memories, not {size.users}")
            own = {item.content: f"{item.name}: {item.content}" if item.name else item.content for item in world.items}
            texts |= dict.fromkeys(own[content] for content in own if content.strip())
            kept = dict(list(texts.items())[:each])
            for question in world.questions:
                evidence = tuple(own.get(content, "") for content in question.evidence)
                if evidence and all(text in kept for text in evidence):
                    questions.append(Asked(question.query, evidence))
        users.append(User(list(texts)[:each], questions))
    return users


def _parts(world: World, each: int) -> Iterator[World]:
    """A world of so many texts that several users have enough, in parts; an end that is too short is left out."""
    for at in range(0, max(each, len(world.items) - each + 1), each):
        yield replace(world, items=world.items[at : at + each])


def turns(users: Sequence[User]) -> Iterator[tuple[str, Asked]]:
    """The first question of each user, then the second one of each, and so on."""
    for at in range(max(len(user.questions) for user in users)):
        yield from ((str(number), user.questions[at]) for number, user in enumerate(users) if at < len(user.questions))


# --- Processes --------------------------------------------------------------------------------------------------------


def tree(roots: Sequence[int]) -> list[int]:
    """The processes and all that they started (Linux)."""
    parents = dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended since
            continue
    found = list(roots)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def roots_of(server: Server, folder: Path) -> list[int]:
    """The server, and a PostgreSQL in its folder, which is a child of nobody's."""
    return [server.pid, *(int(file.read_text().split()[0]) for file in folder.rglob("postmaster.pid"))]


def seconds_of(pids: Sequence[int]) -> float:
    """Processor time of the processes, with that of children that have ended."""
    spent = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent += sum(map(int, fields[11:15]))
    return spent / TICKS


# --- Requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phase:
    """`own`, `embedding`: milliseconds of a core for one request, of the product and of the embedding service."""

    timing: Timing
    own: float
    embedding: float

    def ms(self, share: int) -> float:
        return round(self.timing.percentile(share) * 1000, 2)


@dataclass(frozen=True, slots=True)
class Driver:
    client: Client
    product: Product
    server: Server
    folder: Path
    embedding: Server

    def run(self, requests: Sequence[Request], callers: int) -> Phase:
        pids, beside = tree(roots_of(self.server, self.folder)), tree([self.embedding.pid])
        own, embedding = seconds_of(pids), seconds_of(beside)
        timing = self._in_process(requests, callers) if self.product.in_process else self._load(requests, callers)
        each = 1000 / len(requests)
        pids = [*pids, *(pid for pid in tree(roots_of(self.server, self.folder)) if pid not in pids)]
        return Phase(timing, (seconds_of(pids) - own) * each, (seconds_of(beside) - embedding) * each)

    def _load(self, requests: Sequence[Request], callers: int) -> Timing:
        bodies = [encoded(request.body) for request in requests]
        load = Load(self.server.port, "", bodies, callers, len(bodies), [request.path for request in requests])
        return self.client.run(load, keep=True)

    def _in_process(self, requests: Sequence[Request], callers: int) -> Timing:
        (path,) = {request.path for request in requests}
        body = {"path": path, "bodies": [request.body for request in requests], "callers": callers}
        with closing(Connection(self.server.url)) as connection:
            made = json.loads(connection.ask("POST", "/in_process", body | {"requests": len(requests)}))
        answers = [answer.encode() for answer in made["answers"]]
        return Timing(made["seconds"], [], made["elapsed"], 0, len(answers[0]), answers)


# --- One product ------------------------------------------------------------------------------------------------------


def measured(product: Product, place: Place, users: Sequence[User], size: Size, embedding: Server) -> dict[str, Any]:
    """The figures of a product, in the order of the table."""
    figures: dict[str, Any] = {}
    with Client() as client:
        alone = [encoded({"input": f"{text} (alone)"}) for user in users for text in user.texts[:20]]
        taken = client.run(Load(embedding.port, "/v1/embeddings", alone, 1, len(alone)))
        with product.start(place) as server:
            driver = Driver(client, product, server, place.folder, embedding)
            figures |= _writes(driver, users, size)
            figures |= _searches(driver, users, size)
            held = [megabytes(pid, "Pss")[0] for pid in tree(roots_of(server, place.folder))]
        started = time.perf_counter()
        with product.start(place) as server:
            again = Driver(client, product, server, place.folder, embedding)
            again.run([product.search("0", users[0].questions[0].query)], 1)
            figures["start with the memories, to the first answer, s"] = round(time.perf_counter() - started, 1)
        figures["memory after the load, MB (PSS)"] = round(sum(held))
        figures["embedding service alone just before, p50 ms"] = round(taken.p50 * 1000, 2)
    return figures


def _writes(driver: Driver, users: Sequence[User], size: Size) -> dict[str, Any]:
    """Each user's last texts are added one by one, in turn; all others before that, in batches."""
    product, single = driver.product, size.alone // len(users)
    bulk = [
        product.add(str(number), user.texts[at : min(at + product.batch, len(user.texts) - single)])
        for number, user in enumerate(users)
        for at in range(0, len(user.texts) - single, product.batch)
    ]
    alone = [
        product.add(str(number), [user.texts[at]]) for at in range(-single, 0) for number, user in enumerate(users)
    ]
    loaded = driver.run(bulk, 1 if product.batch > 1 else BULK_CALLERS)
    added = driver.run(alone, 1)
    texts = sum(len(user.texts) - single for user in users)
    return {
        "add, p50 ms": added.ms(50),
        "add, p95 ms": added.ms(95),
        "bulk load, texts/s": round(texts / loaded.timing.elapsed),
        "bulk load, ms of a core a text": round((loaded.own + loaded.embedding) * len(bulk) / texts, 2),
    }


def _searches(driver: Driver, users: Sequence[User], size: Size) -> dict[str, Any]:
    """A new query was never asked before; a known one was, and its vector is at hand somewhere."""
    product = driver.product
    asked = list(turns(users))

    def numbered(first: int, wanted: int) -> list[Request]:
        """Questions that the number makes new."""
        chosen = (asked[at % len(asked)] for at in range(first, first + wanted))
        return [product.search(user, f"{question.query} ({at})") for at, (user, question) in enumerate(chosen, first)]

    driver.run(numbered(0, WARM_UP), 1)
    alone = driver.run([product.search(user, question.query) for user, question in asked[: size.new]], 1)
    known = [product.search(user, question.query) for user, question in asked[:KNOWN]]
    again = driver.run(list(chain.from_iterable([known] * math.ceil(size.known / KNOWN))), 1)
    driver.run(numbered(WARM_UP, 2 * CALLERS), CALLERS)  # connections are made, too
    together = driver.run(numbered(WARM_UP + 2 * CALLERS, size.new_together), CALLERS)
    all_known = driver.run(list(chain.from_iterable([known] * math.ceil(size.known_together / KNOWN))), CALLERS)
    found = [product.texts(json.loads(answer))[:HITS] for answer in alone.timing.answers]
    shares = [recalled(texts, question) for texts, (_, question) in zip(found, asked, strict=False)]
    return {
        "search, new query, p50 ms": alone.ms(50),
        "search, new query, p95 ms": alone.ms(95),
        "search, known query, p50 ms": again.ms(50),
        "search, known query, p95 ms": again.ms(95),
        f"new queries/s, {CALLERS} callers": round(together.timing.rate),
        f"known queries/s, {CALLERS} callers": round(all_known.timing.rate),
        "new query, ms of a core": round(together.own + together.embedding, 2),
        "of it the embedding service": round(together.embedding, 2),
        "known query, ms of a core": round(all_known.own + all_known.embedding, 2),
        f"recall@{HITS}": round(mean(shares), 3),
        f"hits, at most {HITS}": round(mean(map(len, found)), 1),
        "tokens of the hits": round(mean(count("\n".join(f"- {text}" for text in texts)) for texts in found)),
    }


def recalled(found: Sequence[str], asked: Asked) -> float:
    """The share of the texts that answer a question among those that were found; white space makes no difference."""
    had = {" ".join(text.split()) for text in found}
    return mean(" ".join(text.split()) in had for text in asked.evidence)
