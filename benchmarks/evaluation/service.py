"""The calls of the API with which a user's memory is filled and asked: one client for all evaluations."""

import json
import re
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, groupby
from typing import Any, TypeAlias

import httpx

from app.sessions.service import LEARN_EVERY
from app.storage.text import content_hash
from benchmarks.evaluation.sets import Item, Question, World

ATTEMPTS = 3
"""An answer that names sections that failed, or an embedder that did not answer, is asked for again: that is the
machine's load, not the service's answer."""
PENDING_SECONDS = 300
"""How long the vectors of new memories, and the summaries of their sessions, are waited for."""
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


class Service:
    """The calls of the API that the evaluations need, for one user at a time."""

    def __init__(self, client: httpx.Client, *, summaries: bool = False, reflects: bool = False) -> None:
        """With `summaries`, nothing is asked before every session that is long enough has its summary. With
        `reflects`, the service reflects on what it knows before it is asked."""
        self._client, self._summaries, self._reflects = client, summaries, reflects
        self._run = uuid.uuid4().hex[:8]

    def owner(self, world: World) -> Owner:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", world.name)
        return {"agent_id": f"evaluation-{self._run}", "user_id": f"{name}-{self._run}"}

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
            self._send(call.method, call.path.format(user_id=owner["user_id"]), body)

    def remember(self, items: Sequence[Item], owner: Owner) -> None:
        for session, of_session in groupby(items, lambda item: item.session):
            for batch in _batches(of_session):
                if session is None:
                    self._send("POST", "/v1/memories/batch", {"items": [{**owner, **_fact(item)} for item in batch]})
                else:
                    messages = [_message(item) for item in batch]
                    path = f"/v1/sessions/{session_id(owner, session)}/messages"
                    self._send("POST", path, {**owner, "memorize": "messages", "messages": messages})

    def reflect(self, owner: Owner) -> None:
        """Has the service look for contradictions, and says how many it found."""
        done = self._send("POST", "/v1/reflect", dict(owner))
        deadline = time.monotonic() + PENDING_SECONDS
        while done["status"] not in ("succeeded", "partial", "failed") and time.monotonic() < deadline:
            time.sleep(0.1)
            done = self._send("GET", f"/v1/operations/{done['operation_id']}", {})
        result = done["result"] or {}
        print(f"{owner['user_id']}: reflection {done['status']}, {result.get('found')} found", file=sys.stderr)

    def contents(self, owner: Owner) -> dict[str, str]:
        """The content of every memory of the user, by its id, once all that is waited for is there."""
        deadline = time.monotonic() + PENDING_SECONDS
        while True:
            memories = list(self._list("/v1/memories", owner))
            lacking = self._lacking(memories, owner)
            if not lacking:
                return {memory["memory_id"]: memory["content"] for memory in memories}
            if time.monotonic() > deadline:
                sys.exit(f"{owner['user_id']}: {lacking} after {PENDING_SECONDS} s.")
            time.sleep(1)

    def _lacking(self, memories: Sequence[dict[str, Any]], owner: Owner) -> str | None:
        """What is waited for, in words."""
        if vectors := sum(memory["embedding"]["status"] == "pending" for memory in memories):
            return f"{vectors} memories have no vector"
        sessions = self._list("/v1/sessions", owner) if self._summaries else ()
        summaries = sum(not each["summary"] and each["message_count"] >= LEARN_EVERY for each in sessions)
        return f"{summaries} sessions have no summary" if summaries else None

    def _list(self, path: str, owner: Owner) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            params = {**owner, "limit": "100", **({"cursor": cursor} if cursor else {})}
            reply = self._client.get(path, params=params)
            page = reply.raise_for_status().json()
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

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
            answer = self._send("POST", "/v1/context", body)
            degraded = bool(answer["errors"]) or "embedding_unavailable" in json.dumps(answer["warnings"])
            if not degraded or attempt == ATTEMPTS:
                return answer, degraded
        raise AssertionError

    def _send(self, method: str, path: str, body: dict[str, Any]) -> Any:
        return _read(self._client.request(method, path, json=body))


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
    return reply.json()


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
