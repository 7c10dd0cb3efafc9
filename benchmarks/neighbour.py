"""What a neighbour notices of callers who ask for much, or send much.

    scripts/benchmark neighbour --messages 130 --callers 3

A session has so many messages of 32,000 characters, which are memories, too. While callers ask for its context,
`/livez` and the search of another agent are asked. To store the messages takes a minute or two. Then one caller at a
time sends the largest bodies, and asks for the largest answers, of characters that prompts escape.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from benchmarks.data import Texts
from benchmarks.harness import Connection, Row, Section, folder, percentile, recalld

CHARACTERS = 32_000
LIVE_MS, TIMES_IDLE = 100.0, 3.0
"""Highest p95 of `/livez`, and highest p50 of the search as a multiple of what it is without callers."""
PAUSE_SECONDS = 0.02
AWKWARD = "a & b < c <system> \u202e&lt; \u200b[INST] "
NOTES = 50
MCP_HEADERS = {"accept": "application/json, text/event-stream"}
GREEDY = {"agent_id": "greedy", "user_id": "ada"}
MODEST = {"agent_id": "modest", "user_id": "ben"}


def long_text(texts: Texts) -> str:
    text = ""
    while len(text) < CHARACTERS:
        text += f"{texts.memory()} "
    return text[:CHARACTERS]


def again(url: str, method: str, path: str, body: Any, ended: threading.Event) -> list[float]:
    """Asks until `ended`, and returns the milliseconds of each answer."""
    to, taken = Connection(url, MCP_HEADERS if path == "/mcp" else None), list[float]()
    while not ended.is_set():
        started = time.perf_counter()
        with suppress(RuntimeError):  # a refusal is an answer, too
            to.ask(method, path, body)
        taken.append((time.perf_counter() - started) * 1000)
        time.sleep(PAUSE_SECONDS)
    to.close()
    return taken


def beside(url: str, callers: int, seconds: float, question: str) -> Row:
    """The figures while so many callers ask for the context."""
    ended = threading.Event()
    context = {**GREEDY, "session_id": "long", "query": question}
    search = {**MODEST, "query": "tea and trains", "record_access": False}
    with ThreadPoolExecutor(callers + 2) as threads:
        live = threads.submit(again, url, "GET", "/livez", None, ended)
        found = threads.submit(again, url, "POST", "/v1/memories/search", search, ended)
        asked = [threads.submit(again, url, "POST", "/v1/context", context, ended) for _ in range(callers)]
        try:
            time.sleep(seconds)
        finally:
            ended.set()
    contexts = [took for each in asked for took in each.result()]
    return {
        "callers": callers,
        "livez p95 ms": round(percentile(live.result(), 95), 1),
        "search p50 ms": round(percentile(found.result(), 50), 1),
        "contexts": len(contexts),
        "context p50 ms": round(percentile(contexts, 50)) if contexts else None,
    }


def tool(name: str, **arguments: Any) -> Row:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def entrances() -> dict[str, tuple[str, str, Any]]:
    """The entrances that take or give most, each with a request. Those that are refused count, too."""
    large = AWKWARD * ((4 << 20) // len(AWKWARD.encode()) - 100)
    messages = [{"role": "user", "content": (AWKWARD * 1_000)[:CHARACTERS]} for _ in range(100)]
    notes = {"user_id": "awkward", "agent_id": "greedy"}
    return {
        "MCP call of 4 MB": ("POST", "/mcp", tool("remember", **notes, content=large)),
        "MCP list of long notes": ("POST", "/mcp", tool("list_memories", **notes, limit=NOTES)),
        "messages of 3 MB": ("POST", "/v1/memories/extract", {**notes, "messages": messages}),
        "experience prompt": ("GET", "/v1/agents/greedy/experience-prompt?user_id=awkward&max_tokens=1000000", None),
        "context": ("POST", "/v1/context", {**notes, "query": "<system> &", "token_budget": 200_000, "fill": True}),
        "search": ("POST", "/v1/memories/search", {**notes, "query": "<system> &", "top_k": 100}),
        "export": ("GET", "/v1/users/awkward/export", None),
    }


def flooded(url: str, seconds: float, request: tuple[str, str, Any]) -> Row:
    """The figures while one caller sends that request again and again."""
    method, path, body = request
    sent = None if body is None else json.dumps(body).encode()  # once: this process measures, too
    ended = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        live = threads.submit(again, url, "GET", "/livez", None, ended)
        asked = threads.submit(again, url, method, path, sent, ended)
        try:
            time.sleep(seconds)
        finally:
            ended.set()
    return {"livez p95 ms": round(percentile(live.result(), 95), 1), "requests": len(asked.result())}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=130)
    parser.add_argument("--callers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)


def run(options: argparse.Namespace) -> Iterator[Section]:
    texts = Texts(7)
    with folder() as directory, recalld(directory, jobs=False, RECALLD_LIMITS_COST_PER_SECOND="0") as server:
        to = Connection(server.url)
        for number in range(50):
            to.ask("POST", "/v1/memories", {**MODEST, "content": f"Note {number} about tea and trains."})
        for _ in range(options.messages):
            said = {**GREEDY, "messages": [{"role": "user", "content": long_text(texts)}]}
            to.ask("POST", "/v1/sessions/long/messages", said)
        question = texts.question(1)
        idle = beside(server.url, 0, options.seconds / 3, question)
        busy = beside(server.url, options.callers, options.seconds, question)
        busy["× idle"] = round(busy["search p50 ms"] / idle["search p50 ms"], 2)
        met = busy["livez p95 ms"] <= LIVE_MS and busy["× idle"] <= TIMES_IDLE
        yield Section(f"{options.messages} messages of {CHARACTERS:,} characters", [idle, busy], met)
        for number in range(NOTES):
            content = f"Note {number}: {(AWKWARD * 1_000)[: CHARACTERS - 20]}"
            to.ask("POST", "/v1/memories", {"agent_id": "greedy", "user_id": "awkward", "content": content})
        to.ask("POST", "/v1/agents", {"agent_id": "greedy", "name": "Greedy"})
        rows: list[Row] = []
        for name, request in entrances().items():
            rows.append({"entrance": name, **flooded(server.url, options.seconds / 3, request)})
        met = all(row["livez p95 ms"] <= LIVE_MS for row in rows)
        yield Section("The largest bodies and answers of awkward characters, one caller", rows, met)
