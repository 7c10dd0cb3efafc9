"""The page of memories: search as one types, one memory with all that is known of it, and what can be done with it."""

import re
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Request, Route, expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server, recalld, serving

pytestmark = pytest.mark.before_store
Json = dict[str, Any]
LEAST_SHOWN = 0.01
"""Hits of a lower probability are listed when they are asked for."""
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
    # a connection of its own: that of the client may be closed while the page is worked with
    found: Json = httpx.get(server.client.base_url.join(f"/v1/memories/{memory['memory_id']}")).json()
    return found


def test_a_memory_that_was_opened_while_one_types_stays_open(visit: Visit, server: Server) -> None:
    memory = remember(server, "Tess keeps the kettle in the shed", user_id="tess-types")
    page = visit.open("memories?user_id=tess-types", memory["content"])
    page.get_by_role("searchbox").evaluate(
        """async (search, link) => {
            search.value = "kettle";
            search.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise(requestAnimationFrame);
            document.querySelector(link).click();
        }""",
        "main .list a.title",
    )
    page.wait_for_url("**query=kettle**")
    page.get_by_role("heading", name="Importance").wait_for()
    assert memory["memory_id"] in page.url


def test_a_search_finds_as_one_types_and_says_in_a_word_how_well_each_hit_fits(visit: Visit, server: Server) -> None:
    page = visit.open("memories", "Front desk")
    page.get_by_label("Person").select_option("priya")
    page.wait_for_url("**user_id=priya")
    page.get_by_role("searchbox").press_sequentially("what tension for spokes", delay=5)
    page.locator(".strength").first.wait_for()
    body = {
        "user_id": "priya",
        "query": "what tension for spokes",
        "explain": True,
        "record_access": False,
        "include_shared": False,
        "top_k": 20,
    }
    hits = server.client.post("/v1/memories/search", json=body).json()["items"]
    rows = page.locator("main .list > li")
    expect(rows).to_have_count(sum(hit["score"] >= LEAST_SHOWN for hit in hits))
    expect(rows.first).to_contain_text(hits[0]["memory"]["content"])
    score = hits[0]["score"]
    word = "strong" if score >= 0.5 else "likely" if score >= 0.2 else "weak"
    expect(rows.first.locator(".strength")).to_have_text(re.compile(f"^{word} [0-9.]+ %"))
    expect(rows.first).not_to_contain_text(f"{score:.3f}")
    rows.first.get_by_text("Why").click()
    expect(rows.first).to_contain_text(f"a probability of {score:.3f}")
    meaning = rows.first.locator("tr[title=vector_scaled]")  # beside "nearest in meaning", which is of the rank
    expect(meaning).to_contain_text("meaning")
    expect(meaning).to_contain_text(f"+{hits[0]['contributions']['vector_scaled']:.2f}")
    assert "query=what+tension+for+spokes" in page.url
    visit.check()
    page.get_by_text("More filters").click()
    page.get_by_role("combobox", name="Mode").select_option("text")
    page.get_by_text("BM25").first.wait_for()
    page.get_by_role("combobox", name="Type").select_option("preference")
    page.get_by_text("No memory is like this").wait_for()


def test_a_letter_typed_while_the_address_changes_is_kept(visit: Visit) -> None:
    page = visit.open("memories?user_id=priya", "Priya is on leave")
    box = page.get_by_role("searchbox")
    box.evaluate(
        """box => addEventListener("hashchange", () => {
            box.value += "n";
            box.dispatchEvent(new InputEvent("input", { bubbles: true }));
        }, { once: true, capture: true })"""
    )
    box.press_sequentially("tensio")
    page.wait_for_url("**query=tension")
    expect(box).to_have_value("tension")


def test_looking_at_memories_does_not_count_as_recalling_them(visit: Visit, server: Server) -> None:
    before = [one["access_count"] for one in server.client.get("/v1/memories?user_id=priya").json()["items"]]
    visit.open("memories?user_id=priya&query=tension", "Why")
    after = [one["access_count"] for one in server.client.get("/v1/memories?user_id=priya").json()["items"]]
    assert after == before


