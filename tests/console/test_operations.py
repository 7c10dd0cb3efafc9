"""The page of operations: jobs, dry runs with histograms, undo, forgetting; keys, audit and settings for admins."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit, Visitor
from tests.support.server import Server, recalld, serving

pytestmark = pytest.mark.before_store


def test_a_dry_run_of_decay_shows_histograms_before_and_after(visit: Visit, server: Server) -> None:
    page = visit.open("operations", "Dry run")
    expect(page.get_by_role("region", name="Jobs")).not_to_contain_text(re.compile(r"every \d+ s\b|_"))
    visit.check()
    page.get_by_role("button", name="Dry run of decay").click()
    page.get_by_text("Memories by importance, after").first.wait_for()
    items = server.client.get("/v1/operations").json()["items"]
    latest = next(one for one in items if one["kind"] == "decay")  # scheduled work may have begun since
    assert latest["status"] == "succeeded"
    page.get_by_role("figure", name="Memories by importance, before").first.get_by_text("Numbers").click()
    cells = page.get_by_role("region", name="Numbers of Memories by importance, before").locator("td")
    expect(cells).to_have_text([str(count) for count in latest["result"]["before"]])
    visit.check()


def test_a_phone_shows_every_column_of_the_jobs(visitor: Visitor) -> None:
    visit = visitor(viewport={"width": 390, "height": 800})
    page = visit.open("operations", "Dry run")
    jobs = page.get_by_role("region", name="Jobs")
    decay = jobs.get_by_role("row", name="decay")
    for said in ("every hour", "Dry run", "Run"):
        box = decay.get_by_text(said, exact=True).bounding_box()
        assert box
        assert box["x"] + box["width"] <= 390
    assert decay.locator("td").evaluate_all("cells => cells.map(cell => cell.dataset.head)") == [
        "Looks",
        "Last work",
        "Next look",
        "Run now",
    ]
    assert jobs.evaluate("box => box.scrollWidth <= box.clientWidth")
    visit.check()


def test_a_job_that_found_no_work_says_that_it_waits(visit: Visit) -> None:
    looked = "2026-01-01T12:00:00Z"
    jobs = [
        {"name": name, "schedule": schedule, "last_run": looked, "next_run": looked, "outcome": "succeeded"}
        for name, schedule in (("embed_pending", "every 5 s"), ("yearly", "every 31557600000 s"))
    ]
    visit.page.route("**/v1/jobs", lambda route: route.fulfill(json={"items": jobs, "next_cursor": None}))
    page = visit.open("operations", "Dry run")
    expect(page.get_by_role("row", name="embed pending")).to_contain_text("waits for work")
    expect(page.get_by_role("row", name="yearly")).not_to_contain_text("waits for work")


def test_what_was_learned_is_undone(visit: Visit, server: Server) -> None:
    undoable = next(one for one in server.client.get("/v1/operations?limit=50").json()["items"] if one["can_undo"])
    page = visit.open("operations", "Dry run")
    row = page.locator("main .list > li", has=page.get_by_role("button", name="Undo")).first
    assert undoable["kind"] == "post_conversation"
    expect(row).to_contain_text("learning from a session")
    row.get_by_text("Result").click()
    row.get_by_role("button", name="Undo").click()
    dialog = page.get_by_role("dialog")
    visit.check()
    dialog.get_by_role("button", name="Undo").click()
    page.get_by_text("Undoing learning from a session.").wait_for()
    path = f"/v1/operations/{undoable['operation_id']}"
    page.wait_for_function(
        "path => fetch(path).then(answer => answer.json()).then(found => !found.can_undo)", arg=f"{visit.base}{path}"
    )


def test_forgetting_says_first_what_would_go(visit: Visit, server: Server) -> None:
    made = [
        server.client.post(
            "/v1/memories", json={"user_id": "old", "content": f"Old note {n}", "importance": n / 10}
        ).json()
        for n in (1, 3)
    ]
    page = visit.open("operations/forget", "Whose memories?")
    expect(page.get_by_role("button", name="Show what would go")).to_be_disabled()
    page.get_by_role("group", name="Whose memory").get_by_label("Person").select_option("old")
    page.get_by_role("heading", name="Forget old memories of old").wait_for()
    page.get_by_label("Older than").fill("0")
    page.get_by_label("Importance at most").fill("0.2")
    page.get_by_role("button", name="Show what would go").click()
    page.get_by_text("1 memory would go").wait_for()
    expect(page.locator("main .list > li")).to_contain_text(
        "score 100: 100 for its age (0 days old), 0 for its type (fact)"
    )
    expect(page.get_by_role("link", name="Old note 1")).to_be_visible()
    expect(page.get_by_label("Older than")).to_have_value("0")
    visit.check()
    page.get_by_role("button", name="Forget these 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    page.get_by_text("succeeded").wait_for()
    states = [server.client.get(f"/v1/memories/{one['memory_id']}").json()["status"] for one in made]
    assert states == ["archived", "active"]


def test_the_frame_asks_whose_memory_where_the_page_shows_it(visit: Visit) -> None:
    for part, choices in (("", ["Person"]), ("/forget", ["Person", "Agent"]), ("/keys", []), ("/audit", [])):
        page = visit.open(f"operations{part}", "Operations")
        expect(page.locator("header.top select")).to_have_count(len(choices))
        for label in choices:
            expect(page.locator("header.top").get_by_label(label)).to_be_visible()
    page = visit.open("operations?user_id=mira", "Operations for Mira")
    expect(page.locator("li.operation .whose").first).to_contain_text("Mira")


def test_settings_in_force_are_shown(visit: Visit) -> None:
    page = visit.open("operations/settings", "RECALLD_DATA_DIR")
    visit.check()
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    value = page.locator("dl.settings > div", has_text="RECALLD_CACHE_BYTES").locator("dd")
    expect(value).to_contain_text(re.compile(r"^\d+ MiB"))
    expect(page.locator("dl.settings").first).not_to_contain_text("`")
    auth = page.locator("dl.settings > div", has_text="RECALLD_AUTH").first
    expect(auth).to_contain_text("this machine alone is answered")
    limit = page.get_by_text("RECALLD_LLM_CONTEXT_TOKENS", exact=True)
    expect(limit).to_be_hidden()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("llm context")
    expect(limit).to_be_visible()
    visit.check()
    page.get_by_role("searchbox").fill("")
    page.get_by_label("only those that differ").check()
    expect(page.get_by_text("RECALLD_LLM_CONTEXT_TOKENS")).to_have_count(0)
    expect(page.get_by_text("RECALLD_DATA_DIR")).to_be_visible()


def test_the_audit_trail_is_filtered(visit: Visit, server: Server) -> None:
    made = server.client.post("/v1/memories", json={"user_id": "audited", "content": "Noted"}).json()
    page = visit.open("operations/audit", "create memory")
    visit.check()
    page.get_by_label("record").fill(made["memory_id"])
    page.keyboard.press("Tab")
    expect(page.locator("main .list > li")).to_have_count(1)
    expect(page.locator("main .list > li")).to_contain_text("create memory without a key, about audited")
    expect(page.locator("main .list > li")).to_contain_text("1 memory added")
    server.client.patch(f"/v1/memories/{made['memory_id']}", json={"tags": ["noted"]})
    page = visit.open(f"operations/audit?record_id={made['memory_id']}&action=update_memory", "update memory")
    expect(page.locator("main .list > li")).to_contain_text("1 memory changed (tags)")
    page = visit.open(f"operations/audit?record_id={made['memory_id']}&action=create_memory", "create memory")
    assert f"record_id={made['memory_id']}" in page.url


@pytest.mark.parametrize(
    ("action", "record", "shows", "address"),
    [
        ("update_profile", "fact_", "Where from", "owners/users/"),
        ("log_actions", "act_", "All actions", "owners/agents/"),
        ("record_outcome", "proc_", "Last outcomes", "owners/agents/"),
        ("run_job", "op_", "All operations", "operations?operation=op_"),
        ("append_messages", "mem_", "Source", "memories/mem_"),
        ("end_session", "mira-teaches-now", "What was said", "sessions/mira-teaches-now"),
        ("create_task", "lisbon-wheels", "Checkpoints", "tasks/lisbon-wheels"),
        ("update_profile", "priya", "What holds now", "owners/users/priya"),
    ],
)
def test_each_id_of_the_audit_trail_leads_to_its_record(
    visit: Visit, action: str, record: str, shows: str, address: str
) -> None:
    page = visit.open(f"operations/audit?action={action}", "Audit")
    page.locator(f"main a[title^='{record}']").first.click()
    page.get_by_text(shows, exact=True).first.wait_for()
    assert f"#/{address}" in page.url
    visit.check()


def test_an_entry_of_the_audit_trail_names_all_of_its_records(visit: Visit, server: Server) -> None:
    items = [{"user_id": "counted", "content": f"Noted {number}"} for number in range(5)]
    made = server.client.post("/v1/memories/batch", json={"items": items})
    assert made.status_code == 201
    page = visit.open("operations/audit?user_id=counted", "Audit")
    entry = page.locator("main .list > li").first
    entry.get_by_text("2 more", exact=True).click()
    for memory in made.json()["items"]:
        expect(entry.locator(f"a[title='{memory['memory_id']}']")).to_be_visible()
    visit.check()


def test_a_record_that_is_gone_is_said_to_be(visit: Visit) -> None:
    gone = "0" * 32
    for kind, noun, listed in (
        ("fact", "Fact", "owners/users/mira/facts"),
        ("act", "Action", "owners/agents/workshop/actions?user_id=mira"),
        ("proc", "Procedure", "owners/users/mira/procedures"),
    ):
        scope = "?user_id=mira" + ("&agent_id=workshop" if kind == "act" else "")
        page = visit.open(f"record/{kind}_{gone}{scope}", f"{noun} {kind}_{gone} is gone or was never here.")
        links = page.locator("main .empty a")
        expect(links.first).to_have_attribute("href", f"#/{listed}")
        expect(links.last).to_have_attribute("href", f"#/operations/audit?record_id={kind}_{gone}")
        visit.faults.clear()  # the browser notes the 404 itself
    visit.open(f"operations?operation=op_{gone}", "It is gone: an operation is kept for at least 30")


@pytest.fixture(scope="module")
def administered(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    data = tmp_path_factory.mktemp("administered") / "data"
    shutil.copytree(story, data)
    made = recalld(data, "keys", "create", "--tenant", "default", "--name", "root", "--verbs", "read,write,admin")
    key = next(word for word in made.stdout.split() if word.startswith("rk_"))
    with serving(data) as server:
        yield server, key


def test_keys_are_made_shown_once_rotated_and_revoked(visitor: Visitor, administered: tuple[Server, str]) -> None:
    server, key = administered
    visit = visitor(str(server.client.base_url).rstrip("/"))
    page = visit.open("operations/keys", "This service has API keys")
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="New key").click()
    visit.faults.clear()
    dialog = page.get_by_role("dialog", name="New key")
    dialog.get_by_label("Name").fill("<b>reader</b>")
    dialog.get_by_label("Only these people").fill("mira, jonas")
    visit.check()
    dialog.get_by_role("button", name="Make key").click()
    page.get_by_text("It is shown this once").wait_for()
    fresh = page.locator(".empty pre").inner_text()
    whoami = server.client.get("/v1/whoami", headers={"X-API-Key": fresh}).json()
    assert (whoami["verbs"], whoami["users"]) == (["read"], ["jonas", "mira"])
    page.get_by_role("button", name="I have it").click()
    row = page.get_by_role("row", name="<b>reader</b>")
    row.get_by_role("button", name="Rotate").click()
    page.get_by_text("It is shown this once").wait_for()
    page.get_by_role("button", name="I have it").click()
    expect(row).to_have_count(2)
    visit.check()
    row.first.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    page.get_by_text("Revoked.").wait_for()
    expect(page.get_by_text("revoked", exact=True)).to_have_count(1)
