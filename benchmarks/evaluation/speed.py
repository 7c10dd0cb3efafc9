"""A context of 2,000 tokens beside a search of the same memories: `evaluate prompts --speed`."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean

import httpx

from benchmarks.evaluation.service import Service, now_after
from benchmarks.evaluation.sets import World
from benchmarks.harness import Connection, Row, alternate, p50_p95, percentile

MEMORIES = 1000
QUERIES = 32
ROUNDS = 10
BUDGET = 2000
TOP_K = 10
TARGET = 4.0
"""Highest p50 as a multiple of the search's."""


def measure(client: httpx.Client, worlds: Sequence[World]) -> list[Row]:
    """One user with the first MEMORIES items of all worlds; a search and a context take turns, one request at a time.

    The queries are asked once before, so that their vectors are cached. `now` keeps both from recording accesses."""
    world = _joined(worlds)
    service = Service(client)
    owner = service.owner(world)
    service.remember(world.items, owner)
    asked = [{**owner, "query": question.query, **now_after(world.items)} for question in world.questions]
    searches = [{**body, "top_k": TOP_K, "record_access": False} for body in asked]
    contexts = [{**body, "token_budget": BUDGET} for body in asked]
    key = client.headers.get("authorization")
    api = Connection(str(client.base_url), {"authorization": key} if key else {})
    used = [json.loads(api.ask("POST", "/v1/context", body))["tokens"] for body in contexts]
    calls = {
        "search": lambda at: api.ask("POST", "/v1/memories/search", searches[at % len(asked)]),
        "context": lambda at: api.ask("POST", "/v1/context", contexts[at % len(asked)]),
    }
    times = asyncio.run(alternate(calls, ROUNDS * len(asked)))
    ratio = percentile(times["context"], 50) / percentile(times["search"], 50)
    size = {"memories": len(world.items), "queries": len(asked), "tokens": round(fmean(used), 1)}
    rows: list[Row] = [{"request": name, **p50_p95(taken), **size} for name, taken in times.items()]
    rows[1] |= {"× search": round(ratio, 2), "target": TARGET}
    return rows


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
