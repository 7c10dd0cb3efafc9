"""The page of findings: evidence side by side, filters, and what can be done with one."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server

pytestmark = pytest.mark.before_store


def told(server: Server, user: str, predicate: str, *values: str) -> list[str]:
    """The ids of two facts about the user that cannot both hold: the second one names the user by name."""
    made = [
        server.client.post(
            "/v1/facts",
            json={
                "user_id": user,
                "subject": subject,
                "predicate": predicate,
                "object": value,
                "cardinality": "one",
                "valid_from": f"2026-0{month}-01T00:00:00Z",
            },
        )
        for month, (subject, value) in enumerate(zip(("@user", user), values, strict=True), start=1)
    ]
    return [one.json()["fact_id"] for one in made]


def test_a_finding_is_made_accepted_and_undone(visit: Visit, server: Server) -> None:
    told(server, "nina", "lives_in", "Rome", "Oslo")
    page = visit.open("findings?user_id=nina", "Look for findings")  # a scheduled reflection may have looked before
    visit.check()
    page.get_by_role("button", name="Look for findings").click()
    finding = page.get_by_role("region", name="contradiction: nina lives in: Rome or Oslo?")
    expect(finding.get_by_text("nina lives in Rome")).to_be_visible()
    expect(finding.get_by_text("nina lives in Oslo")).to_be_visible()
    evidence = finding.locator(".claims > li")
    expect(evidence.nth(0)).to_contain_text("2026-01-01")
    expect(evidence.nth(0)).to_contain_text("trust 1.00")
    expect(evidence.nth(1)).to_contain_text("suggested because it was said later")
    expect(evidence.nth(0)).not_to_contain_text("suggested")
    expect(finding.get_by_text("90 %")).to_be_hidden()  # in the suggestion in full, which is closed
    expect(evidence.nth(0)).to_contain_text("through the API")
    for claim in evidence.all():
        expect(claim).to_contain_text("The other one leaves answers and stays in the history. It can be undone.")
    expect(finding).to_contain_text("Both stay in answers.")
    expect(finding.get_by_text("It can be undone.")).to_have_count(3)
    expect(finding).to_contain_text("The profile follows: its home becomes the one that holds; if both hold, it stays")
    visit.check()
    finding.get_by_role("button", name="This one holds: nina lives in Oslo").click()
    page.get_by_text("Decided.").wait_for()
    expect(page.get_by_text("No finding waits to be settled here")).to_be_visible()
    assert server.client.get("/v1/users/nina/profile").json()["home"] == "Oslo"
    visit.open("findings?user_id=jonas", "Once it is decided, Undo is on this card")
    page.get_by_role("link", name="accepted").click()
    expect(page.get_by_role("combobox", name="Status")).to_have_value("accepted")
    page = visit.open("findings?user_id=nina&status=accepted", "Decided: nina lives in Oslo")
    evidence = page.get_by_role("region", name="contradiction").locator(".claims > li")
    expect(evidence.nth(0)).to_contain_text("nina lives in Rome")
    expect(evidence.nth(0)).to_contain_text("replaced")
    page.get_by_role("region", name="contradiction").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    page.get_by_role("combobox", name="Status").select_option("open")
    expect(page.get_by_role("region", name="contradiction").get_by_role("button", name="Both hold")).to_be_visible()
    assert server.client.get("/v1/users/nina/profile").json()["home"] == "Rome"
    visit.check()


def test_each_claim_of_a_finding_says_who_said_it_in_which_words(visit: Visit) -> None:
    page = visit.open("findings?user_id=jonas", "Jonas lives in: Hamburg or Bremen?")
    claims = page.get_by_role("region", name="Jonas lives in").locator(".claims > li")
    expect(claims.filter(has_text="Jonas lives in Hamburg")).to_contain_text("Jonas: “I live in Hamburg”")
    expect(claims.filter(has_text="Jonas lives in Bremen")).to_contain_text(
        "through the API, noted: The address on an order of spokes."
    )
    visit.check()
    claims.get_by_role("link", name="“I live in Hamburg”").click()
    page.get_by_role("heading", name="jonas-plans-a-tour").wait_for()
    page = visit.open("owners/users/jonas", "What holds now")
    claims = page.get_by_role("region", name="What is uncertain").locator(".claims > li")
    expect(claims.filter(has_text="Jonas lives in Hamburg")).to_contain_text("Jonas: “I live in Hamburg”")


def test_what_an_open_finding_contradicts_is_marked_where_it_stands(visit: Visit, server: Server) -> None:
    told(server, "lena", "lives_in", "Porto", "Lyon")
    server.client.post("/v1/reflect", json={"user_id": "lena"})
    page = visit.open("findings?user_id=lena&status=any", "lena lives in: Porto or Lyon?")
    expect(page.get_by_role("list", name="Filters")).to_have_count(0)  # "any" leaves nothing out
    page = visit.open("owners", "lena")
    row = page.locator("main .list > li", has=page.get_by_role("link", name="lena", exact=True))
    expect(row).to_contain_text("lives in Lyon contradicted")  # what would stay, not what would be replaced
    expect(row).not_to_contain_text("Porto")
    visit.check()
    row.get_by_role("link", name="lena", exact=True).click()
    page.get_by_role("region", name="What holds now").wait_for()
    expect(page.get_by_role("region", name="Who")).to_contain_text("Lyon contradicted")
    holds = page.get_by_role("region", name="What holds now")
    expect(holds.get_by_role("link", name="contradicted").first).to_be_visible()
    visit.check()
    page.get_by_role("region", name="Who").get_by_role("link", name="contradicted").click()
    page.get_by_text("lena lives in: Porto or Lyon?").wait_for()


def test_the_value_that_a_finding_would_replace_can_hold(visit: Visit, server: Server) -> None:
    told(server, "rosa", "lives_in", "Turin", "Bonn")
    server.client.post("/v1/reflect", json={"user_id": "rosa"})
    page = visit.open("findings?user_id=rosa", "rosa lives in: Turin or Bonn?")
    page.get_by_role("button", name="This one holds: rosa lives in Turin").click()
    page.get_by_text("Decided.").wait_for()
    facts = server.client.get("/v1/facts", params={"user_id": "rosa"}).json()["items"]
    assert [fact["object"] for fact in facts] == ["Turin"]
    assert server.client.get("/v1/users/rosa/profile").json()["home"] == "Turin"
    server.client.post("/v1/reflect", json={"user_id": "rosa"})
    assert server.client.get("/v1/findings", params={"user_id": "rosa"}).json()["items"] == []
    page.get_by_role("combobox", name="Status").select_option("accepted")
    page.get_by_role("region", name="contradiction").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    page.get_by_role("combobox", name="Status").select_option("open")
    expect(page.get_by_role("button", name="This one holds: rosa lives in Bonn")).to_be_visible()


@pytest.mark.parametrize(
    ("address", "choice", "holding"),
    [
        ("findings?user_id={}", "This one holds: Ida drinks tea", ["tea"]),
        ("findings?user_id={}", "This one holds: Ida drinks coffee", ["coffee"]),
        ("owners/users/{}", "This one holds: Ida drinks coffee", ["coffee"]),
        ("owners/users/{}", "Both hold", ["coffee", "tea"]),
    ],
)
def test_a_dispute_is_decided_where_it_is_listed(
    visit: Visit, server: Server, address: str, choice: str, holding: list[str]
) -> None:
    user = f"ida-{len(address)}-{len(choice)}"
    for value, trust in (("coffee", 1.0), ("tea", 0.4)):
        fact = {"user_id": user, "subject": "Ida", "predicate": "drinks", "object": value, "trust": trust}
        server.client.post("/v1/facts", json=fact).raise_for_status()
    server.client.patch(f"/v1/users/{user}/profile", json={"interests": ["tea"]}).raise_for_status()
    page = visit.open(address.format(user), "Ida drinks: tea or coffee?")
    dispute = page.get_by_role("main").get_by_role("listitem").filter(has=page.locator(".claims"))
    expect(dispute).to_contain_text("Trust 0.40 against 1.00. Until it is decided, the one of less trust is left out")
    visit.check()
    for takes_back in (True, False):
        page.get_by_role("button", name=choice).click()
        decided = page.locator(".toast", has_text=re.compile("^Decided[.:]"))
        decided.wait_for()
        expect(dispute).to_have_count(0)
        facts = server.client.get("/v1/facts", params={"user_id": user}).json()["items"]
        assert sorted(fact["object"] for fact in facts) == holding
        if takes_back:
            decided.get_by_role("button", name="Undo").click()
            page.get_by_text("Undone.", exact=True).wait_for()
            expect(dispute).to_have_count(1)


def test_a_finding_is_dismissed_stays_so_and_is_taken_back(visit: Visit, server: Server) -> None:
    told(server, "otto", "works_as", "cook", "baker")
    page = visit.open("findings?user_id=otto", "No finding waits to be settled here")
    page.get_by_role("button", name="Look for findings").click()
    page.get_by_role("button", name="Both hold").click()
    page.get_by_text("Decided: both hold.").wait_for()
    page.get_by_role("button", name="Look for findings").click()
    expect(page.get_by_role("status").get_by_text("succeeded")).to_be_visible()
    (finding,) = server.client.get("/v1/findings", params={"user_id": "otto", "status": "any"}).json()["items"]
    assert finding["status"] == "dismissed"
    page.get_by_role("combobox", name="Status").select_option("dismissed")
    page.get_by_role("region", name="contradiction").get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.", exact=True).wait_for()
    page.get_by_role("combobox", name="Status").select_option("open")
    expect(page.get_by_role("region", name="contradiction").get_by_role("button", name="Both hold")).to_be_visible()


def test_filters_links_and_the_address_of_one_finding(visit: Visit, server: Server) -> None:
    told(server, "pia", "drinks", "coffee", "tea")
    said = server.client.post("/v1/memories", json={"user_id": "pia", "content": "I drink coffee."}).json()["memory_id"]
    page = visit.open(f"memories/{said}", "Findings of the same agent and person")
    page.get_by_role("link", name="Findings of the same agent and person").click()
    expect(page.get_by_label("Person")).to_have_value("pia")
    page.get_by_role("button", name="Look for findings").click()
    expect(page.get_by_role("button", name="Both hold")).to_have_count(1)
    page.get_by_role("combobox", name="Kind").select_option("insight")
    expect(page.get_by_text("No finding waits to be settled here")).to_be_visible()
    page.get_by_role("combobox", name="Kind").select_option("")
    page.get_by_role("link", name=re.compile("^found ")).click()
    expect(page.get_by_role("heading", name="Finding", exact=True)).to_be_visible()
    visit.check()
    page.get_by_role("main").get_by_role("link", name="pia drinks coffee").click()
    expect(page.get_by_text("coffee").first).to_be_visible()


def test_a_reading_key_sees_no_button(visitor: Visitor, story_with_key: tuple[Server, str]) -> None:
    server, key = story_with_key
    visit = visitor(str(server.client.base_url).rstrip("/"))
    visit.page.goto(f"{visit.base}/console/")
    visit.page.get_by_label("API key").fill(key)
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("link", name="Findings").click()
    expect(visit.page.get_by_role("heading", name="Findings")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Look for findings")).to_have_count(0)


def test_a_narrow_dark_page(visitor: Visitor, server: Server) -> None:
    told(server, "quin", "has_favourite_colour", "blue", "green")
    server.client.post("/v1/reflect", json={"user_id": "quin"})
    visit = visitor(color_scheme="dark", viewport={"width": 390, "height": 800})
    page = visit.open("findings?user_id=quin&status=any", "Findings")
    visit.check()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