def test_a_search_asks_whose_memories_are_meant(visit: Visit) -> None:
    page = visit.open("memories", "Front desk")
    page.get_by_role("searchbox").fill("Where does Mira live?")
    page.get_by_text("Whose memories?").wait_for()
    expect(page.locator("main .list > li")).to_have_count(0)
    assert not re.search(r"(agent|user)_id=\w", page.url)
    visit.check()
    page.get_by_role("main").get_by_role("button", name="Mira", exact=True).click()
    expect(page.locator("main .list")).to_contain_text("I moved to Bergedorf")
    assert "user_id=mira" in page.url


def test_a_key_that_administers_searches_everyones_memories(visit: Visit) -> None:
    page = visit.open("memories?query=Where does Mira live?", "Whose memories?")
    page.get_by_role("main").get_by_role("button", name="Everyone", exact=True).click()
    expect(page.locator("main .list")).to_contain_text("I moved to Bergedorf")
    assert "everyone=1" in page.url
    visit.check()


def test_roll_ups_are_behind_a_switch_and_more_is_loaded_when_asked_for(visit: Visit, server: Server) -> None:
    action = {"agent_id": "workshop", "action_type": "brake_service", "timestamp": "2026-01-05T10:00:00Z"}
    server.client.post("/v1/actions", json=action | {"outcome": "success"}).raise_for_status()
    path = "/v1/operations/" + server.client.post("/v1/jobs/retention/run", json={}).json()["operation_id"]
    while server.client.get(path).json()["status"] != "succeeded":
        time.sleep(0.1)
    page = visit.open("memories", "Front desk")
    rows = page.locator("main .list > li")
    expect(rows.first).to_be_visible()
    expect(page.get_by_text("actions (")).to_have_count(0)
    before = rows.count()
    page.get_by_role("button", name="Show more").click()
    expect(rows).not_to_have_count(before)
    expect(page.get_by_text("actions (")).to_have_count(0)
    page.get_by_text("More filters").click()
    page.get_by_label("roll-ups of actions").check()
    expect(page.get_by_text("actions (").first).to_be_visible()
    assert "rollups=1" in page.url


def test_details_stand_beside_the_row_that_was_chosen(visit: Visit, server: Server) -> None:
    page = visit.open("memories", "Front desk")
    row = page.locator("main .list > li").nth(18).get_by_role("link")
    row.scroll_into_view_if_needed()
    row.click()
    view = page.get_by_role("region", name="Memory", exact=True)
    view.get_by_text("What it replaced").wait_for()
    expect(page.locator("main .list > li").nth(18)).to_be_in_viewport()
    top = view.bounding_box()
    assert top is not None
    assert 0 <= top["y"] < 200


def test_a_memory_shows_its_source_chain_and_curve(visit: Visit, server: Server) -> None:
    items = server.client.get("/v1/memories?status=active&limit=100").json()["items"]
    memory = next(one for one in items if one["supersedes"] and one["source"]["session_id"])
    old = server.client.get(f"/v1/memories/{memory['supersedes'][0]}").json()
    page = visit.open(f"memories/{memory['memory_id']}", "What it replaced")
    view = page.get_by_role("region", name="Memory", exact=True)
    expect(view).to_contain_text(f"Importance {memory['importance']:.2f} now; recalled {memory['access_count']} time")
    link = view.get_by_role("link", name=memory["source"]["session_id"])
    assert (link.get_attribute("href") or "").startswith(f"#/sessions/{memory['source']['session_id']}")
    view.get_by_role("button", name="Find near-duplicates").click()
    view.get_by_text("cosine").first.wait_for()
    visit.check()
    view.get_by_role("link", name=old["content"], exact=True).click()
    expect(view).to_contain_text("replaced")
    expect(view.get_by_role("link", name=memory["content"], exact=True)).to_be_visible()


