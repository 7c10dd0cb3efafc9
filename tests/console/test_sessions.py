"""The page of sessions: the chat, what came of each turn, ending a session and undoing what was learned."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server

pytestmark = pytest.mark.before_store


def test_a_session_shows_what_came_of_each_turn(visit: Visit) -> None:
    page = visit.open("sessions", "mira-has-moved")
    page.get_by_label("Person").select_option("mira")
    expect(page.locator("main .list > li")).to_have_count(3)
    visit.check()
    page.get_by_role("link", name="mira-has-moved").click()
    turn = page.locator("#turn-1")
    expect(turn).to_contain_text("I moved to Bergedorf, so")
    expect(turn).to_contain_text("Mira commutes 23 km a day since she moved.")
    expect(turn).to_contain_text("Mira lives in Bergedorf")
    expect(page.locator("#turn-3")).to_contain_text("Mira rides Halcyon E3")
    whole = page.get_by_role("region", name="Of the whole session")
    expect(whole.locator("li")).to_have_count(2)  # the summary and the lesson
    visit.check()


def test_what_came_of_a_session_stands_once_and_is_counted(visit: Visit) -> None:
    page = visit.open("sessions/mira-has-moved", "in place of what was known before")
    came = page.locator(".came > li")
    summary = page.get_by_role("region", name="Summary")
    expect(summary).to_contain_text(
        "1 summary, 3 memories, 3 facts, 1 lesson; 4 of them in place of what was known before."
    )
    expect(came).to_have_count(8)
    for kind, count in (("summary", 1), ("memory", 3), ("fact", 3), ("lesson", 1)):
        expect(came.filter(has=page.locator(".tag").get_by_text(kind, exact=True))).to_have_count(count)
    expect(came.filter(has_text="in place of")).to_have_count(4)
    facts = came.filter(has=page.locator(".tag").get_by_text("fact", exact=True))
    home = facts.filter(has_text="Mira lives in Bergedorf")
    expect(home).to_contain_text("home of the profile · in place of Mira lives in Altona")
    expect(home.get_by_role("link").first).to_have_attribute("href", re.compile("/owners/users/mira/facts"))
    expect(page.locator("#turn-3").get_by_text("Mira rides Halcyon E3")).to_be_visible()
    expect(facts.filter(has_text="Mira rides Halcyon E3")).to_contain_text("in place of Mira rides Kestrel 28")
    lesson = page.get_by_role("region", name="Of the whole session").get_by_role("link").last
    expect(lesson).to_have_text("An error code in the cold is often the battery's temperature.")
    expect(lesson).to_have_attribute("href", "#/owners/agents/front-desk/experience")
    expect(summary).to_contain_text("by a script, no model ·")
    memories = came.filter(has=page.locator(".tag").get_by_text("memory", exact=True))
    commute = memories.filter(has_text="Mira commutes 23 km a day since she moved.")
    visit.check()
    commute.get_by_role("link", name="Mira commutes 14 km a day.").click()
    expect(page.get_by_role("heading", name="Mira commutes 14 km a day.")).to_be_visible()


def test_a_session_stands_beside_the_list_and_on_a_phone_alone(visitor: Visitor, server: Server) -> None:
    for number in range(31):
        session = {"session_id": f"short-{number}", "agent_id": "front-desk", "user_id": "sam"}
        server.client.post("/v1/sessions", json=session).raise_for_status()
    visit = visitor()
    page = visit.open("sessions?user_id=sam", "short-30")
    rows = page.get_by_role("region", name="List of sessions").locator(".list > li")
    expect(rows).to_have_count(30)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(31)
    page.get_by_role("combobox", name="Sort").select_option("asc")
    expect(rows.first).to_contain_text("short-0")
    page.get_by_role("link", name="short-0", exact=True).click()
    detail = page.get_by_role("region", name="Session", exact=True)
    expect(detail.get_by_role("heading", name="short-0")).to_be_in_viewport()
    expect(rows.first).to_be_visible()
    page.get_by_role("combobox", name="Status").select_option("ended")
    page.get_by_text("No session is like this.").wait_for()
    page.get_by_role("button", name="Remove the filter Status").click()
    expect(rows.first).to_be_visible()
    visit.check()
    phone = visitor(viewport={"width": 375, "height": 800})
    page = phone.open("sessions/short-0?user_id=sam", "No messages here.")
    expect(page.get_by_role("region", name="List of sessions")).to_be_hidden()
    phone.check()
    page.get_by_role("region", name="Session", exact=True).get_by_role("link", name="All sessions").click()
    expect(page.get_by_role("link", name="short-30")).to_be_visible()


def test_what_was_learned_is_undone(visit: Visit, server: Server) -> None:
    page = visit.open("sessions/priya-on-spokes", "What came of it")
    page.get_by_role("button", name="Undo what was learned").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo it").click()
    page.get_by_text(re.compile(r"Undone: \d+ records? (is|are) as before")).wait_for()
    expect(page.get_by_text("undone", exact=True)).to_be_visible()
    left = server.client.get("/v1/memories", params={"session_id": "priya-on-spokes", "origin": "extraction"}).json()
    assert left["items"] == []
    visit.check()


def test_a_session_is_ended_and_reopened(visit: Visit, server: Server) -> None:
    path = "/v1/sessions/jonas-before-the-tour"
    page = visit.open("sessions/jonas-before-the-tour", "What came of it")
    page.get_by_role("button", name="End", exact=True).click()
    page.get_by_text("Ended.", exact=True).wait_for()
    page.get_by_role("button", name="Reopen").wait_for()
    assert server.client.get(path).json()["status"] == "ended"
    page.get_by_role("button", name="Reopen").click()
    page.get_by_role("button", name="End", exact=True).wait_for()
    assert server.client.get(path).json()["status"] == "active"


def test_without_a_language_model_a_session_promises_nothing_and_says_once_what_it_needs(
    visit: Visit, server: Server
) -> None:
    body = {"agent_id": "front-desk", "user_id": "new", "messages": [{"role": "user", "content": "I ride a tandem."}]}
    server.client.post("/v1/sessions/untold/messages", json=body).raise_for_status()
    page = visit.open("sessions/untold", "I ride a tandem.")
    main = page.get_by_role("main")
    expect(main.get_by_text("needs a language model")).to_have_count(1)
    for promise in ("It is written when", "learns when", "End and learn"):
        expect(main.get_by_text(promise)).to_have_count(0)
    visit.check()


def test_a_long_session_comes_in_pieces(visit: Visit, server: Server) -> None:
    said = [{"role": ("user", "assistant")[at % 2], "content": f"line {at + 1}"} for at in range(120)]
    body = {"agent_id": "front-desk", "user_id": "long", "memorize": "none", "messages": said}
    assert server.client.post("/v1/sessions/long/messages", json=body).status_code == 201
    page = visit.open("sessions/long", "line 50")
    expect(page.locator(".turn")).to_have_count(50)
    page.get_by_role("link", name="Later turns").click()
    page.get_by_text("line 51", exact=True).wait_for()
    page.get_by_role("link", name="Later turns").click()
    expect(page.locator(".turn")).to_have_count(20)
    page.get_by_role("link", name="Earlier turns").click()
    page.get_by_text("line 51", exact=True).wait_for()


ATTACKS = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">",
    "javascript:document.title='owned'",
    "\u202egnol dna sdrawkcab\u202c \u0001 control",
    "مرحبا بالعالم",
    "y" * 32_000,
)


def test_content_that_attacks_is_text(visit: Visit, server: Server) -> None:
    said = [{"role": "user", "content": text, "name": "<b>Eve</b>"} for text in ATTACKS]
    body = {"agent_id": "<i>a</i>", "user_id": "<u>eve<", "messages": said, "memorize": "messages"}
    refused = server.client.post("/v1/sessions/attacks/messages", json=body)
    assert refused.status_code == 422, "an id has no slash"
    body |= {"agent_id": "<i>a", "user_id": "<u>eve"}
    assert server.client.post("/v1/sessions/attacks/messages", json=body).status_code == 201
    fact = {"agent_id": "<i>a", "user_id": "<u>eve", "subject": "<script>", "predicate": "is", "object": ATTACKS[0]}
    asserted = server.client.post("/v1/facts", json={**fact, "source": {"session_id": "attacks", "message_seq": 1}})
    assert asserted.status_code == 201
    task = {"agent_id": "<i>a", "user_id": "<u>eve", "task_id": "attack", "goal": ATTACKS[0]}
    assert server.client.post("/v1/tasks", json={**task, "plan": [{"action": ATTACKS[1]}]}).status_code == 201
    page = visit.open("sessions/attacks", "Show all 32,000 characters")
    assert ATTACKS[0] in page.locator("#turn-1").inner_text()
    assert "[U+202E]" in page.locator("#turn-3").inner_text()
    assert page.locator("main script, main img, main b").count() == 0
    for address, ready in (
        ("tasks/attack", "javascript:"),
        ("owners/users/%3Cu%3Eeve/facts", "<script> is"),
        ("owners/users/%3Cu%3Eeve/graph", "Begins with"),
        ("prompt?query=x&agent_id=%3Ci%3Ea&user_id=%3Cu%3Eeve", "The request"),
    ):
        visit.open(address, ready)
        assert page.locator("main script, main img, main u, main i:not([class])").count() == 0
        assert page.title() != "owned"
    visit.check()


def test_a_read_key_sees_no_button_that_writes(story_with_key: tuple[Server, str], visitor: Visitor) -> None:
    server, key = story_with_key
    visit = visitor(str(server.client.base_url).rstrip("/"))
    page = visit.page
    page.goto(f"{visit.base}/console/#/sessions/mira-has-moved")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Open").click()
    page.get_by_text("Moved to Bergedorf").first.wait_for()
    for address, ready, writing in (
        ("sessions/mira-has-moved", "What came of it", ("Undo what was learned", "Reopen")),
        ("tasks/lisbon-wheels", "Checkpoints", ("Keep a checkpoint", "Restore checkpoint 1")),
        ("owners/users/mira/data", "Download the export", ("Erase this person…",)),
    ):
        page.evaluate("address => { location.hash = '/' + address }", address)
        page.get_by_text(ready).first.wait_for()
        for name in writing:
            expect(page.get_by_role("button", name=name)).to_have_count(0)
