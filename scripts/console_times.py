#!/usr/bin/env python3
"""Measures the first view of each page of the console, on a service that runs or on a large store of its own.

    scripts/console_times.py http://127.0.0.1:8000    # a service that runs
    scripts/console_times.py --store FOLDER           # fills FOLDER unless it is filled, serves it

A store has the demo's story and 100,000 memories of 200 people, with sessions, facts and actions of some of them.
For each page: how many requests it makes of the API, and the milliseconds until it has a heading, until its first rows
stand there and until the last answer has come, and the milliseconds of processor that its main thread takes, which
other work on the machine changes least; each the least of some visits with an empty cache of the browser. What is told
over the frame is over the least of as many visits of the frame alone, at an address without a page, in turns with those
of the page: over all visits of the frame it would grow with the number of pages. `--user`, `--agent` and `--session`
name whose pages are measured: those with many records. It needs what `scripts/console_pictures.py` needs.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.data import AGENT, Shape, load, owner  # noqa: E402
from benchmarks.harness import recalld  # noqa: E402

CHROMIUM = os.environ.get("RECALLD_TEST_CHROMIUM", "/usr/bin/chromium")
PAGES = (
    "overview",
    "owners",
    "owners/users/{user}",
    "owners/users/{user}/profile",
    "owners/users/{user}/facts",
    "owners/users/{user}/graph",
    "owners/users/{user}/procedures",
    "owners/users/{user}/data",
    "owners/agents/{agent}",
    "owners/agents/{agent}/experience",
    "owners/agents/{agent}/facts",
    "owners/agents/{agent}/actions",
    "prompt",
    "prompt?query=Where+does+Mira+live%3F&agent_id={agent}&user_id={user}",
    "memories",
    "memories?user_id={user}",
    "memories?query=Where+does+Mira+live%3F&user_id={user}",
    "memories?status=disputed",
    "memories/{memory}",
    "sessions",
    "sessions/{session}",
    "tasks",
    "findings",
    "operations",
    "operations/audit",
    "operations/keys",
    "operations/settings",
)
WATCH = """() => {
  const seen = window.__seen = {};
  const look = () => {
    const main = document.querySelector("main#main");
    if (!main) return;
    const note = (name, what) => { if (!seen[name] && main.querySelector(what)) seen[name] = performance.now(); };
    note("heading", "h1, h2, p:not([role=status])");
    note("rows", "li:not(.tiles > li), .tiles li b, table td, .empty, dl dd, form.box > label input");
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}"""
"""Notes when a heading came, and the first row of a list or a table, or the field of a form that is the page. The
filters of a list are there before its rows."""
OVER = {"rows": "heading", "last": "last", "worked": "worked"}
"""What of a page is compared with what of the frame alone."""
QUIET_MS = 400
LONGEST_MS = 30_000

LARGE = Shape(100_000, 200)
WRITERS = 20
"""People with sessions, facts and actions besides."""
SESSIONS, TURNS, FACTS, ACTIONS = 10, 20, 100, 50
"""Of each of them. The sessions that `Shape.turns` has memories of are every second of a person's turns."""


def fill(folder: Path) -> None:
    """Makes the large store in a new folder; it takes some minutes."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
    subprocess.run(
        [sys.executable, "-m", "app.cli", "demo", "--only-fill", str(folder)], check=True, env=ours, cwd=ROOT
    )
    asyncio.run(load(folder / "data", LARGE))
    with recalld(folder / "data", jobs=False) as service, httpx.Client(base_url=service.url, timeout=120) as client:
        for number in range(WRITERS):
            for turn in range(1 - number % 2, 2 * SESSIONS, 2):
                said = [
                    {"role": ("user", "assistant")[at % 2], "content": f"Turn {at} of conversation {turn} of {number}."}
                    for at in range(TURNS)
                ]
                body = {**owner(number), "messages": said, "memorize": "none"}
                client.post(f"/v1/sessions/s-{number}-{turn}/messages", json=body).raise_for_status()
            facts = [
                {**owner(number), "subject": f"Club {at % 10}", "predicate": "has member", "object": f"Person {at}"}
                for at in range(FACTS)
            ]
            body = {"items": [fact | {"cardinality": "many"} for fact in facts]}
            client.post("/v1/facts/batch", json=body).raise_for_status()
            actions = [
                {**owner(number), "action_type": f"kind_{at % 5}", "outcome": ("success", "failure")[at % 3 == 0]}
                for at in range(ACTIONS)
            ]
            client.post("/v1/actions/batch", json={"items": actions}).raise_for_status()
    (folder / "finished").touch()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    if not (folder / "finished").exists():
        fill(folder)
    with recalld(folder / "data", jobs=False) as service:
        yield service.url


def visit(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(f"({WATCH})()")
    tools = context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.route("**/v1/changes*", lambda route: route.fulfill(content_type="text/event-stream", body=""))
    page.goto(address, timeout=LONGEST_MS)
    page.wait_for_load_state("networkidle", timeout=LONGEST_MS)
    page.wait_for_timeout(QUIET_MS)
    measured: dict[str, Any] = page.evaluate(
        """() => {
          const asked = performance.getEntriesByType("resource")
            .filter((entry) => /\\/(v1\\/(?!changes)|metrics)/.test(entry.name));
          const last = Math.max(0, ...asked.map((entry) => entry.responseEnd));
          return { requests: asked.length, last, ...window.__seen };
        }"""
    )
    metrics = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
    context.close()
    times = {name: float(measured.get(name) or measured["last"]) for name in ("requests", "heading", "rows", "last")}
    return {**times, "worked": metrics["TaskDuration"] * 1000}


def measure(base: str, given: argparse.Namespace) -> None:
    with httpx.Client(base_url=base, timeout=120) as client:
        (memory,) = client.get("/v1/memories", params={"user_id": given.user, "limit": 1}).json()["items"]
    names = {"user": given.user, "agent": given.agent, "session": given.session, "memory": memory["memory_id"]}
    print(f"{'page':52} requests  heading  rows  last answer  work of the page (ms; + over the frame alone)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        visit(browser, f"{base}/console/#/nowhere")  # the browser itself has to start
        for page in given.only or PAGES:
            address = page.format(**names)
            visits: dict[str, list[dict[str, float]]] = {"nowhere": [], address: []}
            for _ in range(given.visits):
                for place, times in visits.items():
                    times.append(visit(browser, f"{base}/console/#/{place}"))
            # other work only adds to a time, so the least one says most
            frame, least = ({name: min(one[name] for one in times) for name in times[0]} for times in visits.values())
            rows, last, worked = (least[name] - frame[of] for name, of in OVER.items())
            print(
                f"{page:52} {least['requests']:8.0f}  {least['heading']:7.0f}  {least['rows']:4.0f} ({rows:+4.0f})  "
                f"{least['last']:5.0f} ({last:+4.0f})  {least['worked']:5.0f} ({worked:+4.0f})",
                flush=True,
            )
        browser.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("base", nargs="?", help="the address of a service that runs")
    arguments.add_argument("--store", type=Path, metavar="FOLDER", help="the large store, in place of a service")
    arguments.add_argument("--user", help="the person whose pages are measured")
    arguments.add_argument("--agent", help="the agent whose pages are measured")
    arguments.add_argument("--session", help="the session that is measured")
    arguments.add_argument("--visits", type=int, default=3, help="of each page")
    arguments.add_argument("--only", nargs="+", choices=PAGES, metavar="PAGE", help="pages, in place of all")
    given = arguments.parse_args()
    if bool(given.base) == bool(given.store):
        arguments.error("name the address of a service or --store")
    usual = ("mira", "workshop", "mira-has-moved") if given.base else ("user-7", AGENT, "s-7-0")
    for name, value in zip(("user", "agent", "session"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    if given.base:
        measure(given.base.rstrip("/"), given)
        return
    with served(given.store) as base:
        measure(base, given)


if __name__ == "__main__":
    main()