def test_a_memory_shows_related_ones_and_why(visit: Visit, server: Server) -> None:
    fact = {"user_id": "tess", "subject": "Nora Quist", "predicate": "plays", "object": "harp"}
    assert server.client.post("/v1/facts", json=fact).status_code == 201
    other = remember(server, "Nora Quist tunes her harp on Mondays")
    memory = remember(server, "Tess drove Nora Quist to the airport")
    page = visit.open(f"memories/{memory['memory_id']}", "Related")
    related = page.get_by_role("region", name="Related memories")
    expect(related).to_contain_text("both mention Nora Quist")
    visit.check()
    related.get_by_role("link", name=other["content"]).click()
    expect(page.get_by_role("region", name="Memory", exact=True)).to_contain_text(other["content"])


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
        button = page.get_by_role("button", name=name, exact=True)
        expect(button).to_be_enabled()
        button.focus()
        expect(button).to_be_focused()
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
    page.get_by_text("Nothing changed: already today.").wait_for()
    press("Delete")
    dialog = page.get_by_role("dialog", name="Delete this memory?")
    dialog.wait_for()
    visit.check()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    press("Delete")
    dialog.get_by_role("button", name="Delete").press("Enter")
    page.get_by_text("Deleted.").wait_for()
    assert server.client.get(f"/v1/memories/{memory['memory_id']}").status_code == 404
    expect(page.get_by_role("region", name="Memory", exact=True)).to_have_count(0)


def test_what_a_person_said_is_corrected_and_stays_as_it_was_said(visit: Visit, server: Server) -> None:
    said = {"agent_id": "tester", "user_id": "theo", "messages": [{"role": "user", "content": "I live in Kehl."}]}
    assert server.client.post("/v1/sessions/theo-1/messages", json=said).status_code == 201
    (memory,) = server.client.get("/v1/memories", params={"user_id": "theo"}).json()["items"]
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    page.get_by_role("button", name="Correct").click()
    dialog = page.get_by_role("dialog", name="Correct what was said")
    dialog.get_by_label("What is right").fill("Theo lives in Kiel.")
    visit.check()
    dialog.get_by_role("button", name="Correct").click()
    page.get_by_text("Corrected.").wait_for()
    now = stored(server, memory)
    assert (now["content"], now["status"]) == ("I live in Kehl.", "superseded")
    correction = stored(server, {"memory_id": now["superseded_by"]})
    assert (correction["content"], correction["supersedes"]) == ("Theo lives in Kiel.", [memory["memory_id"]])
    assert correction["source"]["session_id"] == "theo-1"
    page.locator(".toast", has_text="Corrected.").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    assert stored(server, memory)["status"] == "active"


def test_an_undo_goes_with_the_record_that_it_would_change(visit: Visit, server: Server) -> None:
    memory = remember(server, "Tess has a bell")
    page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator(".toast", has_text="Pinned.").get_by_role("button", name="Undo")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.locator(".toast", has_text="Deleted.").wait_for()
    expect(page.locator(".toast", has_text="Pinned.")).to_have_count(0)
    visit.check()


def test_a_dispute_is_settled(visit: Visit, server: Server) -> None:
    true = remember(server, "Tess lives in Kiel", key="home", trust=1.0)
    claimed = remember(server, "Tess lives in Rome", key="home", trust=0.2)
    assert claimed["status"] == "disputed"
    page = visit.open(f"memories/{claimed['memory_id']}", "Which holds: “Tess lives in Rome” or “Tess lives in Kiel”?")
    visit.check()
    page.get_by_role("button", name="This one holds: Tess lives in Rome").click()
    expect(page.get_by_text("Which holds")).to_have_count(0)
    assert (stored(server, claimed)["status"], stored(server, true)["status"]) == ("active", "superseded")
    page.locator(".toast", has_text="Decided.").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    expect(page.get_by_role("button", name="This one holds: Tess lives in Rome")).to_be_visible()
    assert (stored(server, claimed)["status"], stored(server, true)["status"]) == ("disputed", "active")


def test_content_that_attacks_is_text(visit: Visit, server: Server) -> None:
    for content in HOSTILE:
        memory = remember(server, content, tags=[content[:100]], context=content[:300], source={"note": content[:300]})
        page = visit.open("memories?user_id=tess", "Tess")
        expect(page.locator("main .list > li").first).to_contain_text(content[:5].replace("\u202e", "[U+202E]"))
        page = visit.open(f"memories/{memory['memory_id']}", "It has not changed")
        if len(content) > 600:
            page.get_by_role("button", name=re.compile("Show all 31,999")).last.click()
            expect(page.get_by_role("region", name="Memory", exact=True)).to_contain_text("ends")
        assert page.evaluate("window.attacked") is None, content
        assert page.locator("main script, main img, main a[href^='javascript' i]").count() == 0, content
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), content
        visit.check()
        assert stored(server, memory)["content"] == content


def test_a_memory_that_is_not_there_says_so(visit: Visit) -> None:
    visit.open("memories/mem_nothere", "No such memory")


