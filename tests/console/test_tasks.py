"""The page of tasks: the plan, working memory, checkpoints and restore."""

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit
from tests.support.server import Server

pytestmark = pytest.mark.before_store


def test_tasks_are_listed_with_their_progress(visit: Visit) -> None:
    page = visit.open("tasks", "Build Jonas's touring wheels")
    bar = page.locator("li", has_text="touring wheels").get_by_role("progressbar")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("2", "5")
    visit.check()
    page.get_by_role("combobox", name="Status").select_option("pending")
    expect(page.locator("main .list > li")).to_have_count(1)
    expect(page.get_by_text("First check of Mira's Halcyon E3")).to_be_visible()
    page.get_by_role("combobox", name="Status").select_option("failed")
    page.get_by_text("No task. An agent begins one like this:").wait_for()


def test_a_task_opens_beside_the_list_and_is_edited_with_undo(visit: Visit, server: Server) -> None:
    made = server.client.post("/v1/tasks", json={"agent_id": "workshop", "goal": "Sweep the floor"}).json()
    page = visit.open("tasks?status=pending", "Sweep the floor")
    page.get_by_role("link", name="Sweep the floor").click()
    detail = page.get_by_role("region", name="Task", exact=True)
    expect(page.get_by_role("link", name="Sweep the floor")).to_have_attribute("aria-current", "true")
    detail.get_by_role("button", name="Edit").click()
    detail.get_by_label("Goal").fill("Sweep the yard")
    detail.get_by_label("Open questions").fill("Where is the broom?")
    visit.check()
    detail.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    expect(detail.get_by_role("heading", name="Sweep the yard")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.").wait_for()
    task = server.client.get(f"/v1/tasks/{made['task_id']}").json()
    assert (task["goal"], task["open_questions"]) == ("Sweep the floor", [])
    detail.get_by_role("link", name="Close").click()
    expect(detail).to_have_count(0)
    page.get_by_role("button", name="Remove the filter Status").click()
    page.get_by_text("Build Jonas's touring wheels").wait_for()


def test_a_plan_moves_on_and_a_checkpoint_brings_it_back(visit: Visit, server: Server) -> None:
    path = "/v1/tasks/lisbon-wheels"
    page = visit.open("tasks/lisbon-wheels", "goal [in_progress]: Build Jonas's touring wheels")
    task = page.get_by_role("region", name="Task", exact=True)  # the list beside it counts the steps, too
    working = server.client.get(f"{path}/working-memory").json()
    seen = page.locator("section", has=page.get_by_role("heading", name="Working memory")).locator("pre").first
    expect(seen).to_have_text(working["text"])
    page.get_by_label("Status of step 3").select_option("completed")
    task.get_by_text("3 of 5 steps", exact=True).wait_for()
    page.get_by_role("button", name="Keep a checkpoint").click()
    page.get_by_text("Checkpoint 3 is kept.").wait_for()
    page.get_by_role("button", name="Restore checkpoint 1").click()
    dialog = page.get_by_role("dialog")
    visit.check()
    dialog.get_by_role("button", name="Restore", exact=True).click()
    task.get_by_text("1 of 5 steps", exact=True).wait_for()
    assert [step["status"] for step in server.client.get(path).json()["plan"]][:2] == ["completed", "pending"]
    page.get_by_role("button", name="Restore checkpoint 3").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore", exact=True).click()
    task.get_by_text("3 of 5 steps", exact=True).wait_for()
