"""A browser, and the service on the demo's story. Without Chromium these tests are skipped, or fail where
RECALLD_TEST_BROWSER=required. Debian's `chromium-headless-shell` is Chromium without a window: a page takes half the
time in it."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.support.server import Server, recalld, serving

HERE = Path(__file__).parent
CHROMIUM = os.environ.get("RECALLD_TEST_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), "/usr/bin/chromium-headless-shell"
)
SECONDS = 90
AXE = HERE / "vendor" / "axe.min.js"
MOST_REQUESTS = 12


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: while Playwright is open, its event loop runs in this thread, and no asynchronous test can."""
    if not Path(CHROMIUM).exists():
        why = f"No Chromium at {CHROMIUM}: install Debian's chromium-headless-shell, or set RECALLD_TEST_CHROMIUM."
        if os.environ.get("RECALLD_TEST_BROWSER") == "required":
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a service after the demo's story, told once for all workers. Copy it: tests change it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    told = root / "story"
    with (root / "story.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            folder = tmp_path_factory.mktemp("telling") / "demo"
            ended = recalld(folder.parent / "own", "demo", "--only-fill", str(folder))
            assert ended.returncode == 0, ended.stderr
            folder.rename(told)
    return told / "data"


@pytest.fixture(scope="module")
def server(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service on the story, for the tests of one module."""
    data = tmp_path_factory.mktemp("served") / "data"
    shutil.copytree(story, data)
    with serving(data, RECALLD_JOBS_ENABLED="true") as made:
        yield made


class Visit:
    """A tab of the browser that notes what goes wrong in it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.refused_on_purpose = False
        page.set_default_timeout(SECONDS * 1000)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self._unanswered: set[Request] = set()
        page.on("request", self._asked)
        page.on("requestfinished", self._answered)
        page.on("requestfailed", self._answered)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.base, "blob:", "data:")):
            self.faults.append(f"asked elsewhere: {request.url}")
        if "/v1/" in request.url and "/v1/changes" not in request.url:  # the stream opens after the view has loaded
            self.requests.append(f"{request.method} {request.url}")
            self._unanswered.add(request)

    def _answered(self, request: Request) -> None:
        self._unanswered.discard(request)

    def open(self, address: str, ready: str) -> Page:
        """Opens `#/address` anew and waits until its page shows the text `ready`. A view asks at most twelve things."""
        self.page.goto("about:blank")
        self.requests.clear()
        self._unanswered.clear()
        self.page.goto(f"{self.base}/console/#/{address}")
        self.page.locator("main").get_by_text(ready).first.wait_for()
        self.wait_for_answers()
        assert len(self.requests) <= MOST_REQUESTS, self.requests
        return self.page

    def wait_for_answers(self) -> None:
        """Until all that the page asked was answered, and it asks nothing more. The network itself is never idle: the
        stream of changes stays open."""
        ends, idle_since = time.monotonic() + 5, time.monotonic()
        while time.monotonic() < min(ends, idle_since + 0.25):
            self.page.wait_for_timeout(50)
            if self._unanswered:
                idle_since = time.monotonic()

    def check(self) -> None:
        """Nothing failed, and axe finds no fault on the page as it is when all has been drawn."""
        self.wait_for_answers()  # what is clicked next stays where it is: a click that a new drawing overtakes is lost
        if not self.page.evaluate("'axe' in window"):  # half a megabyte to read: once in a document
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: Any = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        broken = [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]
        assert not broken, "\n".join(broken)
        assert self.faults == []


Visitor = Callable[..., Visit]


@pytest.fixture
def visitor(browser: Browser, server: Server) -> Iterator[Visitor]:
    """Opens tabs of the console of `server`: `visitor(color_scheme="dark")`."""
    contexts = []

    def visit(base: str | None = None, **options: Any) -> Visit:
        context = browser.new_context(
            reduced_motion="reduce", **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        contexts.append(context)
        return Visit(context.new_page(), base or str(server.client.base_url).rstrip("/"))

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def visit(visitor: Visitor) -> Visit:
    """A tab of the console."""
    return visitor()


@pytest.fixture(scope="module")
def story_with_key(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """The service on the story with API keys, and one that may only read."""
    data = tmp_path_factory.mktemp("keyed") / "data"
    shutil.copytree(story, data)
    made = recalld(data, "keys", "create", "--no-admin", "--tenant", "default", "--name", "reader", "--verbs", "read")
    assert made.returncode == 0, made.stderr
    key = next(word for word in made.stdout.split() if word.startswith("rk_"))
    with serving(data) as server:
        yield server, key