def is_stream(request: Request) -> bool:
    return "/v1/changes" in request.url and request.headers["accept"] == "text/event-stream"


def test_what_changes_is_seen_in_a_list_and_one_stream_carries_it(visit: Visit, server: Server) -> None:
    streams: list[str] = []
    page = visit.page
    page.on("request", lambda request: streams.append(request.url) if is_stream(request) else None)
    with page.expect_response(lambda response: is_stream(response.request)):
        visit.open("memories?user_id=live", "No memory is like this")
    remember(server, "A kingfisher sits at the window", user_id="live")
    page.get_by_role("link", name="A kingfisher").wait_for()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tasks").click()
    page.get_by_text("No task.").wait_for()
    task = {"agent_id": "tester", "user_id": "live", "goal": "Feed the kingfisher"}
    server.client.post("/v1/tasks", json=task).raise_for_status()
    page.get_by_role("link", name="Feed the kingfisher").wait_for()
    assert len(streams) == 1
    visit.check()


def test_what_changes_between_the_list_and_the_stream_is_seen(visit: Visit, server: Server) -> None:
    def late(route: Route) -> None:
        if is_stream(route.request):
            remember(server, "A heron stands in the pond", user_id="pond")
        route.continue_()

    page = visit.page
    page.route("**/v1/changes*", late)
    visit.open("memories?user_id=pond", "No memory is like this")
    page.get_by_role("link", name="A heron").wait_for()
    visit.check()


