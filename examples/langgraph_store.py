"""Recalld as LangGraph's long-term store. A namespace's second label names the user, as in `("memories", "ada")`;
shorter ones are the agent's own. Namespace and key become a memory's key, the value its metadata, prefixes its tags."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import httpx
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, Result, SearchItem


class RecalldStore(BaseStore):
    def __init__(self, http: httpx.Client, agent_id: str) -> None:
        self._http, self._agent = http, agent_id

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads see what was there before the batch."""
        asked = list(ops)
        found: list[Result] = [None if isinstance(op, PutOp) else self._read(op) for op in asked]
        for put in {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}.values():
            self._put(put)
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, ops)

    def _read(self, op: Any) -> Result:
        if isinstance(op, GetOp):
            return next((_item(one) for one in self._all(op.namespace, key=_name((*op.namespace, op.key)))), None)
        if isinstance(op, ListNamespacesOp):
            spaces = {_item(one).namespace for one in self._all(())}
            found = {s[: op.max_depth] for s in spaces if all(_fits(s, c) for c in op.match_conditions or ())}
            return sorted(found)[op.offset : op.offset + op.limit]
        prefix, end = op.namespace_prefix, op.offset + op.limit
        if op.query:
            asked = {"query": op.query, "metadata": op.filter or None, "tags": [_name(prefix)], "top_k": min(100, end)}
            hits = self._call("POST", "/search", json={**asked, **self._owner(prefix)})["items"]
            return [_item(hit["memory"], hit["score"]) for hit in hits[op.offset : end]]
        found, wanted = self._all(prefix, tag=_name(prefix)), (op.filter or {}).items()
        return [_item(one) for one in found if all(one["metadata"].get(k) == v for k, v in wanted)][op.offset : end]

    def _put(self, op: PutOp) -> Any:
        space, key = op.namespace, _name((*op.namespace, op.key))
        if op.value is None:
            return [self._call("DELETE", f"/{old['memory_id']}") for old in self._all(space, key=key)]
        texts = [op.value[name] for name in ("content", "text", "memory") if isinstance(op.value.get(name), str)]
        body = {"content": (texts or [""])[0] or json.dumps(op.value), "metadata": op.value, "deduplicate": False}
        tags = [_name(space[:depth]) for depth in range(len(space) + 1)]
        return self._call("POST", json={**self._owner(space), **body, "key": key, "tags": tags})

    def _all(self, namespace: tuple[str, ...], **where: str) -> Iterator[Any]:
        page: Any = {"next_cursor": ""}
        while page["next_cursor"] is not None:
            cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
            page = self._call("GET", params={**self._owner(namespace), **where, **cursor, "limit": 100})
            yield from (one for one in page["items"] if one["key"] and one["key"].startswith("ns/"))

    def _owner(self, namespace: tuple[str, ...]) -> dict[str, str]:
        return {"agent_id": self._agent, **({"user_id": namespace[1]} if len(namespace) > 1 else {})}

    def _call(self, method: str, path: str = "", **sent: Any) -> Any:
        answer = self._http.request(method, f"/v1/memories{path}", **sent).raise_for_status()
        return answer.json() if answer.content else None


def _name(labels: tuple[str, ...]) -> str:
    return "/".join(["ns", *(quote(label, safe="") for label in labels)])


def _item(memory: Any, score: float | None = None) -> SearchItem:
    *space, key = (unquote(label) for label in memory["key"].split("/")[1:])
    return SearchItem(tuple(space), key, memory["metadata"], memory["created_at"], memory["updated_at"], score)


def _fits(namespace: tuple[str, ...], condition: Any) -> bool:
    step = 1 if condition.match_type == "prefix" else -1
    path, labels = tuple(condition.path)[::step], namespace[::step]
    return len(path) <= len(labels) and all(a in ("*", b) for a, b in zip(path, labels, strict=False))
