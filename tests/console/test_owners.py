"""The page of users and agents: profile, facts in two times, graph, procedures, actions, export and erasure."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit
from tests.support.server import Server

pytestmark = pytest.mark.before_store


def _date(days_ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days_ago)).date().isoformat()


def test_people_and_agents_are_listed(visit: Visit) -> None:
    page = visit.open("owners", "Front desk")
    for name in ("mira", "jonas", "priya", "Workshop"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    visit.check()
    page.get_by_role("link", name="mira", exact=True).click()
    expect(page.get_by_text("write to me")).to_be_visible()
    expect(page.get_by_text("Error 26 on a cold start")).to_be_visible()
    visit.check()


def test_facts_as_of_a_time(visit: Visit) -> None:
    page = visit.open(f"owners/users/mira/facts?as_of={_date(40)}", "@user lives_in")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("link", name="Altona")).to_be_visible()
    expect(timeline.get_by_role("link", name="Bergedorf")).to_have_count(0)
    page.get_by_label("As of (true then)").focus()
    page.keyboard.press("End")
    expect(timeline.get_by_role("link", name="Bergedorf").first).to_be_visible()
    visit.check()


def test_facts_as_they_were_known(visit: Visit) -> None:
    page = visit.open(f"owners/agents/workshop/facts?known_at={_date(20)}", "Aero hub costs")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("link", name="129 EUR")).to_be_visible()
    expect(timeline.get_by_role("link", name="141 EUR")).to_have_count(0)
    page.get_by_label("Show").select_option("disputed")
    expect(page.get_by_text("Nothing is known for these times.")).to_be_visible()
    page.get_by_label("Known at").focus()
    page.keyboard.press("End")
    expect(timeline.get_by_role("link", name="99 EUR")).to_be_visible()


def test_a_fact_is_looked_into_and_retracted(visit: Visit, server: Server) -> None:
    page = visit.open("owners/users/jonas/facts", "@user allergic to")
    page.get_by_role("link", name="latex").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("All that was stated of it")
    visit.check()
    dialog.get_by_role("button", name="Retract…").click()
    page.get_by_role("dialog").get_by_role("button", name="Retract", exact=True).click()
    page.get_by_text("Retracted. That it was known stays on record.").wait_for()
    answer = server.client.get("/v1/facts", params={"user_id": "jonas", "object": "latex", "status": "any"}).json()
    assert [fact["status"] for fact in answer["items"]] == ["retracted"]


def test_the_graph_is_walked_by_the_keyboard(visit: Visit) -> None:
    page = visit.open("owners/users/mira/graph", "4 of at most 80 entities drawn")
    links = page.get_by_role("region", name="Links", exact=True)
    step = links.get_by_role("button", name="Halcyon E3")
    step.focus()
    page.keyboard.press("Enter")
    page.get_by_text("5 of at most 80 entities drawn, 25 new ones a step.").wait_for()
    expect(links).to_contain_text("error 26")
    assert page.locator(".graph canvas").count() > 0
    page.get_by_label("Begins with").fill("el")
    page.get_by_label("Begins with").press("Enter")
    page.get_by_text("1 of 1").wait_for()
    page.get_by_role("button", name="Clear the picture").click()
    page.get_by_text("0 of at most 80 entities drawn").wait_for()
    visit.check()


def test_an_entity_has_a_page_and_names_that_are_declared_and_undone(visit: Visit, server: Server) -> None:
    owner = {"user_id": "lina"}
    facts = [
        {**owner, "subject": name, "predicate": "knows", "object": other, "cardinality": "many"}
        for name, other in (("Ida", "Bo"), ("Ida Berg", "Kim"))
    ]
    assert server.client.post("/v1/facts/batch", json={"items": facts}).status_code == 201
    assert server.client.post("/v1/memories", json={**owner, "content": "Ida Berg swims"}).status_code == 201
    page = visit.open("owners/users/lina/graph?prefix=ida", "Ida (1)")
    page.get_by_role("button", name="Ida (1)").click()
    page.get_by_role("link", name="All that is known of Ida", exact=True).click()
    page.get_by_role("button", name="The same", exact=True).click()
    page.get_by_text("Both names are one entity.").wait_for()
    main = page.get_by_role("main")
    for text in ("Ida Berg knows Kim", "Ida knows Bo", "Ida Berg swims", "2 neighbours"):
        expect(main).to_contain_text(text)
    visit.check()
    page.get_by_role("button", name="Undo").click()
    expect(main.get_by_role("button", name="The same", exact=True)).to_be_visible()
    page = visit.open("owners/users/lina/graph?entity=Nobody", "Nothing is known under this name.")
    visit.check()


def test_a_large_graph_is_bounded_and_says_so(visit: Visit, server: Server) -> None:
    stars = [
        {
            "user_id": "stars",
            "subject": "Sun",
            "predicate": "shines on",
            "object": f"planet {at}",
            "cardinality": "many",
        }
        for at in range(60)
    ]
    assert server.client.post("/v1/facts/batch", json={"items": stars}).status_code == 201
    page = visit.open("owners/users/stars/graph", "some neighbours were left out at this bound")
    expect(page.get_by_text("26 of at most 80 entities drawn")).to_be_visible()


def test_procedures_show_success_with_its_interval(visit: Visit) -> None:
    page = visit.open("owners/agents/workshop/procedures", "True a wheel")
    box = page.locator("section.box", has_text="True a wheel")
    expect(box).to_contain_text("10 worked, 2 failed")
    interval = box.get_by_role("img").get_attribute("aria-label")
    assert interval == "83 %, between 55 % and 95 %"  # the Wilson interval of 10 of 12
    visit.check()


def test_actions_are_counted_and_drawn(visit: Visit, server: Server) -> None:
    params = {"agent_id": "workshop", "window_days": "60", "group_by": "action_type"}
    stats = server.client.get("/v1/actions/stats", params=params).json()
    page = visit.open("owners/agents/workshop/actions", "Actions a day")
    expect(page.locator(".tiles li").first).to_contain_text(str(stats["total_actions"]))
    rows = page.get_by_role("region", name="Actions by type").locator("tbody tr")
    expect(rows).to_have_count(len(stats["groups"]))
    expect(rows.first).to_contain_text(stats["groups"][0]["key"])
    assert page.locator("figure.chart canvas").count() == 2
    visit.check()
    visit.open("owners/agents/front-desk/experience", "Ask for the luggage before proposing a wheel.")
    visit.check()
    visit.open("owners/agents/front-desk", "You are the front desk of Fernhill Cycles.")


def test_a_user_is_exported_and_erased(visit: Visit, server: Server, tmp_path: Path) -> None:
    told = {"user_id": "tomas", "content": "Tomas sold his bicycle", "agent_id": "front-desk"}
    assert server.client.post("/v1/memories", json=told).status_code == 201
    page = visit.open("owners/users/tomas/data", "Download the export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the export").click()
    assert download.value.suggested_filename == "tomas.ndjson"
    download.value.save_as(tmp_path / "export")
    lines = [json.loads(line) for line in (tmp_path / "export").read_text().splitlines()]
    assert lines[0]["user_id"] == "tomas"
    assert lines[-1]["type"] == "end"
    page.get_by_role("button", name="Erase this user…").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert server.client.get("/v1/memories", params={"user_id": "tomas"}).json()["items"]
    page.get_by_role("button", name="Erase this user…").click()
    page.get_by_role("button", name="Erase for good").click()
    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text(re.compile("agent_memories|memories"))
    assert server.client.get("/v1/memories", params={"user_id": "tomas"}).json()["items"] == []
    visit.check()


def test_what_is_unknown_says_how_to_begin(visit: Visit) -> None:
    for address, ready in (
        ("owners/users/nobody", "No profile yet. Write one:"),
        ("owners/users/nobody/facts", "No facts. Assert one:"),
        ("owners/users/nobody/graph", "No fact has an entity as its object here."),
        ("owners/users/nobody/procedures", "No procedures. Write one:"),
        ("owners/agents/nobody/actions", "No actions in 60 days. Log one:"),
        ("owners/agents/nobody", "This agent is not registered."),
    ):
        visit.open(address, ready)
    assert [fault for fault in visit.faults if "404" not in fault] == []
