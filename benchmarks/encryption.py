"""What encryption of the embedded store costs: requests to a plain and to an encrypted service, which take turns.

Runs where the extra is installed: `.venv-encryption/bin/python -m benchmarks encryption`.
"""

import argparse
import asyncio
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from app.lifespan import COLLECTIONS
from app.storage.sqlite.pages import StoreKey, cipher_layer
from app.storage.sqlite.store import EmbeddedOptions, EmbeddedStore
from benchmarks.harness import Connection, Row, Section, Times, alternate, folder, percentile, recalld

OWNER = {"agent_id": "bench", "user_id": "u"}
BATCH = 250
DIM = 384
SUBJECTS = ("bicycle", "garden", "kettle", "harbour", "violin", "lantern", "orchard", "compass")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=5_000)
    parser.add_argument("--requests", type=int, default=200)


def run(options: argparse.Namespace) -> Iterator[Section]:
    cipher_layer()
    key = secrets.token_hex(32)
    with folder() as path:
        plain, encrypted = Path(path, "plain"), Path(path, "encrypted")
        with recalld(plain, jobs=False) as first, recalld(encrypted, jobs=False, RECALLD_STORE_KEY=key) as second:
            services = {"plain": Connection(first.url), "encrypted": Connection(second.url)}
            calls: dict[str, Callable[[int], Any]] = {}
            for name, service in services.items():
                ids = _fill(service, options.memories)
                calls |= {f"{what}/{name}": call for what, call in _requests(service, ids).items()}
            times = asyncio.run(alternate(calls, options.requests))
        yield Section("requests", _ratios(times))
        times = asyncio.run(_files({"plain": (plain, None), "encrypted": (encrypted, StoreKey(key))}))
        yield Section("the whole store", _ratios(times))


def _fill(service: Connection, memories: int) -> list[str]:
    for first in range(0, memories, BATCH):
        items = [{**OWNER, "content": _text(number), "deduplicate": False} for number in range(first, first + BATCH)]
        service.ask("POST", "/v1/memories/batch", {"items": items})
    body = service.ask("GET", "/v1/memories?limit=100&agent_id=bench&user_id=u")
    return [part.split('"', 1)[0] for part in body.decode().split('"memory_id":"')[1:]]


def _text(number: int) -> str:
    return f"note {number}: the {SUBJECTS[number % len(SUBJECTS)]} number {number % 97} stands beside the wall"


def _requests(service: Connection, ids: list[str]) -> dict[str, Callable[[int], Any]]:
    messages = {**OWNER, "memorize": "none", "messages": [{"role": "user", "content": "the bicycle is red"}]}
    return {
        "append a message": lambda _: service.ask("POST", "/v1/sessions/bench/messages", messages),
        "read a memory": lambda number: service.ask("GET", f"/v1/memories/{ids[number % len(ids)]}"),
        "list 100 memories": lambda _: service.ask("GET", "/v1/memories?limit=100&agent_id=bench&user_id=u"),
        "search": lambda number: service.ask(
            "POST", "/v1/memories/search", {**OWNER, "query": f"where is the {SUBJECTS[number % len(SUBJECTS)]}?"}
        ),
    }


async def _files(stores: dict[str, tuple[Path, StoreKey | None]]) -> Times:
    """Milliseconds of opening, backing up and rewriting a store, three times each in turns."""
    calls: dict[str, Callable[[int], Any]] = {}
    for name, (directory, key) in stores.items():
        calls[f"open, with a check of every page/{name}"] = partial(_opened, directory, key, False)
        calls[f"back up/{name}"] = partial(_opened, directory, key, True)
    return await alternate(calls, 3, warm_up=1)


async def _opened(directory: Path, key: StoreKey | None, with_backup: bool, number: int) -> None:
    store = await EmbeddedStore.open(directory, COLLECTIONS, EmbeddedOptions(key=key), dim=DIM)
    try:
        if with_backup:
            await store.backup(directory.with_name(f"{directory.name}-{number}"))
    finally:
        await store.close()


def _ratios(times: Times) -> list[Row]:
    return [
        {
            "call": what,
            "plain ms": round(percentile(times[f"{what}/plain"], 50), 2),
            "encrypted ms": round(percentile(times[f"{what}/encrypted"], 50), 2),
            "ratio": round(percentile(times[f"{what}/encrypted"], 50) / percentile(times[f"{what}/plain"], 50), 2),
        }
        for what in dict.fromkeys(name.partition("/")[0] for name in times)
    ]
