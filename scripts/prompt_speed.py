"""What a context of 2,000 tokens costs beside a search of the same memories: the timing part of evaluate_prompts.py."""

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean, quantiles
from typing import Any
from urllib.parse import urlsplit

import httpx

from scripts.evaluation.service import Service, now_after
from scripts.evaluation.sets import World

MEMORIES = 1000
QUERIES = 32
ROUNDS = 10
BUDGET = 2000
TOP_K = 10
TARGET = 4.0


def measure(client: httpx.Client, worlds: Sequence[World]) -> dict[str, Any]:
    """One user with the first MEMORIES items of all worlds; a search and a context take turns, one request at a time.

    The queries are asked once before, so that their vectors are cached. `now` keeps both from recording accesses."""
    world = _joined(worlds)
    service = Service(client)
    owner = service.owner(world)
    service.remember(world.items, owner)
    now = now_after(world.items)
    asked = [{**owner, "query": question.query, **now} for question in world.questions]
    searches = [{**body, "top_k": TOP_K, "record_access": False} for body in asked]
    contexts = [{**body, "token_budget": BUDGET} for body in asked]
    caller = _Caller(client)
    used = [caller.post("/v1/context", body)[1]["tokens"] for body in contexts]
    times: dict[str, list[float]] = {"search": [], "context": []}
    for _ in range(ROUNDS):
        for search, context in zip(searches, contexts, strict=True):
            times["search"].append(caller.post("/v1/memories/search", search)[0])
            times["context"].append(caller.post("/v1/context", context)[0])
    figures = {name: _percentiles(values) for name, values in times.items()}
    ratio = round(figures["context"]["p50"] / figures["search"]["p50"], 2)
    size = {"memories": len(world.items), "queries": len(asked), "tokens": round(fmean(used), 1)}
    return {**size, **figures, "ratio": ratio, "target": TARGET}


def table(result: dict[str, Any]) -> str:
    lines = ["| request | p50 ms | p95 ms |", "|---|--:|--:|"]
    lines += [f"| {name} | {result[name]['p50']} | {result[name]['p95']} |" for name in ("search", "context")]
    said = f"{result['memories']} memories, {result['queries']} queries, {result['tokens']:.0f} tokens at the mean"
    return "\n".join((*lines, f"\nContext, × search at p50: {result['ratio']} (target {result['target']}). {said}."))


class _Caller:
    """Posts over one kept-alive connection; the time is from the request's first byte to the answer's last."""

    def __init__(self, client: httpx.Client) -> None:
        address = urlsplit(str(client.base_url))
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(address.hostname or "127.0.0.1", address.port, timeout=60)
        key = client.headers.get("authorization")
        self._headers = {"content-type": "application/json", **({"authorization": key} if key else {})}

    def post(self, path: str, body: dict[str, Any]) -> tuple[float, Any]:
        """Milliseconds, and the answer."""
        sent = json.dumps(body).encode()
        start = time.perf_counter()
        self._connection.request("POST", path, sent, self._headers)
        reply = self._connection.getresponse()
        read = reply.read()
        took = (time.perf_counter() - start) * 1000
        if reply.status != http.client.OK:
            raise RuntimeError(f"{path}: {reply.status} {read[:500].decode(errors='replace')}")
        return took, json.loads(read)


def _joined(worlds: Sequence[World]) -> World:
    """Sessions of different worlds stay apart."""
    every = (
        replace(item, session=item.session and f"{at}-{item.session}")
        for at, world in enumerate(worlds)
        for item in world.items
    )
    items = tuple(islice(every, MEMORIES))
    if not items:
        raise ValueError("The speed is measured on conversations: name a file of them with --data.")
    return World("speed", items, worlds[0].questions[:QUERIES])


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2)}
