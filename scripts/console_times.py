#!/usr/bin/env python3
"""Measures the first view of each page of the console of a service that runs: scripts/console_times.py http://127.0.0.1:8000

For each page: how many requests it makes of the API, and the milliseconds until it has a heading, until its first rows
stand there and until the last answer has come, each the median of some visits with an empty cache of the browser. The
first line is an address without a page, which is the frame alone. `--user`, `--agent` and `--session` name whose pages
are measured: those with many records. It needs what `scripts/console_pictures.py` needs.
"""

import argparse
import os
from statistics import median
from typing import Any

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = os.environ.get("RECALLD_TEST_CHROMIUM", "/usr/bin/chromium")
PAGES = (
    "nowhere",
    "overview",
    "owners",
    "owners/users/{user}",
    "owners/users/{user}/profile",
    "owners/users/{user}/facts",
    "owners/users/{user}/graph",
    "owners/users/{user}/procedures",
    "owners/agents/{agent}",
    "owners/agents/{agent}/experience",
    "owners/agents/{agent}/facts",
    "owners/agents/{agent}/actions",
    "prompt",
    "memories",
    "memories?user_id={user}",
    "memories?status=disputed",
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
    note("rows", ".list > li, table td, .tiles li b, .empty, input, dl dd");
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}"""
"""Notes when a heading and the first row of a list, a table or a form came."""
QUIET_MS = 400
LONGEST_MS = 30_000


def visit(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(f"({WATCH})()")
    page.route("**/v1/changes*", lambda route: route.fulfill(content_type="text/event-stream", body=""))
    page.goto(address, timeout=LONGEST_MS)
    page.wait_for_load_state("networkidle", timeout=LONGEST_MS)
    page.wait_for_timeout(QUIET_MS)
    found: dict[str, Any] = page.evaluate(
        """() => {
          const asked = performance.getEntriesByType("resource")
            .filter((one) => /\\/(v1\\/(?!changes)|metrics)/.test(one.name));
          const last = Math.max(0, ...asked.map((one) => one.responseEnd));
          return { requests: asked.length, last, ...window.__seen };
        }"""
    )
    context.close()
    return {name: float(found.get(name) or found["last"]) for name in ("requests", "heading", "rows", "last")}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("base", help="the address of the service")
    arguments.add_argument("--user", default="mira", help="the person whose pages are measured")
    arguments.add_argument("--agent", default="workshop", help="the agent whose pages are measured")
    arguments.add_argument("--session", default="mira-has-moved", help="the conversation that is measured")
    arguments.add_argument("--visits", type=int, default=3, help="of each page")
    given = arguments.parse_args()
    print(f"{'page':44} requests  heading  rows  last answer (ms; + over the frame alone)")
    frame: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for page in PAGES:
            named = page.format(user=given.user, agent=given.agent, session=given.session)
            made = [visit(browser, f"{given.base.rstrip('/')}/console/#/{named}") for _ in range(given.visits)]
            one = {name: median(each[name] for each in made) for name in made[0]}
            frame = frame or one
            print(
                f"{named:44} {one['requests']:8.0f}  {one['heading']:7.0f}  {one['rows']:4.0f} "
                f"(+{one['rows'] - frame['heading']:.0f})  {one['last']:5.0f} (+{one['last'] - frame['last']:.0f})"
            )
        browser.close()


if __name__ == "__main__":
    main()
