"""The five tasks that the console is for, and work on several records, done in a browser by the keyboard alone."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Visit
from tests.support.server import Server

pytestmark = pytest.mark.before_store
MOST_STOPS = 150


def tab_to(page: Page, target: Locator) -> None:
    """Presses Tab until the target has the focus."""
    target.wait_for()
    node = target.element_handle()
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        there, reached = node.evaluate("node => [node.isConnected, node === document.activeElement]")
        if not there:  # drawn anew: only then it is looked up by its role, which takes ten times as long
            node = target.element_handle()
            reached = node.evaluate("node => node === document.activeElement")
        if reached:
            return
    pytest.fail(f"{MOST_STOPS} stops do not reach {target}")


def find(page: Page, text: str, option: str) -> None:
    """Finds a person, a page or a session by ⌘K, and goes there."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find people")).to_be_focused()
    page.keyboard.type(text)
    expect(
        page.get_by_role("dialog").get_by_role("option", name=re.compile(f"^{option}"), selected=True)
    ).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_where_a_person_lived_before(visit: Visit) -> None:
    page = visit.open("overview", "Growth")
    find(page, "mira", "Mira")
    changed = page.get_by_role("region", name="What changed lately")
    expect(changed).to_contain_text("before: Mira lives in Altona")
    tab_to(page, changed.get_by_role("link", name="“I moved to Bergedorf”"))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="mira-has-moved").wait_for()


def test_why_it_said_that(visit: Visit) -> None:
    page = visit.open("overview?user_id=mira&agent_id=front-desk", "Growth")
    find(page, "prompt", "Prompt")
    page.get_by_role("heading", name="Prompt", exact=True).wait_for()
    page.get_by_role("searchbox").wait_for()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("Where does Mira live?")
    kept = page.get_by_role("region", name="Kept").locator("li", has_text="live in Altona").first
    tab_to(page, kept.get_by_role("link", name="turn 1 of mira-first-visit"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="mira-first-visit")).to_be_visible()


def test_what_a_session_left_behind(visit: Visit) -> None:
    page = visit.open("overview", "Growth")
    find(page, "mira-has-moved", "mira-has-moved")
    came = page.locator("#turn-1").get_by_role("link", name="Mira commutes 23 km")
    tab_to(page, came)
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Memory", exact=True)).to_contain_text("Mira commutes 14 km a day.")


def test_several_memories_are_archived_and_brought_back(visit: Visit, server: Server) -> None:
    for text in ("First kite", "Second kite"):
        server.client.post("/v1/memories", json={"user_id": "kim", "content": text}).raise_for_status()
    page = visit.open("memories?user_id=kim", "Second kite")
    for text in ("Second kite", "First kite"):
        tab_to(page, page.get_by_label(f"Choose: {text}"))
        page.keyboard.press("Space")
    tab_to(page, page.get_by_role("group", name="Chosen memories").get_by_role("button", name="Archive"))
    page.keyboard.press("Enter")
    page.get_by_text("2 memories archived.").wait_for()
    tab_to(page, page.get_by_role("button", name="Undo"))
    page.keyboard.press("Enter")
    page.get_by_text("Undone.").wait_for()
    items = server.client.get("/v1/memories", params={"user_id": "kim"}).json()["items"]
    assert [one["status"] for one in items] == ["active", "active"]


def test_whether_it_is_healthy_and_what_it_costs(visit: Visit) -> None:
    page = visit.open("memories", "Front desk")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.press("1")
    page.get_by_role("heading", name="Overview").wait_for()
    expect(page.get_by_role("region", name="Health")).to_contain_text(re.compile(r"Operations(\d+) of \1 succeeded"))
    expect(page.get_by_role("region", name="Cost")).to_contain_text("This service calls no language model")
    tab_to(page, page.get_by_role("main").get_by_role("link", name="Operations"))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()


def test_a_wrong_memory_is_corrected(visit: Visit, server: Server) -> None:
    page = visit.open("overview", "Growth")
    find(page, "mira", "Mira")
    tab_to(page, page.get_by_role("link", name="Mira commutes 23 km a day since she moved.").first)
    page.keyboard.press("Enter")
    memory = page.get_by_role("region", name="Memory", exact=True)
    tab_to(page, memory.get_by_role("button", name="Edit"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    tab_to(page, dialog.get_by_role("textbox", name="Text"))
    page.keyboard.press("Control+a")
    page.keyboard.type("Mira commutes 21 km a day since she moved.")
    tab_to(page, dialog.get_by_role("button", name="Save"))
    page.keyboard.press("Enter")
    expect(memory.get_by_role("heading", name="Mira commutes 21 km a day since she moved.")).to_be_visible()
    contents = {item["content"] for item in server.client.get("/v1/memories?user_id=mira&limit=100").json()["items"]}
    assert "Mira commutes 21 km a day since she moved." in contents
    assert "Mira commutes 23 km a day since she moved." not in contents


def test_what_a_person_said_wrong_is_corrected_and_stays(visit: Visit, server: Server) -> None:
    page = visit.open("memories?user_id=priya&memory_type=message", "recalibrated")
    turn = "The gauge was recalibrated on Monday. Use 1,180 newtons from now on."
    tab_to(page, page.get_by_role("link", name=turn))
    page.keyboard.press("Enter")
    memory = page.get_by_role("region", name="Memory", exact=True)
    tab_to(page, memory.get_by_role("button", name="Correct"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    tab_to(page, dialog.get_by_role("textbox"))
    page.keyboard.press("Control+a")
    page.keyboard.type("The gauge was recalibrated on Tuesday.")
    tab_to(page, dialog.get_by_role("button", name="Correct"))
    page.keyboard.press("Enter")
    page.get_by_text("Corrected. What was said stays in the history.").wait_for()
    items = server.client.get("/v1/memories?user_id=priya&status=any&limit=100").json()["items"]
    (said,), (right,) = (
        [item for item in items if item["content"] == text] for text in (turn, "The gauge was recalibrated on Tuesday.")
    )
    assert said["status"] == "superseded"
    assert right["supersedes"] == [said["memory_id"]]
