"""The page of users and agents: profile, facts in two times, graph, procedures, actions, export and erasure."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server

pytestmark = pytest.mark.before_store


def _date(days_ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days_ago)).date().isoformat()


def test_people_and_agents_are_listed(visit: Visit) -> None:
    page = visit.open("owners", "Front desk")
    for name in ("Mira", "Jonas", "Priya", "Workshop"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    mira = page.locator("li", has=page.get_by_role("link", name="Mira", exact=True))
    expect(mira).to_contain_text(re.compile(r"\d+ memories, \d+ sessions, \d+ facts.*, last \d{4}-\d\d-\d\d"))
    visit.check()
    people = page.locator("section", has=page.get_by_role("heading", name="People", exact=True)).locator("li")
    days = [text[-10:] for text in people.all_inner_texts()]
    assert len(days) > 2
    assert days == sorted(days, reverse=True)
    page.get_by_role("searchbox", name="Search people").fill("mir")
    expect(page.get_by_role("link", name="Jonas", exact=True)).to_have_count(0)
    page.get_by_role("searchbox", name="Search people").fill("nobody")
    expect(page.get_by_text("Nobody has this name.")).to_be_visible()
    page.get_by_role("searchbox", name="Search people").fill("")
    page.get_by_role("link", name="Mira", exact=True).click()
    expect(page.get_by_role("main").get_by_text("teacher at the nursing school", exact=True)).to_be_visible()
    expect(page.get_by_text("The light of the Halcyon E3 flickers on cobbles")).to_be_visible()
    visit.check()


def test_a_person_shows_what_is_coming_and_a_reminder_can_be_done(visit: Visit, server: Server) -> None:
    assert server.client.put("/v1/users/ida/profile", json={"name": "Ida"}).is_success
    for text, fields in {
        "Visit the harbour": {"event_at": "9000-06-01T00:00:00Z", "event_at_precision": "day"},
        "Water the ferns": {"due_at": "9000-01-01T08:00:00Z"},
    }.items():
        answer = server.client.post("/v1/memories", json={"user_id": "ida", "content": text, **fields})
        assert answer.status_code == 201
    page = visit.open("owners/users/ida", "What is coming")
    coming = page.get_by_role("region", name="What is coming").locator("li")
    expect(coming).to_have_count(2)
    expect(coming.first).to_contain_text("Water the ferns")
    visit.check()
    coming.first.get_by_role("button", name="Done").click()
    expect(coming).to_have_count(1)
    expect(coming.first).to_contain_text("Visit the harbour")


def test_a_person_shows_what_holds_what_changed_and_what_is_uncertain_with_its_source(
    visit: Visit, server: Server
) -> None:
    fact = {"user_id": "jonas", "subject": "@user", "predicate": "works_as", "cardinality": "one"}
    for trust, value in ((1.0, "carpenter"), (0.2, "pilot")):
        answer = server.client.post("/v1/facts", json={**fact, "object": value, "trust": trust})
        assert answer.status_code == 201
    page = visit.open("owners/users/mira", "What holds now")
    holds, changed = (page.get_by_role("region", name=name) for name in ("What holds now", "What changed lately"))
    expect(page.get_by_role("region", name="Who")).to_contain_text("Bergedorf")
    expect(holds).to_contain_text("Mira lives in Bergedorf")
    expect(holds).not_to_contain_text("Altona")
    expect(holds).not_to_contain_text("I moved to Bergedorf, so")  # a turn, which is the source and no knowledge
    moved = changed.locator("li", has_text="Mira lives in Bergedorf")
    expect(moved).to_contain_text(re.compile(r"before: Mira lives in Altona \d{4}-\d\d-\d\d – \d{4}-\d\d-\d\d"))
    expect(changed).to_contain_text("before: Mira commutes 14 km a day.")
    expect(page.get_by_role("region", name="What is uncertain")).to_contain_text("Elbe Riders meets in Wandsbek")
    visit.check()
    moved.get_by_role("link", name="“I moved to Bergedorf”").click()
    page.get_by_role("heading", name="mira-has-moved").wait_for()
    page = visit.open("owners/users/jonas", "pilot or carpenter")
    claims = page.get_by_role("region", name="What is uncertain").locator(".claims > li")
    expect(claims.filter(has_text="Jonas works as")).to_contain_text(["pilot", "carpenter"])
    expect(claims.filter(has_text="pilot")).to_contain_text("trust 0.20")
    expect(page.get_by_text("Jonas works as: pilot or carpenter?")).to_be_visible()
    expect(page.get_by_text("Trust 0.20 against 1.00.")).to_be_visible()
    dispute = page.locator("li", has=page.locator(".claims"), has_text="pilot")
    expect(dispute).to_contain_text("contradicted")
    expect(dispute).to_contain_text("A profile has one value at a time")
    expect(dispute.get_by_role("button", name="Both hold")).to_have_count(0)
    finding = page.get_by_role("region", name="contradiction: Jonas lives in: Hamburg or Bremen?")
    finding.get_by_role("link", name=re.compile("^found ")).click()
    expect(page.get_by_role("heading", name="Finding", exact=True)).to_be_visible()
    page = visit.open("owners", "People")
    jonas = page.locator("li", has=page.get_by_role("link", name="Jonas"))
    expect(jonas.get_by_role("link", name="2 to decide")).to_have_attribute("href", "#/findings?user_id=jonas")
    mira = page.locator("li", has=page.get_by_role("link", name="Mira", exact=True))
    expect(mira).to_contain_text("Mira 1 to decide")
    marks = page.get_by_role("link", name=re.compile(r"^\d+ to decide$")).all_inner_texts()
    whole, *each = [int(mark.split()[0]) for mark in marks]
    assert whole == sum(each)  # the line above the lists, and a mark of each person and agent
    expect(mira).not_to_contain_text("uncertain")  # the dispute is not about her home
    page = visit.open("findings?user_id=jonas", "Contradicted when it was stored")
    disputes = page.get_by_role("region", name="Contradicted when it was stored")
    expect(disputes).to_contain_text("Jonas · Trust 0.20 against 1.00.")
    claims = disputes.locator(".claims > li")
    expect(claims).to_contain_text(["Jonas works as pilot", "Jonas works as carpenter"])
    visit.check()
    page = visit.open("owners/users/jonas", "pilot or carpenter")
    carpenter = (
        page.get_by_role("region", name="What holds now").get_by_role("listitem").filter(has_text="works as carpenter")
    )
    expect(carpenter.get_by_role("link", name="contradicted by Jonas works as pilot")).to_be_visible()
    visit.check()


def test_two_values_that_hold_beside_each_other_say_so(visit: Visit, server: Server) -> None:
    body = {"user_id": "omar", "predicate": "lives_in", "cardinality": "one"}
    for subject, value in (("@user", "Porto"), ("Omar", "Braga")):
        server.client.post("/v1/facts", json={**body, "subject": subject, "object": value}).raise_for_status()
    server.client.patch("/v1/users/omar/profile", json={"name": "Omar"}).raise_for_status()
    page = visit.open("owners/users/omar", "What holds now")
    rows = page.get_by_role("region", name="What holds now").get_by_role("listitem")
    expect(rows.filter(has_text="contradicted by Omar lives in Braga")).to_contain_text("Omar lives in Porto")
    expect(rows.filter(has_text="contradicted by Omar lives in Porto")).to_contain_text("Omar lives in Braga")
    visit.check()


def test_a_profile_is_edited_and_the_edit_taken_back(visit: Visit, server: Server) -> None:
    path = "/v1/users/zoe/profile"
    first = {"home": "Lyon", "age": 30, "interests": ["chess", "rowing"], "custom": {"seat": "aisle"}}
    server.client.put(path, json=first).raise_for_status()
    page = visit.open("owners/users/zoe/profile", "Lyon")
    page.get_by_role("button", name="Edit").click()
    visit.check()
    page.get_by_label("Home").fill("Nice")
    page.get_by_role("spinbutton", name="Age").fill("")
    page.get_by_label("Interests, one in a line").fill("rowing\nsailing")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The profile is changed.").wait_for()
    expect(page.get_by_role("main")).to_contain_text("sailing")
    saved = server.client.get(path).json()
    assert (saved["home"], saved["age"], saved["interests"]) == ("Nice", None, ["rowing", "sailing"])
    assert saved["custom"] == {"seat": "aisle"}
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("main")).to_contain_text("chess")
    back = server.client.get(path).json()
    assert {name: back[name] for name in first} == first
    page.get_by_role("button", name="Edit").click()
    server.client.patch(path, json={"home": "Dijon"}).raise_for_status()
    page.get_by_label("Home").fill("Metz")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("alert").wait_for()  # somebody else changed it meanwhile
    assert server.client.get(path).json()["home"] == "Dijon"


def test_what_ended_is_marked_and_below_what_took_its_place(visit: Visit, server: Server) -> None:
    told = {"user_id": "rosa", "subject": "@user", "predicate": "lives_in", "cardinality": "one"}
    for value, since in (("Turin", _date(20)), ("Genoa", _date(90))):  # the earlier home is told last
        answer = server.client.post("/v1/facts", json={**told, "object": value, "valid_from": f"{since}T00:00:00Z"})
        assert answer.status_code == 201
    page = visit.open("owners/users/rosa/facts", "rosa lives in")
    rows = page.get_by_role("region", name="List of facts").get_by_role("listitem")
    expect(rows).to_contain_text(["rosa lives in Turin", "rosa lives in Genoa"])
    expect(rows.nth(1)).to_contain_text("ended")
    expect(rows.nth(0)).not_to_contain_text("ended")
    visit.check()
    page.get_by_role("combobox", name="Sort").select_option("asc")
    expect(rows).to_contain_text(["rosa lives in Genoa", "rosa lives in Turin"])
    page = visit.open(f"owners/users/rosa/facts?as_of={_date(40)}", "rosa lives in")  # it was true then
    expect(rows).to_contain_text(["rosa lives in Genoa"])
    expect(rows).not_to_contain_text(["ended"])


def test_the_label_of_a_short_fact_stands_behind_its_bar(visit: Visit, server: Server) -> None:
    told = {"user_id": "gita", "subject": "@user", "predicate": "works_as", "cardinality": "one"}
    for value, days in (("nurse", 90), ("teacher at the nursing school", 2)):
        answer = server.client.post(
            "/v1/facts", json={**told, "object": value, "valid_from": f"{_date(days)}T00:00:00Z"}
        )
        assert answer.status_code == 201
    page = visit.open("owners/users/gita/facts", "gita works as")
    bar = page.get_by_role("region", name="Timeline").get_by_role("link", name="teacher")
    place, label = bar.bounding_box(), bar.locator("span").bounding_box()
    assert place
    assert label
    assert label["x"] >= place["x"] + place["width"] - 2
    assert place["width"] < label["width"]
    visit.check()


def test_the_axis_begins_at_the_bars_and_no_label_is_cut(visit: Visit) -> None:
    page = visit.open("owners/users/mira/facts", "Mira lives in")
    timeline = page.get_by_role("region", name="Timeline")
    axis = timeline.locator(".axis .first").bounding_box()
    bar = timeline.get_by_role("link", name="rim brakes").bounding_box()
    assert axis
    assert bar
    assert axis["x"] == pytest.approx(bar["x"], abs=1)
    expect(timeline.locator(".axis")).to_contain_text(re.compile("[A-Z][a-z]{2} 20"))  # "Nov 2026"
    cut = "links => links.filter(link => link.firstChild.scrollWidth > link.firstChild.clientWidth).length"
    assert timeline.locator(".spans a").evaluate_all(cut) == 0


def test_facts_as_of_a_time(visit: Visit) -> None:
    page = visit.open(f"owners/users/mira/facts?as_of={_date(40)}", "Mira lives in")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("link", name="Altona")).to_be_visible()
    expect(timeline.get_by_role("link", name="Bergedorf")).to_have_count(0)
    page.get_by_role("slider", name="As of").focus()
    page.keyboard.press("End")
    expect(timeline.get_by_role("link", name="Bergedorf").first).to_be_visible()
    visit.check()


def test_facts_as_they_were_known(visit: Visit) -> None:
    page = visit.open(f"owners/agents/workshop/facts?known_at={_date(20)}", "Aero hub costs")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("link", name="129 EUR")).to_be_visible()
    expect(timeline.get_by_role("link", name="141 EUR")).to_have_count(0)
    page.get_by_role("combobox", name="Status").select_option("disputed")
    expect(page.get_by_text("Nothing is known for these times and filters.")).to_be_visible()
    page.get_by_role("slider", name="Known at").focus()
    page.keyboard.press("End")
    expect(timeline.get_by_role("link", name="99 EUR")).to_be_visible()


def test_a_fact_is_looked_into_and_retracted(visit: Visit, server: Server) -> None:
    page = visit.open("owners/users/jonas/facts", "Jonas is allergic to")
    page.get_by_role("region", name="Timeline").get_by_role("link", name="latex").click()
    fact = page.get_by_role("region", name="Fact", exact=True)
    expect(fact).to_contain_text("All that was stated of it")
    visit.check()
    fact.get_by_role("button", name="Retract…").click()
    page.get_by_role("dialog").get_by_role("button", name="Retract", exact=True).click()
    page.get_by_text("Retracted. That it was known stays on record.").wait_for()
    answer = server.client.get("/v1/facts", params={"user_id": "jonas", "object": "latex", "status": "any"}).json()
    assert [fact["status"] for fact in answer["items"]] == ["retracted"]


def facts_of(server: Server, user: str, **query: str) -> list[tuple[str, str | None]]:
    """The values that are believed of a user, each with the day that ended it."""
    params = {"user_id": user, "timeline": "true", "order": "asc", **query}
    items = server.client.get("/v1/facts", params=params).json()["items"]
    return [(fact["object"], fact["valid_until"]) for fact in items]


def test_a_fact_that_was_never_so_is_corrected_and_undone(visit: Visit, server: Server) -> None:
    told = {"user_id": "ines", "subject": "@user", "predicate": "plays", "object": "cello", "cardinality": "one"}
    said = {**told, "valid_from": "2026-01-01T00:00:00Z", "source": {"session_id": "talk", "message_seq": 2}}
    fact_id = server.client.post("/v1/facts", json=said).json()["fact_id"]
    page = visit.open(f"owners/users/ines/facts?fact={fact_id}", "All that was stated of it")
    fact = page.get_by_role("region", name="Fact", exact=True)
    fact.get_by_role("button", name="Edit").click()
    expect(fact.get_by_label("Value")).to_be_focused()
    visit.check()
    fact.get_by_label("Value").fill("viola")
    fact.get_by_label("It was wrong from the start").check()
    fact.get_by_role("button", name="Save").click()
    page.get_by_text("Corrected. What was known stays on record.").wait_for()
    expect(fact).to_contain_text("ines plays viola")
    expect(fact.get_by_role("list").first).to_contain_text("ines plays cello")
    assert facts_of(server, "ines") == [("viola", None)]
    (made,) = server.client.get("/v1/facts", params={"user_id": "ines"}).json()["items"]
    assert (made["valid_from"][:10], made["source"]["session_id"]) == ("2026-01-01", "talk")
    before = server.client.get(f"/v1/facts/{fact_id}").json()
    assert (before["object"], before["status"]) == ("cello", "superseded")
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    expect(fact).to_contain_text("ines plays cello")
    assert facts_of(server, "ines") == [("cello", None)]


def test_a_fact_that_has_changed_holds_until_then(visit: Visit, server: Server) -> None:
    for user, cardinality in (("one-home", "one"), ("many-clubs", "many")):
        told = {"user_id": user, "subject": "@user", "predicate": "trains_in", "object": "Ottensen"}
        said = {**told, "cardinality": cardinality, "valid_from": "2026-01-01T00:00:00Z"}
        fact_id = server.client.post("/v1/facts", json=said).json()["fact_id"]
        page = visit.open(f"owners/users/{user}/facts?fact={fact_id}", "All that was stated of it")
        fact = page.get_by_role("region", name="Fact", exact=True)
        fact.get_by_role("button", name="Edit").click()
        fact.get_by_label("Value").fill("Barmbek")
        fact.get_by_label("It has changed").check()
        fact.get_by_label("Since").fill("2026-06-01")
        fact.get_by_role("button", name="Save").click()
        page.get_by_text("Changed. What held before stays.").wait_for()
        kept = sorted(facts_of(server, user))
        assert kept == [("Barmbek", None), ("Ottensen", "2026-06-01T00:00:00.000Z")]
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("Undone.", exact=True).wait_for()
        assert facts_of(server, user) == [("Ottensen", None)]


def test_a_disputed_fact_is_settled(visit: Visit, server: Server) -> None:
    told = {"user_id": "rolf", "subject": "@user", "predicate": "drinks", "cardinality": "one"}
    for trust, value in ((1.0, "tea"), (0.2, "coffee")):
        server.client.post("/v1/facts", json={**told, "object": value, "trust": trust}).raise_for_status()
    page = visit.open("owners/users/rolf/facts?status=disputed", "rolf drinks coffee")
    page.get_by_role("region", name="List of facts").get_by_role("link", name="rolf drinks coffee").click()
    fact = page.get_by_role("region", name="Fact", exact=True)
    expect(page.get_by_role("region", name="List of facts")).to_contain_text("contradicted left out of answers")
    visit.check()
    fact.get_by_role("button", name="This one holds: rolf drinks coffee").click()
    expect(fact.get_by_role("button", name="Edit")).to_be_visible()
    (believed,) = server.client.get("/v1/facts", params={"user_id": "rolf"}).json()["items"]
    assert believed["object"] == "coffee"
    page.locator(".toast", has_text="Decided.").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    expect(fact.get_by_role("button", name="This one holds: rolf drinks coffee")).to_be_visible()


def test_facts_are_sorted_filtered_and_come_page_by_page(visit: Visit, server: Server) -> None:
    items = [
        {"user_id": "vera", "subject": "@user", "predicate": f"has_book_{at % 2}", "object": f"volume {at}"}
        | {"cardinality": "many"}
        for at in range(60)
    ]
    server.client.post("/v1/facts/batch", json={"items": items}).raise_for_status()
    page = visit.open("owners/users/vera/facts", "vera has book 1 volume 59")
    rows = page.get_by_role("region", name="List of facts").locator(".list > li")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("volume 59")
    told = page.get_by_text("These 50 stand in the order in which they were told.")
    expect(told).to_be_visible()
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(60)
    expect(told).to_have_count(0)
    page.get_by_role("combobox", name="Sort").select_option("asc")
    expect(rows.first).to_contain_text("volume 0")
    page.get_by_text("More filters").click()
    page.get_by_label("What of it").fill("has book 1")
    page.get_by_label("What of it").press("Enter")
    expect(rows).to_have_count(30)
    page.get_by_role("button", name="Remove the filter What of it").click()
    expect(rows).to_have_count(50)


def test_the_graph_is_walked_by_the_keyboard(visit: Visit) -> None:
    page = visit.open("owners/users/mira/graph", "6 of at most 80 entities drawn")
    links = page.get_by_role("region", name="Links", exact=True)
    step = links.get_by_role("button", name="Halcyon E3")
    step.focus()
    page.keyboard.press("Enter")
    page.get_by_text("7 of at most 80 entities drawn.").wait_for()
    expect(links).to_contain_text("error 26")
    page.locator(".graph canvas").first.wait_for(state="attached")
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


def test_names_that_every_object_of_a_page_has_are_names_like_any_other(visit: Visit, server: Server) -> None:
    pairs = (("__proto__", "constructor"), ("constructor", "toString"), ("toString", "hasOwnProperty"))
    facts = [{"user_id": "odd", "subject": one, "predicate": "knows", "object": other} for one, other in pairs]
    assert server.client.post("/v1/facts/batch", json={"items": facts}).status_code == 201
    page = visit.open("owners/users/odd/graph", "constructor (2)")
    page.get_by_role("button", name="constructor (2)").first.click()
    page.get_by_text("3 of at most 80 entities drawn").wait_for()
    links = page.get_by_role("region", name="Links", exact=True)
    links.get_by_role("button", name="__proto__").first.click()
    expect(page.get_by_role("main")).to_contain_text("All that is known of __proto__")
    page.get_by_role("button", name="Clear the picture").click()
    page.get_by_role("button", name="__proto__ (1)").click()
    page.get_by_text("2 of at most 80 entities drawn").wait_for()
    visit.check()
    for kind in ("__proto__", "constructor"):
        visit.open(f"owners/{kind}/odd", "People")
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


OVERLAPS = """box => {
  const labels = box._cyreg.cy.nodes().filter(node => node.style("label")).map(node => {
    const { x1, x2, y1, y2 } = node.boundingBox({ includeNodes: false, includeEdges: false, includeOverlays: false });
    return { name: node.data("name"), x1: x1 + 2, x2: x2 - 2, y1: y1 + 2, y2: y2 - 2 };
  });
  const over = (one, other) => one.x1 < other.x2 && other.x1 < one.x2 && one.y1 < other.y2 && other.y1 < one.y2;
  const pairs = labels.flatMap((one, at) => labels.slice(at + 1)
    .filter(other => over(one, other)).map(other => [one.name, other.name]));
  const { x1, x2, y1, y2 } = box._cyreg.cy.elements().renderedBoundingBox();
  return { labels: labels.length, pairs, fits: x1 >= 0 && y1 >= 0 && x2 <= box.clientWidth && y2 <= box.clientHeight };
}"""


def knows(user: str, hub: str, people: int, *others: str) -> list[dict[str, str]]:
    objects = [f"{hub}'s acquaintance {at}" for at in range(people)] + list(others)
    of = {"user_id": user, "subject": hub, "predicate": "knows_well", "cardinality": "many"}
    return [{**of, "object": name} for name in objects]


@pytest.mark.parametrize(
    ("entities", "width"),
    [
        *((12, 900), (40, 1440)),
        *(pytest.param(*size, marks=pytest.mark.release) for size in ((2, 900), (2, 1440), (12, 1440), (40, 900))),
    ],
)
def test_a_graph_fits_its_box_and_no_label_lies_over_another(
    visitor: Visitor, server: Server, entities: int, width: int
) -> None:
    user = f"graph-{entities}-{width}"
    half = entities // 2 - 1
    facts = (
        knows(user, "Ada", entities - 1) if entities < 26 else knows(user, "Ada", half, "Bo") + knows(user, "Bo", half)
    )
    assert server.client.post("/v1/facts/batch", json={"items": facts}).status_code == 201
    visit = visitor(viewport={"width": width, "height": 900})
    page = visit.open(f"owners/users/{user}/graph?prefix=Ada", "of at most 80 entities drawn")
    links = page.get_by_role("region", name="Links", exact=True)
    if entities > 26:
        links.get_by_role("button", name="Bo", exact=True).click()
    page.get_by_text(f"{entities} of at most 80 entities drawn").wait_for()
    graph = page.locator(".graph")
    graph.locator("canvas").first.wait_for(state="attached")  # what draws is loaded after the text
    while graph.evaluate("box => box._cyreg.cy.nodes().length") != entities:  # the picture follows the text
        page.wait_for_timeout(50)
    found = graph.evaluate(OVERLAPS)
    assert (found["labels"], found["pairs"], found["fits"]) == (entities, [], True)
    shown = graph.evaluate("box => box._cyreg.cy.edges().map(edge => edge.style('target-label'))")
    assert shown == ["knows well"] * (entities - 1)
    visit.check()


CROSSED = """box => {
  const labels = { includeNodes: false, includeEdges: false, includeOverlays: false };
  const boxes = box._cyreg.cy.nodes().map(node => node.boundingBox(labels));
  return box._cyreg.cy.edges(".beside").map(edge => {
    const [from, [bend], until] = [edge.sourceEndpoint(), edge.controlPoints(), edge.targetEndpoint()];
    const at = (t, axis) => (1 - t) ** 2 * from[axis] + 2 * t * (1 - t) * bend[axis] + t ** 2 * until[axis];
    const inside = ({ x, y }) => boxes
      .some(({ x1, x2, y1, y2 }) => x1 + 2 < x && x < x2 - 2 && y1 + 2 < y && y < y2 - 2);
    const points = [...Array(101).keys()].map(step => ({ x: at(step / 100, "x"), y: at(step / 100, "y") }));
    return points.filter(inside).length;
  });
}"""


def test_a_link_between_neighbours_passes_behind_no_label(visit: Visit) -> None:
    page = visit.open("owners/users/mira/graph", "of at most 80 entities drawn")
    page.locator(".graph canvas").first.wait_for(state="attached")  # later looks of wait_for_function evaluate text
    assert page.locator(".graph").evaluate(CROSSED) == [0]  # Elbe Riders meets in Bergedorf


def test_a_legend_says_what_the_graph_draws_and_nothing_else(visit: Visit) -> None:
    page = visit.open("owners/users/mira/graph", "of at most 80 entities drawn")
    signs = page.get_by_role("list", name="Legend").get_by_role("listitem")
    expect(signs.last).to_have_text("contradicted, as its label says")
    further = "a further link between entities of the picture"
    drawn = ["the person", "another entity", "chosen, with its neighbours", "holds", further]
    expect(signs).to_have_text([*drawn, "contradicted, as its label says"])
    labels = "box => box._cyreg.cy.edges('.contradicted').map(edge => edge.data('label'))"
    assert page.locator(".graph").evaluate(labels) == ["meets in (contradicted)"]
    page = visit.open("owners/agents/workshop/graph", "Links")
    expect(signs.filter(has_text="contradicted")).to_have_count(0)
    expect(signs.filter(has_text="the person")).to_have_count(0)


def test_a_fact_says_who_said_it_when_and_leads_there(visit: Visit) -> None:
    page = visit.open("owners/users/mira", "What holds now")
    row = (
        page.get_by_role("region", name="What holds now").get_by_role("listitem").filter(has_text="lives in Bergedorf")
    )
    expect(row).to_contain_text(re.compile(r"since \d{4}-\d\d-\d\d · Mira: “I moved to Bergedorf”"))
    expect(page.get_by_role("region", name="What holds now")).not_to_contain_text("Altona")  # neither fact nor note
    lately = page.get_by_role("region", name="What changed lately").get_by_role("listitem")
    expect(lately.filter(has_text="Mira lives in Bergedorf")).to_have_count(1)
    row.get_by_role("link", name="Mira lives in Bergedorf").click()
    origin = page.get_by_role("region", name="Fact", exact=True).locator("dt:text-is('Where from') + dd")
    expect(origin).to_have_text(re.compile(r"^Mira on \d{4}-\d\d-\d\d: “I moved to Bergedorf”$"))
    expect(origin.get_by_role("link")).to_have_attribute("href", re.compile("#/sessions/mira-has-moved"))
    visit.check()


LAID = """box => {
  const own = { includeNodes: false, includeEdges: false, includeOverlays: false };
  const label = element => ({ name: element.data("label"), ...element.boundingBox(own) });
  const nodes = box._cyreg.cy.nodes().map(label), edges = box._cyreg.cy.edges();
  const over = (one, other) => one.x1 + 2 < other.x2 - 2 && other.x1 + 2 < one.x2 - 2
    && one.y1 + 2 < other.y2 - 2 && other.y1 + 2 < one.y2 - 2;
  const all = [...nodes, ...edges.map(label)];
  const pairs = all.flatMap((one, at) => all.slice(at + 1).filter(other => over(one, other))
    .map(other => [one.name, other.name]));
  const crossed = edges.filter(".lane, .bracket").map(edge => {
    const points = [edge.sourceEndpoint(), ...edge.segmentPoints(), edge.targetEndpoint()];
    const between = (from, until, share) =>
      ({ x: from.x + (until.x - from.x) * share, y: from.y + (until.y - from.y) * share });
    const steps = points.slice(1).flatMap((until, at) =>
      [...Array(51).keys()].map(step => between(points[at], until, step / 50)));
    const inside = ({ x, y }) => nodes
      .filter(({ x1, x2, y1, y2 }) => x1 + 2 < x && x < x2 - 2 && y1 + 2 < y && y < y2 - 2);
    return [edge.data("label"), steps.flatMap(inside).map(({ name }) => name)];
  });
  return { pairs, crossed: Object.fromEntries(crossed) };
}"""


@pytest.mark.parametrize("width", [900, 1440])
def test_links_between_columns_go_below_and_those_of_an_inner_one_behind_its_labels(
    visitor: Visitor, server: Server, width: int
) -> None:
    user = f"lanes-{width}"
    told = [
        *(("Ada", "knows", name) for name in ("Bo", "Cy", "Di the bookseller", "Ed")),
        ("Bo", "visits", "Ely"),  # from one side to the other
        ("Cy", "was born in", "Ely"),
        ("Ed", "has written about", "Ely"),  # a link of the tree
        ("Ed", "works together with", "Cy"),  # of one column, which another follows
        ("Bo", "looks up to", "Ada"),  # back to the root
    ]
    facts = [
        {"user_id": user, "subject": subject, "predicate": predicate, "object": name, "cardinality": "many"}
        for subject, predicate, name in told
    ]
    assert server.client.post("/v1/facts/batch", json={"items": facts}).status_code == 201
    visit = visitor(viewport={"width": width, "height": 900})
    page = visit.open(f"owners/users/{user}/graph?prefix=Ada", "5 of at most 80 entities drawn")
    links = page.get_by_role("region", name="Links", exact=True)
    links.get_by_role("button", name="Bo", exact=True).first.click()
    page.get_by_text("6 of at most 80 entities drawn").wait_for()
    laid = page.locator(".graph").evaluate(LAID)
    cross = ("visits", "was born in", "works together with", "looks up to")
    assert laid == {"pairs": [], "crossed": {predicate: [] for predicate in cross}}


def test_a_phone_shows_the_links_of_a_graph_as_a_list_alone(visitor: Visitor) -> None:
    visit = visitor(viewport={"width": 390, "height": 844})
    page = visit.open("owners/users/mira/graph", "Choose an entity to see up to")
    links = page.get_by_role("region", name="Links", exact=True)
    expect(links.locator("li", has_text="Elbe Riders meets in Bergedorf")).to_be_visible()
    boxes = [row.get_by_role("button").first.bounding_box() for row in links.get_by_role("listitem").all()]
    assert len({box["x"] for box in boxes if box}) == 1  # one column
    expect(page.locator(".graph")).to_have_count(0)
    expect(page.get_by_text("entities drawn")).to_have_count(0)
    expect(page.get_by_text("A list in place of the picture")).to_be_visible()
    expect(page.get_by_role("button", name="Clear the picture")).to_have_count(0)
    visit.check()


def test_a_fact_that_is_contradicted_is_marked_with_what_contradicts_it(visit: Visit) -> None:
    for address, section in (("owners/users/mira/facts", "List of facts"), ("owners/users/mira", "What holds now")):
        page = visit.open(address, "Elbe Riders meets in Bergedorf")
        row = page.get_by_role("region", name=section).locator("li", has_text="Elbe Riders meets in Bergedorf")
        expect(row).to_contain_text(re.compile(r"contradicted\s+by\s+Elbe Riders meets in Wandsbek"))


def test_procedures_show_success_with_its_interval(visit: Visit) -> None:
    page = visit.open("owners/agents/workshop/procedures", "True a wheel")
    expect(page.locator("li", has_text="True a wheel")).to_contain_text("worked 10 of 12 reported uses, 83 %")
    page.get_by_role("link", name="True a wheel").click()
    box = page.get_by_role("region", name="Procedure", exact=True)
    expect(box).to_contain_text("10 worked and 2 failed")
    interval = box.get_by_role("img").get_attribute("aria-label")
    assert interval == "83 %, between 55 % and 95 %"  # the Wilson interval of 10 of 12
    visit.check()


def test_procedures_are_added_edited_and_archived_with_undo(visit: Visit, server: Server) -> None:
    page = visit.open("owners/users/tilda/procedures", "No procedures. Write one:")
    page.get_by_role("button", name="Add a procedure").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Mend a tube")
    dialog.get_by_label("When it is for").fill("A tube loses air")
    dialog.get_by_label("Steps, one on each line").fill("Find the hole\nGlue the patch")
    visit.check()
    dialog.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("The procedure is added.").wait_for()
    page.get_by_role("link", name="Mend a tube").click()
    detail = page.get_by_role("region", name="Procedure", exact=True)
    detail.get_by_role("button", name="Edit").click()
    detail.get_by_label("Steps, one on each line").fill("Find the hole\nRoughen it\nGlue the patch")
    detail.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    expect(detail.locator("ol.plan > li")).to_have_count(3)
    expect(detail).to_contain_text("version 1 → 2")
    detail.get_by_role("button", name="Archive").click()
    page.get_by_text("Archived.").wait_for()

    def kept() -> tuple[str, int]:
        (one,) = server.client.get("/v1/procedures", params={"user_id": "tilda", "status": "any"}).json()["items"]
        return one["status"], len(one["steps"])

    assert kept() == ("archived", 3)
    page.get_by_role("combobox", name="Status").select_option("active")
    page.get_by_text("No procedure is like this.").wait_for()
    page.get_by_role("button", name="Remove the filter Status").click()
    page.locator(".toast", has_text="Archived.").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    assert kept() == ("active", 3)
    visit.check()


def test_actions_are_counted_and_drawn(visit: Visit, server: Server) -> None:
    params = {"agent_id": "workshop", "window_days": "60", "group_by": "action_type"}
    stats = server.client.get("/v1/actions/stats", params=params).json()
    page = visit.open("owners/agents/workshop/actions", "Actions a day")
    expect(page.locator(".tiles li").first).to_contain_text(str(stats["total_actions"]))
    rows = page.get_by_role("region", name="Actions by type").locator("tbody tr")
    expect(rows).to_have_count(len(stats["groups"]))
    expect(rows.first).to_contain_text(stats["groups"][0]["key"].replace("_", " "))
    expect(page.locator("figure.chart canvas")).to_have_count(2)
    latest = server.client.get("/v1/actions", params={"agent_id": "workshop", "limit": 1}).json()["items"][0]
    expect(page.get_by_label("List of actions").locator(".list > li").first).to_contain_text(latest["content"])
    visit.check()
    visit.open("owners/agents/front-desk/experience", "Ask for the luggage before proposing a wheel.")
    visit.check()
    visit.open("owners/agents/front-desk", "You are the front desk of Fernhill Cycles.")


def test_all_actions_are_listed_and_those_that_failed_are_chosen(visit: Visit, server: Server) -> None:
    def ids(**filters: str) -> list[str]:
        actions = server.client.get("/v1/actions", params={"agent_id": "workshop", "limit": "100", **filters}).json()
        assert actions["next_cursor"] is None
        return [action["action_id"] for action in actions["items"]]

    page = visit.open("owners/agents/workshop/actions", "Actions, newest first")
    rows, more = (
        page.get_by_label("List of actions").locator(".list > li"),
        page.get_by_role("button", name="Show more"),
    )
    expect(rows).to_have_count(20)
    for shown in range(40, len(ids()) + 20, 20):
        more.click()
        expect(rows).to_have_count(min(shown, len(ids())))
    expect(more).to_have_count(0)
    page.get_by_label("Outcome").select_option("failure")
    expect(rows).to_have_count(len(ids(outcome="failure")))
    assert "outcome=failure" in page.url
    page.get_by_role("region", name="Actions by type").get_by_role("link", name="firmware update").click()
    expect(rows).to_have_count(len(ids(outcome="failure", action_type="firmware_update")))
    page.get_by_role("button", name="Remove the filter Outcome").click()
    expect(rows).to_have_count(len(ids(action_type="firmware_update")))
    visit.check()


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
    page.get_by_role("button", name="Erase this person…").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert server.client.get("/v1/memories", params={"user_id": "tomas"}).json()["items"]
    page.get_by_role("button", name="Erase this person…").click()
    page.get_by_role("button", name="Erase for good").click()
    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text(re.compile("agent_memories|memories"))
    assert server.client.get("/v1/memories", params={"user_id": "tomas"}).json()["items"] == []
    visit.check()


def test_what_is_unknown_says_how_to_begin(visit: Visit, server: Server) -> None:
    server.client.post("/v1/memories", json={"user_id": "newcomer", "content": "Noted"}).raise_for_status()
    for address, ready in (
        ("owners/users/newcomer/profile", "No profile yet. Write one:"),
        ("owners/users/newcomer/facts", "No facts. Assert one:"),
        ("owners/users/newcomer/graph", "No fact has an entity as its object here."),
        ("owners/users/newcomer/procedures", "No procedures. Write one:"),
        ("owners/agents/nobody/actions", "No actions in 60 days. Log one:"),
        ("owners/agents/nobody", "This agent is not registered."),
    ):
        visit.open(address, ready)
    assert [fault for fault in visit.faults if "404" not in fault] == []


def test_a_person_of_whom_nothing_is_stored_has_no_page_until_something_is(visit: Visit, server: Server) -> None:
    page = visit.open("owners/users/nobody/data", "There is no such person")
    expect(page.get_by_role("button", name="Erase this person…")).to_have_count(0)
    visit.check()
    server.client.post("/v1/memories", json={"user_id": "nobody-else", "content": "Noted"}).raise_for_status()
    page.goto(f"{visit.base}/console/#/owners/users/nobody-else/data")  # the page has listed people before
    expect(page.get_by_role("button", name="Erase this person…")).to_be_visible()
