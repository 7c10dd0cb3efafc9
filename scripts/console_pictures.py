#!/usr/bin/env python3
"""Takes pictures of every page of the console, to look at: scripts/console_pictures.py FOLDER [--only memories].
`--docs` makes the pictures of the documentation anew, which lie in docs/assets/console.

Each page is drawn on the demo's story at 390, 768 and 1440 pixels, light and dark, and kept as
FOLDER/PAGE-WIDTH-SCHEME.png, whole or, with `--screen`, as far as the first screen goes. The script also says where a
page is wider than its window and where the browser noted a fault. It needs Chromium (Debian's package `chromium`, or
RECALLD_TEST_CHROMIUM) and the packages of the tests.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = os.environ.get("RECALLD_TEST_CHROMIUM", "/usr/bin/chromium")
WIDTHS = {390: 844, 768: 1024, 1440: 900}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SECONDS = 60
STEP = 0.1
UNROLL = """() => {
  const rule = new CSSStyleSheet(); // the policy of the page takes no style element
  rule.replaceSync(".two.detail > :last-child { position: static; max-height: none; }");
  document.adoptedStyleSheets.push(rule);
}"""
"""A record beside its list scrolls for itself; a picture of the whole page shows all of it."""
LOADED = """() => !document.querySelector("main .waiting, main [aria-busy=true]")
  && !document.querySelector("main")?.innerText.includes("Loading…")"""
"""What is counted comes last, by requests that begin when others have ended: the network may be idle in between."""
SETTLE_MS = 500
"""Charts and the graph are drawn a moment after the page."""

QUESTION = quote("Where does Mira live?")
PAGES = {
    "overview": "overview",
    "memories": "memories",
    "memories-search": f"memories?user_id=mira&query={QUESTION}",
    "memories-ask-whose": f"memories?query={QUESTION}",
    "memory": "memories/{memory}?user_id=mira",
    "sessions": "sessions",
    "session": "sessions/mira-has-moved",
    "tasks": "tasks",
    "task": "tasks/lisbon-wheels",
    "findings": "findings?status=any",
    "prompt": f"prompt?query={QUESTION}&agent_id=front-desk&user_id=mira&token_budget=400",
    "people": "owners",
    "person": "owners/users/mira",
    "facts": "owners/users/mira/facts",
    "fact": "owners/users/mira/facts?fact={fact}",
    "fact-edit": "owners/users/mira/facts?fact={fact}",
    "graph": "owners/users/mira/graph",
    "agent": "owners/agents/front-desk",
    "experience": "owners/agents/front-desk/experience",
    "procedures": "owners/agents/workshop/procedures",
    "procedure": "owners/agents/workshop/procedures?procedure={procedure}",
    "actions": "owners/agents/workshop/actions",
    "data": "owners/users/mira/data",
    "operations": "operations",
    "forget": "operations/forget",
    "keys": "operations/keys",
    "audit": "operations/audit",
    "settings": "operations/settings",
    "components": "components",
    "find": "overview",
    "memory-delete": "memories/{memory}?user_id=mira",
    "nobody": "owners/users/nobody",
    "gone": "memories/mem_gone",
}
"""The address of each page; `{memory}` is one that replaced another, `{fact}` one that ended another."""
PRESSED = {"find": "Find…", "fact-edit": "Edit", "memory-delete": "Delete"}
"""The button that is pressed for a state of a page."""

DOCS = ROOT / "docs" / "assets" / "console"
DOCUMENTED = {"person": "person", "sessions": "session", "prompt": "prompt", "facts": "facts"}
"""What is shown in the documentation, by the name of its picture: the first screen, light, at 1280 pixels."""


@contextmanager
def demo() -> Iterator[str]:
    """The address of a service on the demo's story, with something that reflection finds."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "demo"
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "app.cli"]
        subprocess.run([*command, "demo", "--only-fill", str(store)], check=True, env=ours, cwd=ROOT)
        settings = {"RECALLD_DATA_DIR": str(store / "data"), "RECALLD_PORT": "0"}
        with log.open("wb") as out:
            service = subprocess.Popen([*command, "serve"], env=ours | settings, cwd=ROOT, stdout=out, stderr=out)
        try:
            yield _ready(service, log)
        finally:
            service.terminate()
            service.wait()


def _ready(service: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(round(SECONDS / STEP)):
        found = re.search(r"http://\S+:\d+", log.read_text())
        if found:
            httpx.get(f"{found[0]}/readyz").raise_for_status()
            return found[0]
        if service.poll() is not None:
            break
        time.sleep(STEP)
    raise SystemExit(f"The service did not start:\n{log.read_text()}")


def prepare(base: str) -> dict[str, str]:
    """Makes the service find something. Returns the ids of the records that addresses of pages name."""
    with httpx.Client(base_url=base, timeout=SECONDS) as client:
        for subject, value, day in (("@user", "Rome", "2026-03-01"), ("nina", "Oslo", "2026-06-01")):
            fact = {"user_id": "nina", "subject": subject, "predicate": "lives_in", "object": value}
            body = {**fact, "cardinality": "one", "valid_from": f"{day}T00:00:00Z"}
            client.post("/v1/facts", json=body).raise_for_status()
        client.post("/v1/reflect", json={"user_id": "nina"}).raise_for_status()
        found = client.get("/v1/memories", params={"user_id": "mira", "limit": 100}).json()["items"]
        home = {"user_id": "mira", "subject": "@user", "predicate": "lives_in"}
        (lives,) = client.get("/v1/facts", params=home).json()["items"]
        procedures = client.get("/v1/procedures", params={"agent_id": "workshop", "name": "True a wheel"}).json()
        return {
            "memory": next(one["memory_id"] for one in found if one["supersedes"]),
            "fact": lives["fact_id"],
            "procedure": procedures["items"][0]["procedure_id"],
        }


def take(browser: Browser, base: str, pages: dict[str, str], given: argparse.Namespace) -> None:
    folder, whole = given.folder, not given.screen
    for width in given.widths:
        height = WIDTHS[width]
        for scheme in given.schemes:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            faults: list[str] = []
            _note_faults(page, faults)
            _stand_still(page)
            for name, address in pages.items():
                page.goto("about:blank")
                page.goto(f"{base}/console/#/{address}")
                page.wait_for_load_state("networkidle")
                if name != "components":  # which shows how a page looks while it loads
                    page.wait_for_function(LOADED)
                if name in PRESSED:
                    page.get_by_role("button", name=PRESSED[name]).first.click()
                if whole:
                    page.evaluate(UNROLL)
                page.wait_for_timeout(SETTLE_MS)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=whole)
                wide = page.evaluate("document.documentElement.scrollWidth") - width
                if wide > 0:
                    print(f"{name} at {width}: {wide} pixels wider than the window")
                for fault in faults:
                    print(f"{name} at {width}: {fault}")
                faults.clear()
            context.close()


def take_documented(browser: Browser, base: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    _stand_still(page)
    page.goto(f"{base}/console/")
    page.evaluate("localStorage.setItem('recalld.tour', 'closed')")
    for name, of in DOCUMENTED.items():
        page.goto("about:blank")
        page.goto(f"{base}/console/#/{PAGES[of]}")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(SETTLE_MS)
        path = DOCS / f"{name}-light.png"
        page.screenshot(path=path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")
    context.close()


def _stand_still(page: Page) -> None:
    """Nothing changes while a picture is taken, and the stream of changes keeps the network busy: it ends at once."""
    page.route("**/v1/changes*", lambda route: route.fulfill(content_type="text/event-stream", body=""))


def _note_faults(page: Page, faults: list[str]) -> None:
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, nargs="?", help="where the pictures go")
    arguments.add_argument("--docs", action="store_true", help="the pictures of the documentation, in place of FOLDER")
    arguments.add_argument("--only", nargs="+", choices=PAGES, help="pages, in place of all")
    arguments.add_argument("--widths", nargs="+", type=int, choices=WIDTHS, default=list(WIDTHS), help="in pixels")
    arguments.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="light, dark or both")
    arguments.add_argument("--screen", action="store_true", help="the first screen in place of the whole page")
    arguments.add_argument("--base", help="the address of a service that runs, in place of the demo")
    given = arguments.parse_args()
    if given.docs == bool(given.folder):
        arguments.error("name a folder or --docs")
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            if given.base:
                _draw(browser, given.base.rstrip("/"), given)
            else:
                with demo() as base:
                    _draw(browser, base, given)
        finally:
            browser.close()


def _draw(browser: Browser, base: str, given: argparse.Namespace) -> None:
    if given.docs:
        take_documented(browser, base)
        return
    ids = prepare(base)
    chosen = {name: PAGES[name].format(**ids) for name in given.only or PAGES}
    take(browser, base, chosen, given)
    print(f"{len(chosen) * len(given.widths) * len(given.schemes)} pictures in {given.folder}")


if __name__ == "__main__":
    main()