def test_a_refused_stream_leaves_the_page_as_it_is(visit: Visit) -> None:
    page = visit.page
    page.route("**/v1/changes*", lambda route: route.fulfill(status=503, body="{}"))
    with page.expect_response(lambda response: "/v1/changes" in response.url):
        visit.open("memories", "Front desk")
    expect(page.locator("main .list > li").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_several_memories_are_pinned_and_archived_and_it_is_undone(visit: Visit, server: Server) -> None:
    ids = [remember(server, f"Spare bell {number}", user_id="bulk")["memory_id"] for number in range(3)]
    page = visit.open("memories?user_id=bulk", "Spare bell 2")

    def held(field: str) -> list[Any]:
        return [server.client.get(f"/v1/memories/{one}").json()[field] for one in ids]

    for number in (0, 2):
        page.get_by_label(f"Choose: Spare bell {number}").check()
    bulk = page.get_by_role("group", name="Chosen memories")
    visit.check()
    bulk.get_by_role("button", name="Archive").click()
    page.get_by_text("2 memories archived.").wait_for()
    assert held("status") == ["archived", "active", "archived"]
    expect(bulk).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    assert held("status") == ["active"] * 3
    page.get_by_label("Choose: Spare bell 1").check()
    bulk.get_by_role("button", name="Pin").click()
    page.get_by_text("1 memory pinned.").wait_for()
    assert held("pinned") == [False, True, False]


def test_a_list_is_sorted_and_its_filters_are_chips(visit: Visit, server: Server) -> None:
    for number in range(2):
        remember(server, f"Lamp {number}", user_id="sorted", tags=["lamps"])
    page = visit.open("memories?user_id=sorted&tag=lamps&memory_type=fact", "Lamp 1")
    rows = page.locator("main .list > li")
    expect(rows.first).to_contain_text("Lamp 1")
    page.get_by_role("combobox", name="Sort", exact=True).select_option("asc")
    expect(rows.first).to_contain_text("Lamp 0")
    chips = page.get_by_role("list", name="Filters").get_by_role("listitem")
    expect(chips.first).to_contain_text("Type: note")
    page.get_by_role("button", name="Remove the filter Tag").click()
    page.wait_for_url(lambda url: "tag=" not in url)
    expect(page.get_by_role("list", name="Filters")).not_to_contain_text("lamps")
    visit.check()


def test_a_memory_is_added_in_place_and_taken_back(visit: Visit, server: Server) -> None:
    page = visit.open("memories?user_id=adding", "No memory is like this")
    page.get_by_role("button", name="Add a memory").click()
    page.get_by_label("What to remember").fill("Ada keeps bees")
    expect(page.get_by_role("dialog").get_by_label("Person")).to_have_value("adding")
    visit.check()
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("link", name="Ada keeps bees").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    assert server.client.get("/v1/memories", params={"user_id": "adding"}).json()["items"] == []


def test_times_of_a_list_that_would_read_the_same_are_days(visit: Visit) -> None:
    page = visit.open("memories?user_id=mira", "Mira may be called in the afternoon.")
    shown = page.locator("main .list time").all_inner_texts()
    exact = page.locator("main .list time").evaluate_all("times => times.map(time => time.dateTime.slice(0, 10))")
    days: dict[str, set[str]] = {}
    for words, day in zip(shown, exact, strict=True):
        days.setdefault(words, set()).add(day)
    assert all(len(same) == 1 for same in days.values())  # no two days have the same words
    assert any(words in same for words, same in days.items())  # and those that would are told as days
    assert not any(" " in words for words in shown)  # between a number and its unit no line breaks
    row = page.get_by_role("link", name="Mira may be called in the afternoon.", exact=True)  # not the session's summary
    row.click()
    told = page.get_by_role("region", name="Memory", exact=True).locator("dt:text-is('told') + dd")
    expect(told).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\s3\sdays\sago"))
    visit.check()


def test_a_time_shows_exactly_with_the_focus_and_an_id_is_copied(visitor: Visitor, server: Server) -> None:
    visit = visitor(permissions=["clipboard-read", "clipboard-write"])
    memory = remember(server, "Bell", user_id="exact")
    page = visit.open("memories?user_id=exact", "Bell")
    time_shown = page.locator("main .list time")
    time_shown.focus()
    exact = page.evaluate("getComputedStyle(document.activeElement, '::after').content")
    assert memory["created_at"][:19].replace("T", " ") in exact
    page = visit.open("components", "Overlays")
    page.get_by_role("button", name="Copy mem_").first.click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("mem_01a2003d")


def test_a_list_that_failed_shows_the_problem_and_no_empty_box(visit: Visit) -> None:
    visit.page.route("**/v1/memories?*", lambda route: route.fulfill(status=503, json={"detail": "No answer."}))
    page = visit.open("memories", "No answer.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.get_by_role("region", name="List of memories")).to_have_count(0)


def test_a_key_bound_to_a_person_shows_her_locked_and_what_is_shared(
    visitor: Visitor, story: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(story, data)
    options = ("--no-admin", "--tenant", "default", "--name", "bound", "--verbs", "read,write", "--user", "mira")
    made = recalld(data, "keys", "create", *options)
    key = next(word for word in made.stdout.split() if word.startswith("rk_"))
    with serving(data) as server:
        visit = visitor(str(server.client.base_url).rstrip("/"))
        page = visit.open("memories", "This service has API keys")
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        page.get_by_text("Front desk").first.wait_for(state="attached")
        visit.faults.clear()  # the browser notes the 401 itself
        person = page.get_by_role("group", name="Whose memory").get_by_role("combobox").first
        expect(person).to_be_disabled()
        expect(person).to_have_text("Mira")
        rows = page.get_by_role("region", name="List of memories").get_by_role("listitem")
        expect(rows.filter(has_text="The workshop is closed on Saturdays")).to_contain_text("shared with everyone")
        hers = rows.filter(has=page.get_by_role("link", name="Mira may be called in the afternoon.", exact=True))
        expect(hers).not_to_contain_text("shared")
        visit.check()


def test_a_list_and_a_search_hold_what_is_shared_only_when_it_is_asked_for(visit: Visit, server: Server) -> None:
    counts = server.client.get("/v1/stats").json()["counts"]
    page = visit.open("memories", "Front desk")
    expect(page.get_by_text(f"of {counts['memories']} memories.")).to_be_visible()
    shared = page.get_by_role("region", name="List of memories").get_by_text("shared with everyone")
    whose = "user_id=mira&agent_id=front-desk"
    visit.open(f"memories?{whose}", "Without what is shared with everyone")
    expect(shared).to_have_count(1)  # the line that says so
    visit.open(f"memories?{whose}&query=When%20is%20the%20workshop%20open", "Without what is shared with everyone")
    expect(shared).to_have_count(1)
    page.get_by_label("With what is shared").check()
    page.get_by_text("With what the agent knows for everyone").wait_for()
    expect(page.get_by_role("listitem").filter(has_text="The workshop opens from Tuesday")).to_contain_text(
        "shared with everyone"
    )
    assert "shared=1" in page.url
    visit.check()
