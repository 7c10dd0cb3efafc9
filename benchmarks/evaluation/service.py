"""The calls of the API with which a user's memory is filled and asked: one client for all evaluations."""

import argparse
import json
import re
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, groupby
from typing import Any, TypeAlias

import httpx

from app.storage.text import content_hash
from benchmarks.evaluation import sets
from benchmarks.evaluation.sets import Item, Question, World
from benchmarks.harness import folder, recalld

ATTEMPTS = 3
"""An answer that names sections that failed, or an embedder that did not answer, is asked for again: that is the
machine's load, not the service's answer."""
REQUEST_SECONDS = 300
PENDING_SECONDS = 300
"""How long operations and the vectors of new memories are waited for."""
POLL_SECONDS = 0.05
OVER = ("succeeded", "partial", "failed")
"""States in which an operation has ended."""
BATCH_BYTES = 2_000_000
BATCH_ITEMS = 100

Owner: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """What is asked when the first items of a world are known."""

    questions: tuple[Question, ...]
    contents: dict[str, str]
    """The content of every memory stored so far, by its id."""
    now: dict[str, str]
    """The field `now` of a request; empty where neither the world nor its items have a time."""


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """The options of every evaluation that asks a running service."""
    parser.description = f"{parser.description}\n\n{sets.__doc__}"
    parser.add_argument("--url", help="a running service; without it one is started")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("--conversations", type=int, help="only the first N of each file")
    parser.add_argument("--limit", type=int, help="only N questions of each conversation, spread over all")
    parser.add_argument("--wall-clock", action="store_true", help="ask without `now`")


@contextmanager
def connection(url: str | None, key: str | None, *, background: bool = True) -> Iterator[httpx.Client]:
    """A client of the service at `url`; without `url`, of a fresh service that stops when the block ends.

    Without `background` the fresh service runs no background work: it holds what was stored, and nothing else."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with ExitStack() as stack:
        if url is None:
            data = stack.enter_context(folder())
            url = stack.enter_context(recalld(data, jobs=background)).url
        yield stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=REQUEST_SECONDS))


class Api:
    """Calls of the API. A refused one ends the program."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _read(self._client.request(method, path, json=body))

    def pages(self, path: str, **params: str) -> Iterator[dict[str, Any]]:
        """The items of all pages."""
        given = {**params, "limit": "100"}
        while True:
            page = _read(self._client.get(path, params=given))
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            given["cursor"] = page["next_cursor"]

    def ended(self, operation: dict[str, Any]) -> dict[str, Any]:
        """The operation once it has ended."""
        deadline = time.monotonic() + PENDING_SECONDS
        while operation["status"] not in OVER:
            if time.monotonic() > deadline:
                sys.exit(f"{operation['operation_id']} is {operation['status']} after {PENDING_SECONDS} s.")
            time.sleep(POLL_SECONDS)
            operation = self.send("GET", f"/v1/operations/{operation['operation_id']}")
        return operation

    def embedded(self, owner: Owner) -> list[dict[str, Any]]:
        """The memories of a user once all have their vectors."""
        deadline = time.monotonic() + PENDING_SECONDS
        while True:
            memories = list(self.pages("/v1/memories", **owner))
            pending = sum(memory["embedding"]["status"] == "pending" for memory in memories)
            if not pending:
                return memories
            if time.monotonic() > deadline:
                sys.exit(f"{owner['user_id']}: {pending} memories have no vector after {PENDING_SECONDS} s.")
            time.sleep(POLL_SECONDS)


