"""What a neighbour notices of callers who ask for contexts of long messages.

    scripts/benchmark neighbour --messages 130 --callers 3

A session has so many messages of 32,000 characters, which are memories, too. While callers ask for its context,
`/livez` and the search of another agent are asked. To store the messages takes a minute or two.
"""

import argparse
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.data import Texts
from benchmarks.harness import Connection, Row, Section, folder, percentile, recalld

CHARACTERS = 32_000
LIVE_MS, TIMES_IDLE = 100.0, 3.0
"""Highest p95 of `/livez`, and highest p50 of the search as a multiple of what it is without callers."""
PAUSE_SECONDS = 0.02
GREEDY = {"agent_id": "greedy", "user_id": "ada"}
MODEST = {"agent_id": "modest", "user_id": "ben"}


def long_text(texts: Texts) -> str:
    text = ""
    while len(text) < CHARACTERS:
        text += f"{texts.memory()} "
    return text[:CHARACTERS]


def again(url: str, method: str, path: str, body: Any, ended: threading.Event) -> list[float]:
    """Asks until `ended`, and returns the milliseconds of each answer."""
    to, taken = Connection(url), list[float]()
    while not ended.is_set():
        started = time.perf_counter()
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
