"""The calls of the API with which evaluate_prompts.py fills a user's memory and asks for prompts."""

import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from typing import Any, TypeAlias

import httpx

from scripts.prompt_sets import Item, World

ATTEMPTS = 3
"""An answer that names sections that failed, or an embedder that did not answer, is asked for again: that is the
machine's load, not the prompt."""
BATCH_BYTES = 2_000_000
BATCH_ITEMS = 100

Owner: TypeAlias = dict[str, str]


class Service:
    """The calls of the API that the benchmark needs, for one user at a time."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._run = uuid.uuid4().hex[:8]

    def owner(self, world: World) -> Owner:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", world.name)
        return {"agent_id": f"prompts-{self._run}", "user_id": f"{name}-{self._run}"}

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
                    facts = [{**owner, "content": i.content, "event_at": i.time.isoformat()} for i in batch]
                    self._send("POST", "/v1/memories/batch", {"items": facts})
                else:
                    messages = [_message(item) for item in batch]
                    path = f"/v1/sessions/{owner['user_id']}-{session}/messages"
                    self._send("POST", path, {**owner, "memorize": "messages", "messages": messages})

    def contents(self, owner: Owner) -> dict[str, str]:
        """The content of every memory of the user, by its id."""
        found: dict[str, str] = {}
        cursor: str | None = None
        while True:
            params = {**owner, "limit": "100", **({"cursor": cursor} if cursor else {})}
            reply = self._client.get("/v1/memories", params=params)
            page = reply.raise_for_status().json()
            found |= {memory["memory_id"]: memory["content"] for memory in page["items"]}
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def context(self, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The answer, and whether it still lacks a section after ATTEMPTS calls."""
        for attempt in count(1):
            answer = self._send("POST", "/v1/context", body)
            degraded = bool(answer["errors"]) or "embedding_unavailable" in json.dumps(answer["warnings"])
            if not degraded or attempt == ATTEMPTS:
                return answer, degraded
        raise AssertionError

    def _send(self, method: str, path: str, body: dict[str, Any]) -> Any:
        reply = self._client.request(method, path, json=body)
        if reply.is_error:
            sys.exit(f"{method} {path}: {reply.status_code} {reply.text[:500]}")
        return reply.json()


def _message(item: Item) -> dict[str, Any]:
    named = {"name": item.name} if item.name else {}
    return {"role": item.role, **named, "content": item.content, "timestamp": item.time.isoformat()}


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
