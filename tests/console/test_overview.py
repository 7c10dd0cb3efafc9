"""The frame of the console and its first page: key, verbs, theme, keyboard, and what an empty store says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server, serving

pytestmark = pytest.mark.before_store
PHONE = {"width": 375, "height": 800}
ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "console"
PICTURES = os.environ.get("RECALLD_TEST_PICTURES") == "write"
"""Whether the pictures of the documentation are made anew."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("empty") / "data") as made:
        yield made


def base_of(server: Server) -> str:
    return str(server.client.base_url).rstrip("/")


def test_the_overview_shows_what_the_service_counts(visit: Visit, server: Server) -> None:
    query = {"user_id": "priya", "query": "Which tension have 36-spoke wheels?", "top_k": 1}
    (hit,) = server.client.post("/v1/memories/search", json=query).json()["items"]
    page = visit.open("overview", "Growth")
    counts = server.client.get("/v1/stats").json()["counts"]
    tiles = page.locator(".tiles a")
    shown = {
        tile.inner_text().split("\n")[1]: int(tile.inner_text().split("\n")[0].replace(",", "")) for tile in tiles.all()
    }
    assert shown == counts
    expect(page.get_by_role("link", name=hit["memory"]["content"])).to_be_visible()
    expect(page.locator(".box", has_text="Latency").get_by_role("row").nth(1)).to_be_visible()
    page.get_by_text("Numbers").first.click()
    expect(page.get_by_role("region", name="Numbers of Records created").get_by_role("row")).to_have_count(31)
    visit.check()


def test_the_keyboard_reaches_everything(visit: Visit) -> None:
    page = visit.open("overview", "Growth")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    visit.check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("2")
    page.get_by_role("heading", name="Memories", exact=True).wait_for()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("2?/")
    expect(page.get_by_role("searchbox")).to_have_value("2?/")


def test_the_theme_is_chosen_and_kept(visitor: Visitor) -> None:
    visit = visitor(color_scheme="light")
    page = visit.open("overview", "Growth")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate(ground)
    assert light != dark
    visit.check()
    page.reload()
    page.get_by_text("Growth").first.wait_for()
    assert page.evaluate(ground) == dark


def test_an_address_without_a_page_says_so(visit: Visit) -> None:
    page = visit.open("nowhere/<script>", "There is no page")
    page.get_by_role("link", name="Overview").last.click()
    page.get_by_text("Growth").first.wait_for()


def test_a_key_is_asked_for_and_a_read_key_sees_no_button_that_writes(
    visitor: Visitor, story_with_key: tuple[Server, str]
) -> None:
    server, key = story_with_key
    visit = visitor(base_of(server))
    page = visit.open("memories", "This service has API keys")
    visit.faults.clear()  # the browser notes the 401 itself
    visit.check()
    page.get_by_label("API key").fill("rk_wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").get_by_text("401").wait_for()
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Memories", exact=True).wait_for()
    page.get_by_text("read only").wait_for()
    assert page.evaluate("Object.values(localStorage).join()").count("rk_") == 0
    page.locator("main .list a").first.click()
    page.get_by_role("heading", name="Importance").wait_for()
    for name in ("Edit", "Delete", "Archive", "Pin", "It helped"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    page.get_by_role("link", name="Operations").click()
    page.get_by_role("heading", name="Operations").first.wait_for()
    expect(page.get_by_role("link", name="Keys")).to_have_count(0)
    expect(page.get_by_role("button", name="Run", exact=False)).to_have_count(0)
    page.get_by_role("button", name="Leave").click()
    page.get_by_text("This service has API keys").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_an_empty_store_says_how_to_fill_it(visitor: Visitor, empty: Server) -> None:
    visit = visitor(base_of(empty))
    page = visit.open("overview", "Nothing is remembered yet")
    command = page.locator(".empty pre").inner_text()
    assert command.startswith(f"curl -s '{base_of(empty)}/v1/memories'")
    assert empty.client.get("/v1/stats").json()["counts"]["memories"] == 0
    visit.check()
    for address, text in (("memories", "Nothing is remembered yet"), ("operations", "Nobody asked for an operation")):
        visit.open(address, text)
        visit.check()


def test_the_api_page_works_without_the_internet(visitor: Visitor, server: Server) -> None:
    visit = visitor()
    visit.page.goto(f"{visit.base}/docs")
    visit.page.get_by_text("Start with these five:").wait_for()
    visit.page.get_by_role("button", name="Expand operation").first.wait_for(state="attached")
    visit.page.wait_for_load_state("networkidle")
    assert visit.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desk", "phone"])
def test_pages_look_right_in_light_dark_and_on_a_phone(
    visitor: Visitor, scheme: str, viewport: dict[str, int] | None, server: Server, tmp_path: Path
) -> None:
    visit = visitor(color_scheme=scheme, **({"viewport": viewport} if viewport else {}))
    memories = "memories?query=what%20tension%20for%20spokes&user_id=priya"
    views = {
        "overview": ("overview", "Growth"),
        "memories": (memories, "probability"),
        "operations": ("operations", "Run"),
    }
    for name, (where, ready) in views.items():
        page = visit.open(where, ready)
        visit.check()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels wider than the window"
        folder = ASSETS if viewport is None and PICTURES else tmp_path
        page.screenshot(path=folder / f"{name}-{scheme}.png")
