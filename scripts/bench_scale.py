"""A million memories of ten thousand users: what a start, a search, the memory and the background jobs cost there.

    python scripts/bench_scale.py                         # builds the stores (some minutes), measures, removes them
    python scripts/bench_scale.py --keep --folder FOLDER  # takes the stores that are there, or builds and leaves them
    python scripts/bench_scale.py --quick                 # a tenth of it

Normal users have as many memories in the large store as in a small one of 10,000 memories and 100 users; both are
served at once, and blocks of requests to the two take turns. Queries are 32 texts whose vectors are cached.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_client import Client
from scripts.scale.data import SMALL, Size, build
from scripts.scale.jobs import jobs
from scripts.scale.searches import big, normal, reopen
from scripts.scale.writes import writes

PARTS = ("reopen", "normal", "big", "writes", "jobs")


def measure(folder: Path, size: Size, parts: list[str], repeat: int) -> dict[str, Any]:
    results: dict[str, Any] = {"size": size.name, "python": platform.python_version(), "cores": os.cpu_count()}
    for one in (SMALL, size):
        rate = build(folder, one)
        if rate is not None:
            results[f"built {one.name}, memories/s"] = round(rate)
    small, large = folder / SMALL.name, folder / size.name
    with Client() as client:
        work: dict[str, Callable[[], Any]] = {
            "reopen": lambda: reopen(client, small, large, repeat),
            "normal": lambda: normal(client, small, large, size, repeat),
            "big": lambda: big(client, large, repeat),
            "writes": lambda: writes(client, small, large, repeat),
            "jobs": lambda: jobs(client, large, size),
        }
        for part in parts:
            load = round(os.getloadavg()[0], 1)
            results[part] = {"load before": load, "found": work[part]()}
            show(part, load, results[part]["found"])
    return results


def show(part: str, load: float, found: Any) -> None:
    """As Markdown tables."""
    print(f"\n### {part} (load {load})\n")
    if isinstance(found, list):
        print("| " + " | ".join(found[0]) + " |")
        print("|---|" + "--:|" * (len(found[0]) - 1))
        print("\n".join("| " + " | ".join(map(str, row.values())) + " |" for row in found), flush=True)
        return
    print("| | |\n|---|---|")
    for name, value in found.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"| {name} | {shown} |", flush=True)


@contextmanager
def stores(folder: Path | None, keep: bool) -> Iterator[Path]:
    if keep:
        kept = folder or Path(tempfile.gettempdir()) / "recalld-scale"
        kept.mkdir(parents=True, exist_ok=True)
        print(f"stores: {kept}", file=sys.stderr)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="recalld-scale-", dir=folder, ignore_cleanup_errors=True) as path:
        yield Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--big", type=int, default=20_000, help="memories of one more user")
    parser.add_argument("--quick", action="store_true", help="a tenth of these")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the stores lie (5 GB)")
    parser.add_argument("--keep", action="store_true", help="leave the stores, and use those that are there")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args()
    part = 10 if given.quick else 1
    size = Size(given.memories // part, given.users // part, given.big // part)
    with stores(given.folder, given.keep) as folder:
        results = measure(folder, size, list(given.parts), given.repeat)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
