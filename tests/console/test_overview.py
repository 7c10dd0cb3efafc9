"""The frame of the console and its first page: key, verbs, theme, keyboard, and what an empty store says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, ViewportSize, expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server, serving

pytestmark = pytest.mark.before_store
PHONE: ViewportSize = {"width": 375, "height": 800}


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
    tiles = page.locator(".tiles li a")
    shown = {
        tile.inner_text().split("\n")[1]: int(tile.inner_text().split("\n")[0].replace(",", "")) for tile in tiles.all()
    }
    called = {"users": "people", "facts": "statements of facts"}
    assert shown == {called.get(kind, kind): count for kind, count in counts.items()}
    open_findings = server.client.get("/v1/findings", params={"status": "open"}).json()["items"]
    facts = server.client.get("/v1/facts", params={"status": "disputed", "timeline": True}).json()["items"]
    memories = server.client.get("/v1/memories", params={"status": "disputed"}).json()["items"]
    waiting = len(open_findings) + len(facts) + len(memories)
    expect(page.get_by_role("link", name="to decide")).to_have_text(f"{waiting} to decide")
    expect(page.get_by_role("link", name=hit["memory"]["content"])).to_be_visible()
    health = page.get_by_role("region", name="Health")
    operations = server.client.get("/v1/stats").json()["operations_by_status"]
    assert set(operations) == {"succeeded"}
    expect(health).to_contain_text("{0} of {0} succeeded".format(operations["succeeded"]))
    outcomes = [job["outcome"] for job in server.client.get("/v1/jobs").json()["items"]]
    assert set(outcomes) == {"succeeded", None}
    expect(health).to_contain_text("{0} of {0} succeeded".format(outcomes.count("succeeded")))
    expect(health).to_contain_text(f"{outcomes.count(None)} had nothing to do yet")
    expect(health).to_contain_text(re.compile(r"none of [\d,]+ failed"))
    top = [page.get_by_role("region", name=name).bounding_box() for name in ("Health", "To decide", "Cost")]
    tiles_box = page.locator(".tiles").bounding_box()
    assert tiles_box
    assert all(box and box["y"] + box["height"] <= tiles_box["y"] for box in top)
    latency = page.locator(".box", has_text="Latency")
    latency.locator("summary").click()  # routes of few requests are not listed at once
    expect(latency.get_by_role("row").nth(1)).to_be_visible()
    few = [row for row in latency.get_by_role("row").all() if row.get_by_text("too few").count()]
    assert all(int(row.locator("td").nth(1).inner_text()) < 20 for row in few)
    page.get_by_text("Numbers").first.click()
    expect(page.get_by_role("region", name="Numbers of Records created").get_by_role("row")).to_have_count(31)
    visit.check()


def test_the_overview_stands_there_before_it_is_counted(visit: Visit) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    visit.page.route("**/v1/stats", hold)
    visit.page.goto(f"{visit.base}/console/#/overview")
    first = visit.page.locator(".tiles li").first
    expect(first).to_contain_text("…")
    for heading in ("Health", "To decide", "Cost", "Growth", "Recalled lately"):
        expect(visit.page.get_by_role("heading", name=heading)).to_be_visible()
    visit.check()
    held[0].continue_()
    expect(first).not_to_contain_text("…")


def test_what_it_costs_is_said(visit: Visit) -> None:
    page = visit.open("overview", "nothing is paid for")
    expect(page.get_by_role("region", name="Storage")).to_contain_text(re.compile(r"\d [kM]B in [\d,]+ records"))
    visit.check()

    def with_a_model(route: Route) -> None:
        found = route.fetch().json()
        set_to = {"RECALLD_LLM_BASE_URL": "set", "RECALLD_LLM_MODEL": "small-1", "RECALLD_LLM_TOKENS_PER_DAY": "20000"}
        for one in found["items"]:
            one["value"] = set_to.get(one["name"], one["value"])
        route.fulfill(json=found)

    page.route("**/v1/settings", with_a_model)
    figures = {
        "recalld_llm_tokens_total": 1234,
        'recalld_llm_usage_total{kind="calls",tenant="default"}': 7,
        'recalld_stored_bytes{collection="agent_memories"}': 2_400_000,
        'recalld_stored_bytes{collection="facts"}': 600_000,
        'recalld_stored_records{collection="agent_memories"}': 1_500,
        'recalld_stored_records{collection="facts"}': 500,
        'recalld_http_requests_total{method="POST",route="/v1/context",status="200"}': 12,
        'recalld_http_requests_total{method="POST",route="/v1/context",status="422"}': 3,
        'recalld_http_requests_total{method="GET",route="/v1/facts",status="503"}': 2,
        'recalld_http_requests_total{method="GET",route="/v1/facts",status="500"}': 1,
        'recalld_http_requests_total{method="GET",route="/v1/tasks",status="500"}': 1,
    }
    metrics = "".join(f"{name} {value}.0\n" for name, value in figures.items())
    page.route("**/metrics", lambda route: route.fulfill(body=metrics))
    cost = visit.open("overview", "small-1").get_by_role("region", name="Cost")
    expect(cost).to_contain_text("small-1: 1,234 tokens in 7 calls since the service started.")
    expect(cost).to_contain_text("At most 20,000 tokens of a tenant on one day.")
    expect(cost).to_contain_text("12 prompts built since the service started.")
    health = page.get_by_role("region", name="Health")
    expect(health).to_contain_text("4 failed of 19: GET /v1/facts 3, GET /v1/tasks 1")
    expect(health).to_contain_text("something failed")
    storage = page.get_by_role("region", name="Storage")
    expect(storage).to_contain_text("3.0 MB in 2,000 records")
    expect(storage.get_by_role("listitem")).to_have_text(["memories 2400 kB", "facts 600 kB"])
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
    page.keyboard.press("4")
    page.get_by_role("heading", name="Memories", exact=True).wait_for()
    page.get_by_role("searchbox").wait_for()
    page.wait_for_load_state("load")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("2?/")
    expect(page.get_by_role("searchbox")).to_have_value("2?/")


def test_whose_memory_one_looks_at_stands_in_the_frame_and_stays(visit: Visit, server: Server) -> None:
    page = visit.open("memories", "Front desk")
    expect(page.get_by_label("Person")).to_have_value("")
    page.get_by_label("Person").select_option("jonas")
    page.wait_for_url("**user_id=jonas")
    for name in ("Sessions", "Tasks", "Findings", "Memories"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        page.get_by_role("heading", name=name, exact=True).wait_for()
        expect(page.get_by_label("Person")).to_have_value("jonas")
    page.locator("main .list a.title").first.click()
    page.get_by_role("region", name="Memory", exact=True).wait_for()
    expect(page.get_by_label("Person")).to_have_value("jonas")
    page.get_by_label("Person").select_option("")
    expect(page.get_by_role("region", name="Memory", exact=True)).to_have_count(0)
    assert "user_id" not in page.url
    page = visit.open("owners/users/mira/facts", "Mira lives in")
    expect(page.get_by_label("Person")).to_have_value("mira")
    page.get_by_label("Person").select_option("jonas")
    page.get_by_text("Jonas is allergic to").first.wait_for()
    visit.check()


def test_people_sessions_memories_and_pages_are_found_by_the_keyboard(visit: Visit) -> None:
    page = visit.open("overview", "Growth")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find people")
    expect(box).to_be_focused()
    visit.check()
    page.keyboard.type("mira")
    expect(page.get_by_role("option", name="mira-has-moved")).to_be_visible()
    expect(page.get_by_text("Choose a person or an agent in the frame")).to_be_visible()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Mira", exact=True).wait_for()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.type("Which bike does Mira ride?")
    hit = page.get_by_role("option", name="Halcyon E3").first
    hit.wait_for()
    visit.check()
    hit.click()
    expect(page.get_by_role("region", name="Memory", exact=True)).to_contain_text("Halcyon E3")
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.type("sessions")
    chosen = page.get_by_role("dialog").get_by_role("option", selected=True)
    expect(chosen).to_have_text("Sessions")
    page.keyboard.press("ArrowDown")
    expect(chosen).not_to_have_text("Sessions")
    page.keyboard.press("ArrowUp")
    expect(chosen).to_have_text("Sessions")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1440, "height": 900}])
def test_the_commands_are_in_view_before_anything_is_typed(visitor: Visitor, viewport: ViewportSize) -> None:
    page = visitor(viewport=viewport).open("overview", "Growth")
    page.keyboard.press("Control+k")
    found = page.get_by_role("listbox", name="Found").bounding_box()
    command = page.get_by_role("option", name="Keyboard shortcuts").bounding_box()
    assert found
    assert command
    assert command["y"] + command["height"] <= found["y"] + found["height"]


def test_a_phone_opens_the_whole_menu(visitor: Visitor) -> None:
    visit = visitor(viewport=PHONE)
    page = visit.open("overview", "Growth")
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages).to_have_count(0)
    page.get_by_role("button", name="Menu").click()
    for name in ("Overview", "People and agents", "Operations"):
        expect(pages.get_by_role("link", name=name)).to_be_in_viewport()
    visit.check()
    pages.get_by_role("link", name="Tasks").click()
    page.get_by_role("heading", name="Tasks", exact=True).wait_for()
    expect(pages).to_have_count(0)


@pytest.mark.parametrize(
    ("address", "ready"),
    [
        ("owners/users/mira/data", "Erase"),
        ("operations/settings", "RECALLD_DATA_DIR"),
        ("components", "States of a page"),
    ],
)
def test_a_phone_scrolls_the_tabs_in_one_row(visitor: Visitor, address: str, ready: str) -> None:
    visit = visitor(viewport=PHONE)
    bar = visit.open(address, ready).locator(".tabs")
    boxes = [box for tab in bar.get_by_role("link").all() if (box := tab.bounding_box())]
    assert len({box["y"] for box in boxes}) == 1
    chosen = bar.locator("[aria-current]").bounding_box()
    assert chosen
    assert chosen["x"] >= 0
    assert chosen["x"] + chosen["width"] <= PHONE["width"]
    for tab in bar.get_by_role("link").all():
        tab.focus()
        box = tab.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    visit.check()


def test_tabs_say_at_which_side_there_are_more(visitor: Visitor) -> None:
    visit = visitor(viewport=PHONE)
    bar = visit.open("owners/users/mira", "What holds now").locator(".tabs")
    sign = "(bar, side) => getComputedStyle(bar, side).visibility + getComputedStyle(bar, side).content"
    assert bar.evaluate(sign, "::after") == 'visible"›" / ""'
    assert bar.evaluate(sign, "::before").startswith("hidden")
    bar.evaluate("bar => { bar.scrollLeft = bar.scrollWidth; }")
    expect(bar).to_have_class("tabs before")
    assert bar.evaluate(sign, "::after").startswith("hidden")
    last, edge = bar.get_by_role("link").last.bounding_box(), bar.bounding_box()
    assert last
    assert edge
    assert abs(last["x"] + last["width"] - edge["x"] - edge["width"]) <= 1  # nothing is hidden at the end
    wide = visitor().open("owners/users/mira", "What holds now").locator(".tabs")
    expect(wide).to_have_class("tabs")


def test_nothing_covers_a_command_on_a_phone(visitor: Visitor) -> None:
    page = visitor(viewport=PHONE).open("components", "States of a page")
    code = page.locator(".empty .code")
    text, button = (code.locator(one).bounding_box() for one in ("pre", "button"))
    assert text
    assert button
    assert text["y"] + text["height"] <= button["y"]
    assert code.locator("pre").evaluate("pre => pre.scrollWidth <= pre.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_components_have_no_fault_in_any_state(visitor: Visitor, scheme: str) -> None:
    visit = visitor(color_scheme=scheme)
    page = visit.open("components", "States of a page")
    page.get_by_text("Why", exact=True).click()
    page.get_by_role("button", name="Toast", exact=True).click()
    page.get_by_role("button", name="Bad toast").click()
    visit.check()
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("dialog").wait_for()
    visit.check()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_theme_is_chosen_and_kept(visitor: Visitor) -> None:
    visit = visitor(color_scheme="light")
    page = visit.open("overview", "Growth")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    expect(page.locator("html")).not_to_have_css("background-color", light)  # restyled a moment later
    dark = page.evaluate(ground)
    visit.check()
    page.reload()
    page.get_by_text("Growth").first.wait_for()
    assert page.evaluate(ground) == dark


def test_the_demo_is_shown_in_six_steps_until_they_are_closed(visitor: Visitor, empty: Server) -> None:
    visit = visitor()
    page = visit.open("overview", "Growth")
    steps = page.get_by_role("region", name="The demo in six steps")
    for heading, seen in (
        ("Mira", "What changed lately"),
        ("Mira", "Altona"),
        ("mira-has-moved", "Mira lives in Bergedorf"),
        ("Prompt", "Built again as of"),
        ("Findings", "Jonas lives in Bremen"),
        ("Overview", "Growth"),
    ):
        steps.get_by_role("status").get_by_role("link").click()
        page.get_by_role("heading", name=heading, exact=True).wait_for()
        page.locator("main").get_by_text(seen).first.wait_for()
        visit.check()
    expect(steps.get_by_role("status").get_by_role("link")).to_have_count(0)
    steps.get_by_role("button", name="Close").click()
    page.reload()
    page.get_by_text("Growth").first.wait_for()
    page.get_by_label("Agent").locator("option", has_text="Workshop").wait_for(state="attached")
    expect(steps).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find people")).to_be_focused()
    page.keyboard.type("six steps")
    expect(page.get_by_role("option", name="The demo in six steps", selected=True)).to_be_visible()
    page.keyboard.press("Enter")
    steps.wait_for()
    steps.get_by_role("button", name="Close").click()
    page.get_by_role("banner").get_by_role("button", name="The demo").click()
    steps.wait_for()
    other = visitor(base_of(empty))
    page = other.open("overview", "Nothing is remembered yet")
    expect(page.get_by_role("region", name="The demo in six steps")).to_have_count(0)


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
    visit.wait_for_answers()  # a list that is drawn anew between press and release of the button loses the click
    page.locator("main .list a.title").first.click()
    page.get_by_role("heading", name="Importance").wait_for()
    for name in ("Edit", "Delete", "Archive", "Pin", "It helped"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    page = visit.open("findings", "Contradicted when it was stored")
    expect(page.get_by_text("a key that writes is needed").first).to_be_visible()
    expect(page.get_by_text("Decide which holds")).to_have_count(0)
    for name in ("This one holds", "Both hold", "Accept", "Dismiss"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
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
    for address, text in (
        ("memories", "Nothing is remembered yet"),
        ("operations", "No operation in the last 30 days"),
    ):
        visit.open(address, text)
        visit.check()


def test_what_somebody_just_stored_is_one_click_away(visitor: Visitor, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        said = [{"role": "user", "name": "Ada", "content": "I moved to Boston in May."}]
        body = {"agent_id": "assistant", "user_id": "ada", "messages": said}
        assert server.client.post("/v1/sessions/ada-monday/messages", json=body).status_code == 201
        visit = visitor(base_of(server))
        for link, shows in (
            ("ada", "I moved to Boston in May."),
            ("assistant", "This agent is not registered"),
            ("ada-monday", "I moved to Boston in May."),
            ("Prompt", "Make the prompt"),
        ):
            page = visit.open("overview", "Said lately")
            page.get_by_role("region", name="Said lately").get_by_role("link", name=link, exact=True).click()
            page.locator("main").get_by_text(shows).first.wait_for()
        assert "agent_id=assistant" in visit.page.url
        assert "user_id=ada" in visit.page.url


def test_the_api_page_works_without_the_internet(visitor: Visitor, server: Server) -> None:
    visit = visitor()
    visit.page.goto(f"{visit.base}/docs")
    visit.page.get_by_text("Start with these five:").wait_for()
    visit.page.get_by_role("button", name="Expand operation").first.wait_for(state="attached")
    visit.page.wait_for_load_state("networkidle")
    assert visit.faults == []
