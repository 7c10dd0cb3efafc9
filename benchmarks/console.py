"""The console's first view: a browser's time from the address to the figures of the overview, with many memories.

It needs Chromium and takes minutes to fill the store: about 100 memories a second and core.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright

from benchmarks.harness import Section
from tests.support.server import serving

BATCH = 500
TARGET_MS = 300.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--views", type=int, default=9, help="how often each view is opened")
    parser.add_argument("--chromium", default="/usr/bin/chromium")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data") as server:
        _fill(server.client, options.memories)
        base = str(server.client.base_url).rstrip("/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            views = {
                "frame": ("overview", "h1"),
                "overview": ("overview", ".tiles"),
                "memories": ("memories", ".list > li"),
            }
            rows = [_row(browser, base, name, *view, options.views) for name, view in views.items()]
            browser.close()
    met = all(float(row["median ms"]) <= TARGET_MS for row in rows)
    yield Section(f"First views with {options.memories:,} memories", rows, met)


def _fill(client: httpx.Client, memories: int) -> None:
    for start in range(0, memories, BATCH):
        items = [
            {"agent_id": "bench", "user_id": f"user-{n % 1000}", "content": f"Order {n} of part {n * 7919 % 10_007}"}
            for n in range(start, min(memories, start + BATCH))
        ]
        client.post("/v1/memories/batch", json={"items": items}).raise_for_status()


def _row(browser: Browser, base: str, name: str, page: str, sign: str, views: int) -> dict[str, Any]:
    """Opens the view in a browser without a cache each time, so that every file is fetched."""
    took = []
    for _ in range(views):
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(f"{base}/console/#/{page}", wait_until="commit")
        tab.wait_for_selector(sign)
        took.append(float(tab.evaluate("performance.now()")))
        context.close()
    return {"view": name, "median ms": round(statistics.median(took), 1), "worst ms": round(max(took), 1)}
