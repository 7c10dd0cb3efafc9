"""Tries to break the service, part by part, and prints a table: `python scripts/battery.py [--quick] [PART …]`.

Each part is bounded. Each checker first has to see a bug that is planted for it; one that does not has failed. Exit
code 0: every figure is as it must be. `--quick` is for a look at whether it works; the figures that count are those of
a full run (docs/operations/reliability.md).
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.chdir(ROOT)

from scripts.battery_parts import erasing, faults, inside, outside, processes  # noqa: E402
from scripts.battery_parts.row import Row  # noqa: E402

PARTS: dict[str, tuple[Callable[[int], Awaitable[Row]], int, int]] = {
    # name: (what runs it, its size, its size with --quick)
    "schemathesis": (outside.schemathesis, 20_000, 1_000),
    "model": (inside.model, 500, 10),
    "kill": (outside.kill, 200, 1),
    "tenancy": (inside.tenancy, 20_000, 1_000),
    "bad-input": (inside.bad_input, 20_000, 2_000),
    "faults": (faults.faults, 40, 4),
    "soak": (processes.soak, 1_200, 20),
    "sigterm": (processes.sigterm, 50, 2),
    "erasure": (erasing.erasure, 20, 2),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--size", type=int, help="of each part named, instead: calls, walks, rounds or seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    for name in options.parts or PARTS:
        run, full, quick = PARTS[name]
        started = time.perf_counter()
        row = asyncio.run(_run(run, options.size or (quick if options.quick else full)))
        row.seconds = round(time.perf_counter() - started, 1)
        rows.append(row)
        if not options.json:
            print(row.line(name), flush=True)
            for detail in row.details[:10]:
                print(f"      {detail}", flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.ok for row in rows) else 1


async def _run(run: Callable[[int], Awaitable[Row]], size: int) -> Row:
    return await run(size)


if __name__ == "__main__":
    sys.exit(main())
