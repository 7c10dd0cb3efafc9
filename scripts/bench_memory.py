"""How much memory the service's process holds: after its start, after a load, and after a pause.

python scripts/bench_memory.py [--memories 10000] [--users 100] [--searches 1000] [--pause 60] [--json FILE]

Memories are added over HTTP, 500 a request, and embedded by the service's model. Every search has a text of its own.
Figures are MB (a million bytes) from Linux's /proc/PID/smaps_rollup, after the service has read its vocabulary:
`resident` is VmRSS; `anonymous` is the process's own; the rest is mapped files (libraries), which processes share.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx

from scripts.bench_data import NAMES, Texts, owner
from scripts.bench_servers import served_process

FIELDS = {"resident": "Rss", "proportional": "Pss", "anonymous": "Anonymous"}
BATCH = 500
SETTLE_SECONDS = 5
"""The vocabulary is read half a second after the start, and takes as long."""
MOST = {"start": 190, "load": 260}
"""Most resident MB that are wanted."""


def memory(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {name: round(kilobytes[key] * 1024 / 1e6, 1) for name, key in FIELDS.items()}


def load(client: httpx.Client, memories: int, users: int) -> None:
    texts = Texts(7)
    items = [{**owner(number % users), "content": texts.memory()} for number in range(memories)]
    for at in range(0, memories, BATCH):
        client.post("/v1/memories/batch", json={"items": items[at : at + BATCH]}).raise_for_status()


def search(client: httpx.Client, searches: int, users: int) -> None:
    texts = Texts(11)
    for number in range(searches):
        query = texts.query(texts.memory(), texts.choice(NAMES) if number % 2 else None)
        client.post("/v1/memories/search", json={**owner(number % users), "query": query}).raise_for_status()


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    with (
        TemporaryDirectory() as folder,
        served_process(Path(folder) / "data") as (port, pid),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client,
    ):
        time.sleep(SETTLE_SECONDS)
        found = {"start": memory(pid)}
        load(client, args.memories, args.users)
        search(client, args.searches, args.users)
        found["load"] = memory(pid)
        time.sleep(args.pause)
        found["pause"] = memory(pid)
    return found


def show(found: dict[str, dict[str, float]]) -> None:
    print("| MB after | " + " | ".join(FIELDS) + " | wanted |\n|---|" + "--:|" * (len(FIELDS) + 1))
    for when, row in found.items():
        print(f"| {when} | " + " | ".join(f"{row[name]:.1f}" for name in FIELDS) + f" | {MOST.get(when, '')} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--searches", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=60, help="seconds")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    found: dict[str, Any] = measure(args)
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
