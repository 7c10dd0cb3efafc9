"""Random stories about facts, told to the service and to an independent model of the rules, which must agree.

    .venv/bin/python -m tests.facts.long_stories [--stories 500] [--steps 50] [--seed N] [--store mongodb://...]
    .venv/bin/python -m tests.facts.long_stories --rules  # the rules alone; a failing story is made small

Exit code 0: no divergence. A story is a list of assertions, retractions and settled disputes about one subject and
predicate. After it every row that was ever stored is compared with the model (tests/facts/oracle.py), at every moment
at which anything changed, for every span of valid time that anybody named. The service is the real one, over its
routes, on a store of its own; only its embedding model is left out.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from app.embedding.factory import load_model
from app.settings import JobSettings, MongodbSettings, Settings
from tests.conftest import TestParts, running
from tests.facts.machine import STEPS, Step, Story
from tests.facts.telling import Bookkeeper, Still, StoppedClock, Teller


def drawn(stories: int, steps: int, start: int) -> list[list[Step]]:
    found: list[list[Step]] = []

    @seed(start)
    @settings(
        max_examples=stories,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(STEPS, min_size=steps, max_size=steps))
    def draw(one: list[Step]) -> None:
        found.append(one)

    draw()
    return found[:stories]


async def tell_service(stories: list[list[Step]], store: str | None) -> tuple[Counter[str], int]:
    """Statuses of all rows, and how many stories diverged."""
    ends, diverged = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="recalld-oracle-", ignore_cleanup_errors=True) as path:
        chosen = Settings(data_dir=Path(path), jobs=JobSettings(enabled=False), log_level="error", _env_file=None)
        if store is not None:
            own = MongodbSettings(database=f"recalld_oracle_{uuid4().hex[:12]}", deadline_seconds=30)
            chosen = chosen.model_copy(update={"store": SecretStr(store), "mongodb": own})
        parts = TestParts(load_model("minilm-int8"), StoppedClock())
        parts.wrap = Still
        async with running(chosen, parts) as service:
            for number, steps in enumerate(stories, 1):
                teller = Teller(service, f"user-{number}")
                try:
                    await Story(teller).run(steps)
                except AssertionError as fault:
                    diverged += 1
                    print(f"story {number} diverged: {fault}\n{steps}", file=sys.stderr)
                ends.update(doc["status"] for doc in await teller.everything())
                print(f"\r{number}/{len(stories)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return ends, diverged


def tell_rules(stories: int, steps: int, start: int) -> tuple[Counter[str], int]:
    ends = Counter[str]()

    @seed(start)
    @settings(
        max_examples=stories,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(STEPS, min_size=steps, max_size=steps))
    def agree(one: list[Step]) -> None:
        keeper = Bookkeeper()
        asyncio.run(Story(keeper).run(one))
        ends.update(doc["status"] for doc in keeper.docs.values())

    try:
        agree()
    except AssertionError as fault:
        print(f"{fault}\n{getattr(fault, '__notes__', '')}", file=sys.stderr)
        return ends, 1
    return ends, 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", action="store_true", help="without service and store")
    parser.add_argument("--store", help="mongodb://… instead of an embedded store")
    given_ = parser.parse_args()
    started = time.perf_counter()
    if given_.rules:
        ends, diverged = tell_rules(given_.stories, given_.steps, given_.seed)
    else:
        stories = drawn(given_.stories, given_.steps, given_.seed)
        ends, diverged = asyncio.run(tell_service(stories, given_.store))
    rows = ", ".join(f"{count:,} {status}" for status, count in ends.most_common())
    print(f"{given_.stories} stories of {given_.steps} steps, {time.perf_counter() - started:.0f} s: {rows} rows")
    print(f"{diverged} divergences")
    return 1 if diverged else 0


if __name__ == "__main__":
    sys.exit(main())
