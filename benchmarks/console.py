"""The console's first view: a browser's time from the address to the figures of the overview, with many memories.

The time is taken inside the page: from the start of the navigation to the frame that shows what is waited for. It needs
Chromium. The store is made by `benchmarks/scale_data.py`: memories of 100 users over 300 days.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.harness import Section, recalld
from benchmarks.scale_data import Size, build

USERS = 100
TARGET_MS = 300.0
WATCH = """
    const watch = new MutationObserver(() => {
        if (!document.querySelector(%s)) return;
        watch.disconnect();
        requestAnimationFrame(() => document.documentElement.dataset.shownAt = performance.now());
    });
    watch.observe(document, { childList: true, subtree: true });
"""
"""Writes down when an element, by its selector, is first drawn."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--views", type=int, default=9, help="how often each view is opened")
    parser.add_argument("--chromium", default="/usr/bin/chromium")


def run(options: argparse.Namespace) -> Iterator[Section]:
    size = Size(options.memories, USERS)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), size)
        yield from _views(Path(folder) / size.name, options)


def _views(data: Path, options: argparse.Namespace) -> Iterator[Section]:
    with recalld(data, jobs=False) as server:  # a store that was just built would start all of them at once
        base = server.url.rstrip("/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            views = {
                "frame": ("overview", "h1"),
                "overview": ("overview", ".tiles"),
                "memories": ("memories", ".list > li"),
            }
            _row(browser, base, "", *views["frame"], 1)  # the first page of a new browser process costs it more
            rows = [_row(browser, base, name, *view, options.views) for name, view in views.items()]
            browser.close()
    met = all(float(row["median ms"]) <= TARGET_MS for row in rows)
    yield Section(f"First views with {options.memories:,} memories", rows, met)


def _row(browser: Browser, base: str, name: str, page: str, sign: str, views: int) -> dict[str, Any]:
    """Opens the view in a browser without a cache each time, so that every file is fetched."""
    took = []
    for _ in range(views):
        context = browser.new_context()
        context.add_init_script(WATCH % json.dumps(sign))
        tab = context.new_page()
        tab.goto(f"{base}/console/#/{page}", wait_until="commit")
        shown = tab.wait_for_selector("html[data-shown-at]", state="attached")
        assert shown is not None
        took.append(float(shown.get_attribute("data-shown-at") or "nan"))
        context.close()
    return {"view": name, "median ms": round(statistics.median(took), 1), "worst ms": round(max(took), 1)}