class Service(Api):
    """The calls of the API that the evaluations need, for one user at a time."""

    def __init__(self, client: httpx.Client, *, reflects: bool = False) -> None:
        """With `reflects`, the service reflects on what it knows before it is asked."""
        super().__init__(client)
        self._reflects = reflects
        self._run = uuid.uuid4().hex[:8]
        self.agent = f"evaluation-{self._run}"

    def owner(self, world: World) -> Owner:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", world.name)
        return {"agent_id": self.agent, "user_id": f"{name}-{self._run}"}

    def upload(self, name: str, media_type: str, file: bytes) -> dict[str, Any]:
        """The operation that reads a file as a document of the agent."""
        params, headers = {"name": name, "agent_id": self.agent}, {"content-type": media_type}
        operation: dict[str, Any] = _read(
            self._client.post("/v1/documents", params=params, content=file, headers=headers)
        )
        return operation

    def steps(self, world: World, owner: Owner) -> Iterator[Step]:
        """Prepares the world, and stores its items as the questions need them to be known.

        Ends the program when the service does not hold an item that it was given."""
        self.prepare(world, owner)
        known = 0
        for after, questions in groupby(sorted(world.questions, key=lambda each: each.after), lambda each: each.after):
            self.remember(world.items[known:after], owner)
            known = max(known, after)
            contents = self.contents(owner)
            _require(world, known, contents)
            if self._reflects:
                self.reflect(owner)
            now = {"now": world.now} if world.now else now_after(world.items[:known])
            yield Step(tuple(questions), contents, now)

    def prepare(self, world: World, owner: Owner) -> None:
        for call in world.setup:
            body = call.body
            if "items" in body:
                body = {"items": [{**item, **owner} for item in body["items"]]}
            elif call.owned:
                body = {**body, **owner}
            self.send(call.method, call.path.format(user_id=owner["user_id"]), body)

    def remember(self, items: Sequence[Item], owner: Owner) -> None:
        for session, of_session in groupby(items, lambda item: item.session):
            for batch in _batches(of_session):
                if session is None:
                    self.send("POST", "/v1/memories/batch", {"items": [{**owner, **_fact(item)} for item in batch]})
                else:
                    messages = [_message(item) for item in batch]
                    path = f"/v1/sessions/{session_id(owner, session)}/messages"
                    self.send("POST", path, {**owner, "memorize": "messages", "messages": messages})

    def reflect(self, owner: Owner) -> None:
        """Has the service look for contradictions, and says how many it found."""
        done = self.ended(self.send("POST", "/v1/reflect", dict(owner)))
        found = (done["result"] or {}).get("found")
        print(f"{owner['user_id']}: reflection {done['status']}, {found} found", file=sys.stderr)

    def contents(self, owner: Owner) -> dict[str, str]:
        """The content of every memory of the user, by its id, once all that is waited for is there."""
        return {memory["memory_id"]: memory["content"] for memory in self.embedded(owner)}

    def search(self, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer, and the milliseconds that its caller waited for it."""
        for attempt in count(1):
            start = time.perf_counter()
            reply = self._client.post("/v1/memories/search", json=body)
            waited = (time.perf_counter() - start) * 1000
            if "embedding_unavailable" not in _codes(reply):
                return _read(reply), waited
            if attempt == ATTEMPTS:
                sys.exit(f"A search went without its vector {ATTEMPTS} times: {reply.text[:500]}")
        raise AssertionError

    def context(self, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The answer, and whether it still lacks a section after ATTEMPTS calls."""
        for attempt in count(1):
            answer = self.send("POST", "/v1/context", body)
            degraded = bool(answer["errors"]) or "embedding_unavailable" in json.dumps(answer["warnings"])
            if not degraded or attempt == ATTEMPTS:
                return answer, degraded
        raise AssertionError


def now_after(items: Sequence[Item]) -> dict[str, str]:
    """The field `now` of a request: a second after the last of the items. Empty where none has a time."""
    times = [item.time for item in items if item.time]
    return {"now": (max(times) + timedelta(seconds=1)).isoformat()} if times else {}


def session_id(owner: Owner, session: str) -> str:
    return f"{owner['user_id']}-{session}"


def _require(world: World, known: int, contents: dict[str, str]) -> None:
    stored = {content_hash(content) for content in contents.values()}
    if missing := [item.content[:80] for item in world.items[:known] if content_hash(item.content) not in stored]:
        sys.exit(f"{world.name}: the service does not hold {len(missing)} of {known} items: {missing[:3]}")


def _codes(reply: httpx.Response) -> list[str]:
    """Codes of a search's warnings, or of the error that it is."""
    answer = reply.json()
    return [answer["code"]] if reply.is_error else [warning["code"] for warning in answer["warnings"]]


def _read(reply: httpx.Response) -> Any:
    if reply.is_error:
        sys.exit(f"{reply.request.method} {reply.request.url.path}: {reply.status_code} {reply.text[:500]}")
    return reply.json() if reply.content else None


def _fact(item: Item) -> dict[str, Any]:
    return {"content": item.content, **_time("event_at", item)}


def _message(item: Item) -> dict[str, Any]:
    named = {"name": item.name} if item.name else {}
    return {"role": item.role, **named, "content": item.content, **_time("timestamp", item)}


def _time(field: str, item: Item) -> dict[str, str]:
    return {field: item.time.isoformat()} if item.time else {}


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        more = len(json.dumps(item.content)) + 200
        if batch and (len(batch) == BATCH_ITEMS or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch
