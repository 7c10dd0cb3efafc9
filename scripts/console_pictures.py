#!/usr/bin/env python3
"""Takes pictures of every page of the console, to look at: scripts/console_pictures.py FOLDER [--only memories].
`--docs` makes the pictures of the documentation anew, which lie in docs/assets/console.

Each page is drawn at 390, 768 and 1440 pixels, light and dark, and kept as FOLDER/NAME-WIDTH-SCHEME.png, whole or, with
`--screen`, as far as the first screen goes; FOLDER/INDEX.md says what each shows. Pages are drawn on the demo's story;
their states also on an empty store, with a key that only reads, with one that is bound to a person, while an answer is
awaited and after it failed. The script also says where a page is wider than its window and where the browser noted a
fault. It needs Chromium (Debian's package `chromium`, or RECALLD_TEST_CHROMIUM) and the packages of the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, Route, ViewportSize, sync_playwright

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


@dataclass(frozen=True, slots=True)
class Picture:
    """What is taken: the address of a page, where `{memory}` is one that replaced another and `{fact}` one that ended
    another, and the state that it is in.

    `pressed`: the button that is pressed first. `service`: which one is asked, `demo`, `keys` or `empty`. `key`: of the
    service with keys, `reader` or `bound`. `answer`: what becomes of what the page asks for: it `waits`, or it `fails`.
    """

    address: str
    shows: str
    pressed: str = ""
    service: Literal["demo", "keys", "empty"] = "demo"
    key: Literal["", "reader", "bound"] = ""
    answer: Literal["", "waits", "fails"] = ""


PICTURES = {
    "overview": Picture("overview", "Overview"),
    "memories": Picture("memories", "Memories"),
    "memories-search": Picture(f"memories?user_id=mira&query={QUESTION}", "Memories, hits of a search"),
    "memories-ask-whose": Picture(f"memories?query={QUESTION}", "Memories, a search that asks whose"),
    "memory": Picture("memories/{memory}?user_id=mira", "Memories, one beside the list"),
    "sessions": Picture("sessions", "Sessions"),
    "session": Picture("sessions/mira-has-moved", "Sessions, one of them and what it left behind"),
    "documents": Picture("documents", "Documents"),
    "tasks": Picture("tasks", "Tasks"),
    "task": Picture("tasks/lisbon-wheels", "Tasks, one beside the list"),
    "findings": Picture("findings?status=any", "Findings"),
    "prompt": Picture(
        f"prompt?query={QUESTION}&agent_id=front-desk&user_id=mira&token_budget=400", "Prompt, why it said that"
    ),
    "prompt-of-answer": Picture(
        "prompt?session_id=mira-has-moved&turn=2&agent_id=front-desk&user_id=mira",
        "Prompt, built again for an answer of a session",
    ),
    "people": Picture("owners", "People and agents"),
    "person": Picture("owners/users/mira", "A person, what is known"),
    "person-uncertain": Picture("owners/users/jonas", "A person of whom something is uncertain"),
    "profile": Picture("owners/users/mira/profile", "A person, profile"),
    "profile-edit": Picture("owners/users/mira/profile", "A person, the profile being edited", pressed="Edit"),
    "facts": Picture("owners/users/mira/facts", "A person, facts on a timeline"),
    "fact": Picture("owners/users/mira/facts?fact={fact}", "A person, one fact beside the list"),
    "fact-edit": Picture("owners/users/mira/facts?fact={fact}", "A person, a fact being edited", pressed="Edit"),
    "graph": Picture("owners/users/mira/graph", "A person, graph"),
    "data": Picture("owners/users/mira/data", "A person, export and erase"),
    "agent": Picture("owners/agents/front-desk", "An agent"),
    "experience": Picture("owners/agents/front-desk/experience", "An agent, experience"),
    "procedures": Picture("owners/agents/workshop/procedures", "An agent, procedures"),
    "procedure": Picture(
        "owners/agents/workshop/procedures?procedure={procedure}", "An agent, one procedure beside the list"
    ),
    "actions": Picture("owners/agents/workshop/actions", "An agent, actions"),
    "operations": Picture("operations", "Operations, jobs"),
    "forget": Picture("operations/forget", "Operations, forget"),
    "keys": Picture("operations/keys", "Operations, keys, of which there are none"),
    "audit": Picture("operations/audit", "Operations, audit"),
    "settings": Picture("operations/settings", "Operations, settings"),
    "components": Picture("components", "All components in their states"),
    "find": Picture("overview", "What ⌘K finds before anything is typed", pressed="Find…"),
    "memory-delete": Picture("memories/{memory}?user_id=mira", "What a deletion asks", pressed="Delete"),
    "nobody": Picture("owners/users/nobody", "A person of whom nothing is stored"),
    "gone": Picture("memories/mem_gone", "A memory that is not there"),
    "record-gone": Picture("record/fact_gone", "A fact that a link names and that is not there"),
    "empty-overview": Picture("overview", "Overview of an empty store", service="empty"),
    "empty-memories": Picture("memories", "Memories of an empty store", service="empty"),
    "empty-sessions": Picture("sessions", "Sessions of an empty store", service="empty"),
    "empty-findings": Picture("findings", "Findings of an empty store", service="empty"),
    "empty-people": Picture("owners", "People and agents of an empty store", service="empty"),
    "loading-memories": Picture("memories", "Memories while the answer is awaited", answer="waits"),
    "loading-overview": Picture("overview", "Overview while the answers are awaited", answer="waits"),
    "loading-person": Picture("owners/users/mira", "A person while the answers are awaited", answer="waits"),
    "error-memories": Picture("memories", "Memories, the request failed", answer="fails"),
    "error-overview": Picture("overview", "Overview, the requests failed", answer="fails"),
    "error-person": Picture("owners/users/mira", "A person, the requests failed", answer="fails"),
    "key": Picture("overview", "The service asks for a key", service="keys"),
    "reader-memory": Picture(
        "memories/{memory}?user_id=mira", "A memory, for a key that only reads", service="keys", key="reader"
    ),
    "reader-findings": Picture("findings", "Findings, for a key that only reads", service="keys", key="reader"),
    "bound-person": Picture("owners/users/mira", "A person, for a key bound to her", service="keys", key="bound"),
    "bound-memories": Picture("memories", "Memories, for a key bound to Mira", service="keys", key="bound"),
}

DOCS = ROOT / "docs" / "assets" / "console"
DOCUMENTED = {"person": "person", "sessions": "session", "prompt": "prompt", "facts": "facts"}
"""What is shown in the documentation, by the name of its picture: the first screen, light, at 1280 pixels."""

OURS = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
COMMAND = (sys.executable, "-m", "app.cli")
FAILED = {"code": "unavailable", "detail": "The store does not answer.", "request_id": "req_01hv3", "status": 503}
FRAME = ("/v1/whoami", "/v1/users?", "/v1/agents?")
"""What the frame itself asks for."""


@dataclass(frozen=True, slots=True)
class Services:
    """The addresses of the services by name, their keys by name, and the ids that addresses of pages name."""

    bases: Mapping[str, str]
    keys: Mapping[str, str]
    ids: Mapping[str, str]


@contextmanager
def demo(names: set[str]) -> Iterator[Services]:
    """The service on the demo's story and, where they are among the names, one with keys and an empty one."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = Path(folder) / "demo"
        subprocess.run([*COMMAND, "demo", "--only-fill", str(store)], check=True, env=OURS, cwd=ROOT)
        data, keys = {"demo": store / "data"}, {}
        if "keys" in names:
            data["keys"] = Path(folder) / "keys"
            shutil.copytree(store / "data", data["keys"])
            keys = {
                "reader": _key(data["keys"], "--verbs", "read"),
                "bound": _key(data["keys"], "--verbs", "read,write", "--user", "mira"),
            }
        if "empty" in names:
            data["empty"] = Path(folder) / "empty"
        bases = {name: stack.enter_context(_served(path)) for name, path in data.items()}
        yield Services(bases, keys, ids_of(bases["demo"]))


def _key(data: Path, *options: str) -> str:
    made = subprocess.run(
        [*COMMAND, "keys", "create", "--no-admin", "--tenant", "default", "--name", "picture", *options],
        check=True, env=OURS | {"RECALLD_DATA_DIR": str(data)}, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    return next(word for word in made.stdout.split() if word.startswith("rk_"))


@contextmanager
def _served(data: Path) -> Iterator[str]:
    log = data.with_suffix(".log")
    with log.open("wb") as out:
        service = subprocess.Popen(
            [*COMMAND, "serve"], env=OURS | {"RECALLD_DATA_DIR": str(data), "RECALLD_PORT": "0"},
            cwd=ROOT, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield _ready(service, log)
    finally:
        service.terminate()
        service.wait()


def _ready(service: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(round(SECONDS / STEP)):
        address = re.search(r"http://\S+:\d+", log.read_text())
        if address:
            httpx.get(f"{address[0]}/readyz").raise_for_status()
            return address[0]
        if service.poll() is not None:
            break
        time.sleep(STEP)
    raise SystemExit(f"The service did not start:\n{log.read_text()}")


def ids_of(base: str) -> dict[str, str]:
    """The ids of the records that addresses of pages name."""
    with httpx.Client(base_url=base, timeout=SECONDS) as client:
        memories = client.get("/v1/memories", params={"user_id": "mira", "limit": 100}).json()["items"]
        home = {"user_id": "mira", "subject": "@user", "predicate": "lives_in"}
        (lives,) = client.get("/v1/facts", params=home).json()["items"]
        procedures = client.get("/v1/procedures", params={"agent_id": "workshop", "name": "True a wheel"}).json()
        return {
            "memory": next(memory["memory_id"] for memory in memories if memory["supersedes"]),
            "fact": lives["fact_id"],
            "procedure": procedures["items"][0]["procedure_id"],
        }


def take(browser: Browser, services: Services, pictures: Mapping[str, Picture], given: argparse.Namespace) -> None:
    for width in given.widths:
        for scheme in given.schemes:
            size: ViewportSize = {"width": width, "height": WIDTHS[width]}
            with browser.new_context(viewport=size, color_scheme=scheme) as context:
                for name, picture in pictures.items():
                    _take(context, services, picture, given.folder / f"{name}-{width}-{scheme}.png", not given.screen)


def _take(context: BrowserContext, services: Services, picture: Picture, path: Path, whole: bool) -> None:
    """Takes one picture in a tab of its own: a key stays in its tab."""
    page = context.new_page()
    expected = {"": ("404", "401"), "waits": ("ERR_FAILED",), "fails": ("503",)}[picture.answer]
    page.on("pageerror", lambda error: print(f"{path.stem}: {error}"))
    page.on("console", lambda entry: _note(path.stem, entry.type, entry.text, expected))
    _stand_still(page)
    held: list[Route] = []
    if picture.answer:
        page.route(re.compile(r"/v1/|/metrics$"), lambda route: _answer(route, picture.answer, held))
    if picture.key:
        page.add_init_script(f"sessionStorage.setItem('recalld.key', '{services.keys[picture.key]}')")
    page.goto(f"{services.bases[picture.service]}/console/#/{picture.address.format(**services.ids)}")
    if picture.answer == "waits":
        page.wait_for_timeout(SETTLE_MS)
    else:
        page.wait_for_load_state("networkidle")
        if picture.address != "components":  # which shows how a page looks while it loads
            _wait(page)
    if picture.pressed:
        page.get_by_role("button", name=picture.pressed).first.click()
    if whole:
        page.evaluate(UNROLL)
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=path, full_page=whole)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        print(f"{path.stem}: {wide} pixels wider than the window")
    for route in held:
        route.abort()
    page.close()


def _wait(page: Page) -> None:
    """Until all is there. `wait_for_function` would evaluate text in the page, which its policy forbids."""
    for _ in range(round(SECONDS / STEP)):
        if page.evaluate(LOADED):
            return
        page.wait_for_timeout(STEP * 1000)


def _note(name: str, kind: str, text: str, expected: tuple[str, ...]) -> None:
    if kind == "error" and not any(status in text for status in expected):
        print(f"{name}: {text}")


def _answer(route: Route, answer: str, held: list[Route]) -> None:
    """Lets what the frame asks for through; what the page asks for is held, or fails."""
    if any(part in route.request.url for part in FRAME):
        route.continue_()
    elif answer == "fails":
        route.fulfill(status=503, json=FAILED, content_type="application/problem+json")
    else:
        held.append(route)


def write_index(folder: Path) -> None:
    """Says what each file of the folder shows, those of an earlier run, too."""
    lines = ["# Pictures of the console", "", "| File | Shows | Width | Theme |", "|---|---|--:|---|"]
    lines += [
        f"| {name}-{width}-{scheme}.png | {picture.shows} | {width} | {scheme} |"
        for name, picture in PICTURES.items()
        for width in WIDTHS
        for scheme in SCHEMES
        if (folder / f"{name}-{width}-{scheme}.png").exists()
    ]
    (folder / "INDEX.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def take_documented(browser: Browser, base: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    _stand_still(page)
    page.goto(f"{base}/console/")
    page.evaluate("localStorage.setItem('recalld.tour', 'closed')")
    for name, of in DOCUMENTED.items():
        page.goto("about:blank")
        page.goto(f"{base}/console/#/{PICTURES[of].address}")
        page.wait_for_load_state("networkidle")
        _wait(page)
        page.wait_for_timeout(SETTLE_MS)
        path = DOCS / f"{name}-light.png"
        page.screenshot(path=path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")
    context.close()


def _stand_still(page: Page) -> None:
    """Nothing changes while a picture is taken, and the stream of changes keeps the network busy: it ends at once."""
    page.route("**/v1/changes*", lambda route: route.fulfill(content_type="text/event-stream", body=""))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, nargs="?", help="where the pictures go")
    arguments.add_argument("--docs", action="store_true", help="the pictures of the documentation, in place of FOLDER")
    arguments.add_argument("--only", nargs="+", choices=PICTURES, help="pictures, in place of all")
    arguments.add_argument("--widths", nargs="+", type=int, choices=WIDTHS, default=list(WIDTHS), help="in pixels")
    arguments.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="light, dark or both")
    arguments.add_argument("--screen", action="store_true", help="the first screen in place of the whole page")
    arguments.add_argument("--base", help="the address of a service on the story that runs, in place of one of its own")
    given = arguments.parse_args()
    if given.docs == bool(given.folder):
        arguments.error("name a folder or --docs")
    pictures = {name: PICTURES[name] for name in given.only or PICTURES}
    with sync_playwright() as playwright, ExitStack() as stack:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        stack.callback(browser.close)
        if given.base:
            base = given.base.rstrip("/")
            services = Services({"demo": base}, {}, ids_of(base))
            pictures = {name: picture for name, picture in pictures.items() if picture.service == "demo"}
        else:
            services = stack.enter_context(
                demo(set() if given.docs else {picture.service for picture in pictures.values()})
            )
        if given.docs:
            take_documented(browser, services.bases["demo"])
            return
        given.folder.mkdir(parents=True, exist_ok=True)
        take(browser, services, pictures, given)
        write_index(given.folder)
        print(f"{len(pictures) * len(given.widths) * len(given.schemes)} pictures in {given.folder}")


if __name__ == "__main__":
    main()
