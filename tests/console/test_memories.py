"""The page of memories: search as one types, one memory with all that is known of it, and what can be done with it."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit
from tests.support.server import Server

pytestmark = pytest.mark.before_store
Json = dict[str, Any]
HOSTILE = (
    "<script>window.attacked = 1</script>",
    "<img src=x onerror='window.attacked = 1'>",
    "[link](javascript:window.attacked=1) javascript:window.attacked=1",
    "\u202eevil\u202c العربية \u2066x",
    "␀ \\u0000 \x01\x1b[31m red",
    "${window.attacked = 1} {{constructor}}",
    "word " * 6_399 + "ends",
)


def remember(server: Server, content: str, **fields: Any) -> Json:
    body = {"agent_id": "tester", "user_id": "tess", "content": content, **fields}
    made = server.client.post("/v1/memories", json=body)
    assert made.status_code in (200, 201), made.text
    found: Json = made.json()
    return found


def stored(server: Server, memory: Json) -> Json:
    found: Json = server.client.get(f"/v1/memories/{memory['memory_id']}").json()
    return found


def test_a_search_finds_as_one_types_and_shows_the_parts_of_each_score(visit: Visit, server: Server) -> None:
    page = visit.open("memories", "importance")
    page.get_by_label("user", exact=True).fill("priya")
    page.keyboard.press("Tab")
    page.get_by_role("searchbox").press_sequentially("what tension for spokes", delay=5)
    page.get_by_text("probability that it helps").first.wait_for()
    body = {
        "user_id": "priya",
        "query": "what tension for spokes",
        "explain": True,
        "record_access": False,
        "top_k": 20,
    }
    hits = server.client.post("/v1/memories/search", json=body).json()["items"]
    rows = page.locator("main .list > li")
    expect(rows).to_have_count(len(hits))
    expect(rows.first).to_contain_text(hits[0]["memory"]["content"])
    expect(rows.first).to_contain_text(f"{hits[0]['score']:.3f}")
    legend = rows.first.locator(".legend").first
    expect(legend).to_contain_text(f"meaning {hits[0]['contributions']['vector_scaled']:.2f}")
    rows.first.get_by_text("All features").click()
    expect(rows.first.locator("dl dd")).to_have_count(len(hits[0]["scores"]) - 2)
    assert "query=what+tension+for+spokes" in page.url
    visit.check()
    page.get_by_label("mode").select_option("text")
    page.get_by_text("BM25").first.wait_for()
    page.get_by_label("type").select_option("preference")
    page.get_by_text("No memory is like this").wait_for()


def test_looking_at_memories_does_not_count_as_recalling_them(visit: Visit, server: Server) -> None:
    before = [one["access_count"] for one in server.client.get("/v1/memories?user_id=priya").json()["items"]]
    visit.open("memories?user_id=priya&query=tension", "probability that it helps")
    after = [one["access_count"] for one in server.client.get("/v1/memories?user_id=priya").json()["items"]]
    assert after == before


def test_a_search_without_an_owner_takes_that_of_the_list(visit: Visit, server: Server) -> None:
    page = visit.open("memories?user_id=mira", "importance")
    page.get_by_label("user", exact=True).fill("")
    page.keyboard.press("Tab")
    page.get_by_role("searchbox").fill("bike")
    page.get_by_text("probability that it helps").first.wait_for()
    assert re.search(r"(agent|user)_id=\w", page.url)


def test_more_of_a_list_is_loaded_when_asked_for(visit: Visit, server: Server) -> None:
    page = visit.open("memories", "importance")
    rows = page.locator("main .list > li")
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(40)


def test_a_memory_shows_its_source_chain_and_curve(visit: Visit, server: Server) -> None:
    items = server.client.get("/v1/memories?status=active&limit=100").json()["items"]
    memory = next(one for one in items if one["supersedes"] and one["source"]["session_id"])
    old = server.client.get(f"/v1/memories/{memory['supersedes'][0]}").json()
    page = visit.open(f"memories/{memory['memory_id']}", "Chain")
    view = page.get_by_role("region", name="Memory", exact=True)
    expect(view).to_contain_text(f"Importance {memory['importance']:.2f} now; recalled {memory['access_count']} times")
    link = view.get_by_role("link", name=memory["source"]["session_id"])
    assert (link.get_attribute("href") or "").startswith(f"#/sessions/{memory['source']['session_id']}")
    view.get_by_role("button", name="Find near-duplicates").click()
    view.get_by_text("cosine").first.wait_for()
    visit.check()
    view.get_by_role("link", name=old["content"]).click()
    expect(view).to_contain_text("superseded")
    expect(view.get_by_role("link", name=memory["content"])).to_be_visible()


def test_an_edit_is_saved_shown_in_the_history_and_undone(visit: Visit, server: Server) -> None:
    memory = remember(server, "Tess rides a red bike", tags=["bikes"], importance=0.4)
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit memory")
    dialog.get_by_label("Text").fill("Tess rides a blue bike")
    dialog.get_by_label("Importance").fill("0.9")
    expect(dialog.get_by_label("Text")).to_have_value("Tess rides a blue bike")
    visit.check()
    dialog.get_by_role("button", name="Save").click()
    page.get_by_text("version 1 → 2").wait_for()
    expect(page.locator("ins")).to_have_text(["blue", "0.9"])
    expect(page.locator("del").first).to_have_text("red")
    assert (stored(server, memory)["content"], stored(server, memory)["tags"]) == ("Tess rides a blue bike", ["bikes"])
    visit.check()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("version 2 → 3").wait_for()
    assert stored(server, memory)["content"] == "Tess rides a red bike"
    assert stored(server, memory)["base_importance"] == pytest.approx(0.4, abs=1e-3)


def test_a_refused_edit_says_why_and_stays_open(visit: Visit, server: Server) -> None:
    memory, other = remember(server, "One of two", key="first"), remember(server, "Two of two", key="second")
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Key").fill(other["key"])
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("409")
    visit.faults.clear()  # the browser notes the 409 itself


def test_pin_archive_feedback_and_delete_by_keyboard(visit: Visit, server: Server) -> None:
    memory = remember(server, "Tess keeps a spare tube")
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")

    def press(name: str) -> None:
        page.get_by_role("button", name=name, exact=True).focus()
        page.keyboard.press("Enter")

    press("Pin")
    page.get_by_role("button", name="Unpin").wait_for()
    assert stored(server, memory)["pinned"]
    expect(page.get_by_text("It is pinned: it does not fade")).to_be_visible()
    press("Archive")
    page.get_by_role("button", name="Bring back").wait_for()
    assert stored(server, memory)["status"] == "archived"
    page.locator(".toast", has_text="Archived.").get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Archive", exact=True).wait_for()
    assert stored(server, memory)["status"] == "active"
    press("It helped")
    page.get_by_text("Feedback noted.").wait_for()
    assert stored(server, memory)["helpful_count"] == 1
    press("It helped")
    page.get_by_text("Nothing changed: already_today.").wait_for()
    press("Delete")
    dialog = page.get_by_role("dialog", name="Delete this memory?")
    visit.check()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    press("Delete")
    dialog.get_by_role("button", name="Delete").press("Enter")
    page.get_by_text("Deleted.").wait_for()
    assert server.client.get(f"/v1/memories/{memory['memory_id']}").status_code == 404
    expect(page.get_by_role("region", name="Memory", exact=True)).to_have_count(0)


def test_a_dispute_is_settled(visit: Visit, server: Server) -> None:
    true = remember(server, "Tess lives in Kiel", key="home", trust=1.0)
    claimed = remember(server, "Tess lives in Rome", key="home", trust=0.2)
    assert claimed["status"] == "disputed"
    page = visit.open(f"memories/{claimed['memory_id']}", "Which holds?")
    visit.check()
    page.get_by_role("button", name="This one").click()
    expect(page.get_by_text("Which holds?")).to_have_count(0)
    assert (stored(server, claimed)["status"], stored(server, true)["status"]) == ("active", "superseded")


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_content_that_attacks_is_text(visit: Visit, server: Server, content: str) -> None:
    memory = remember(server, content, tags=[content[:100]], context=content[:300], source={"note": content[:300]})
    page = visit.open("memories?user_id=tess", "importance")
    expect(page.locator("main .list > li").first).to_contain_text(content[:5].replace("\u202e", "␛202e"))
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
    if len(content) > 600:
        page.get_by_role("button", name=re.compile("Show all 31,999")).last.click()
        expect(page.get_by_role("region", name="Memory", exact=True)).to_contain_text("ends")
    assert page.evaluate("window.attacked") is None
    assert page.locator("main script, main img, main a[href^='javascript' i]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visit.check()
    assert stored(server, memory)["content"] == content


def test_a_memory_that_is_not_there_says_so(visit: Visit) -> None:
    visit.open("memories/mem_nothere", "There is no such memory")
