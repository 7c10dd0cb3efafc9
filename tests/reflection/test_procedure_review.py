"""A procedure that fails becomes a finding; revised steps are tried beside the old ones, and adopted or dropped."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.reflection.procedure_review import founded
from app.settings import JobSettings, LLMSettings, Settings
from tests.conftest import Service, Starter
from tests.support.actions import log
from tests.support.findings import findings
from tests.support.learning import operation, undo, work
from tests.support.memories import OWNER, Json, problem
from tests.support.model import Model
from tests.support.procedures import PARCEL, got, learn, looked_up, path, report
from tests.support.scripted import Reply

pytestmark = pytest.mark.anyio
BETTER = ["Look up the tracking number", "Ask the carrier over version 2", "Refund the order"]
NOTE = "The carrier answers 410 since it moved to version 2"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Jobs run when a test says so."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


@pytest.fixture
async def learning(start: Starter, settings: Settings, llm: Model) -> AsyncIterator[Service]:
    """A service with a scripted model."""
    asked = LLMSettings(base_url=llm.server.url, model="scripted", timeout_seconds=5, context_tokens=8192)
    async with start(settings.model_copy(update={"llm": asked})) as made:
        yield made


async def fail(service: Service, procedure: Json, times: int = 2, **more: Any) -> list[str]:
    """Logs an action for each failure. Returns the ids of the actions."""
    ids = []
    for number in range(times):
        action = await log(service.client, f"Asked the carrier, attempt {number}", outcome="failure", **more)
        ids.append(action["action_id"])
        await report(service.client, procedure, False, action_id=ids[-1], note=NOTE)
    await work(service)
    return ids


async def reviews(service: Service) -> list[Json]:
    """The reviews, newest first."""
    page = await service.client.get("/v1/operations", params={"kind": "review_procedure"})
    items: list[Json] = page.json()["items"]
    return items


async def on_trial(service: Service, llm: Model, steps: list[str] | None = None) -> Json:
    """A procedure that failed and has revised steps on trial."""
    llm.says["RevisedSteps"] = {"revised_steps": steps or BETTER}
    made = await learn(service.client)
    await fail(service, made)
    return await got(service.client, made)


# --- Findings ---------------------------------------------------------------------------------------------------------


async def test_two_failures_in_a_row_are_a_finding_with_the_episodes(service: Service, api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await report(api, made, True, False, True)
    assert await work(service) == 0
    ids = await fail(service, made)
    (found,) = await findings(service)
    assert (found["kind"], found["status"]) == ("failing_procedure", "open")
    assert found["reason"] == "It worked 2 of 5 times and failed the last 2."
    assert [one["id"] for one in found["evidence"] if one["kind"] == "action"] == ids
    assert {one["id"] for one in found["evidence"]} == {made["procedure_id"], *ids}
    (review,) = await reviews(service)
    assert (review["status"], review["result"]) == ("succeeded", {"finding_id": found["finding_id"]})
    await report(api, made, False, True, False, False)
    await work(service)
    assert [one["finding_id"] for one in await findings(service)] == [found["finding_id"]]


async def test_what_works_too_seldom_is_a_finding(service: Service, api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await report(api, made, *[False, False, False, True] * 4)
    await work(service)
    assert [one["kind"] for one in await findings(service)] == ["failing_procedure"]
    other = await learn(api, name="Another")
    for _ in range(5):
        await report(api, other, False, True)
    await work(service)
    assert len(await findings(service)) == 1


async def test_a_dismissed_finding_comes_back_only_with_other_steps(service: Service, api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await fail(service, made)
    (found,) = await findings(service)
    assert (await api.post(f"/v1/findings/{found['finding_id']}/dismiss")).status_code == 200
    await report(api, made, True)
    await fail(service, made)
    assert await findings(service) == []
    await api.patch(path(made), json={"steps": ["Ask the carrier"]})
    await fail(service, made)
    (again,) = await findings(service)
    assert again["finding_id"] != found["finding_id"]


async def test_changed_steps_settle_the_finding(service: Service, api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await fail(service, made)
    (found,) = await findings(service)
    await api.patch(path(made), json={"steps": ["Ask the carrier"]})
    assert await findings(service) == []
    assert (await api.get(f"/v1/findings/{found['finding_id']}")).json()["status"] == "settled"


async def test_to_accept_archives_the_procedure_and_can_be_undone(service: Service, api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await fail(service, made)
    (found,) = await findings(service)
    accepted = await api.post(f"/v1/findings/{found['finding_id']}/accept")
    assert accepted.status_code == 200, accepted.text
    assert (await got(api, made))["status"] == "archived"
    assert (await undo(service, accepted.json()["operation_id"]))["status"] == "succeeded"
    assert (await got(api, made))["status"] == "active"


async def test_no_finding_shows_another_user_s_episodes(service: Service, api: httpx.AsyncClient) -> None:
    shared = await learn(api, user_id=None)
    theirs = await fail(service, shared, user_id="secret-user")
    mine = await learn(api)
    await fail(service, mine, user_id="secret-user")
    page = (await api.get("/v1/findings", params={"agent_id": "a"})).json()["items"]
    assert {one["user_id"] for one in page} == {"u", None}
    assert all(one["kind"] == "procedure" for found in page for one in found["evidence"])
    assert all(each not in str(page) for each in (*theirs, "secret-user"))


async def test_keys_reach_no_finding_of_others(service: Service, api: httpx.AsyncClient) -> None:
    full = await service.key()
    api.headers.update(full)
    await fail(service, await learn(api))
    (found,) = await findings(service)
    other, elsewhere = await service.key(users=["v"]), await service.key(tenant="other")
    reader = await service.key(verbs="read")
    for headers in (other, elsewhere):
        problem(await api.get(f"/v1/findings/{found['finding_id']}", headers=headers), 404, "not_found")
    problem(await api.post(f"/v1/findings/{found['finding_id']}/accept", headers=reader), 403, "forbidden")


async def test_erasing_the_user_erases_finding_and_trial(learning: Service, llm: Model) -> None:
    made = await on_trial(learning, llm)
    assert made["trial"] is not None
    assert (await learning.client.delete("/v1/users/u")).status_code == 200
    assert await findings(learning, status="any") == []
    assert (await learning.client.get(path(made))).status_code == 404


async def test_erasing_a_user_takes_the_notes_from_what_others_use(service: Service, api: httpx.AsyncClient) -> None:
    shared = await learn(api, user_id=None)
    action = await log(api, "Asked the carrier", outcome="failure", user_id="secret-user")
    await report(api, shared, False, action_id=action["action_id"], note="The canary lives in Turin")
    await report(api, shared, False, note="The carrier is slow")
    await api.patch(path(shared), json={"steps": ["Ask the carrier"]})
    assert (await api.delete("/v1/users/secret-user")).status_code == 200
    after, history = await got(api, shared), (await api.get(f"{path(shared)}/history")).json()["items"]
    assert (after["failure_count"], after["notes"]) == (2, ["The carrier is slow"])
    assert [one["note"] for one in after["recent_outcomes"]] == [None, "The carrier is slow"]
    for text in ("canary", action["action_id"]):
        assert text not in str([after, history])


# --- Trials -----------------------------------------------------------------------------------------------------------


async def test_better_steps_are_tried_in_turn_and_adopted(learning: Service, llm: Model) -> None:
    api, made = learning.client, await on_trial(learning, llm)
    (asked,) = llm.shown("RevisedSteps")
    assert asked["procedure"]["steps"] == PARCEL["steps"]
    assert [one["episode"]["content"] for one in asked["outcomes"]] == [
        "Asked the carrier, attempt 1",
        "Asked the carrier, attempt 0",
    ]
    assert (made["steps"], made["trial"]["steps"]) == (PARCEL["steps"], BETTER)
    assert made["trial"]["prompt_version"] == "procedure_revision.1"
    shown = []
    for _ in range(10):
        (item,) = await looked_up(api, "parcel lost")
        shown.append(item["variant"])
        assert item["procedure"]["steps"] == (BETTER if shown[-1] == "revised" else PARCEL["steps"])
        await report(api, made, shown[-1] == "revised")
        await work(learning)
    assert shown == ["revised", "current"] * 5
    after = await got(api, made)
    assert (after["steps"], after["trial"]) == (BETTER, None)
    assert (after["success_count"], after["failure_count"]) == (5, 7)
    history = (await api.get(f"{path(made)}/history")).json()["items"]
    assert PARCEL["steps"] in [one["record"]["steps"] for one in history]
    assert await findings(learning) == [], "other steps settle it"


async def test_an_adoption_is_undone_and_not_made_again(learning: Service, llm: Model) -> None:
    api, made = learning.client, await on_trial(learning, llm)
    for success in [True, False] * 5:
        await report(api, made, success)
    await work(learning)
    adopted = (await reviews(learning))[0]
    assert (adopted["result"]["verdict"], adopted["can_undo"]) == ("adopt", True)
    await report(api, made, True)
    assert (await undo(learning, adopted["operation_id"]))["status"] == "succeeded"
    after = await got(api, made)
    assert (after["steps"], after["trial"], after["success_count"]) == (PARCEL["steps"], None, 6)
    asked = len(llm.asked)
    await fail(learning, made)
    assert len(llm.asked) == asked + 1
    assert (await got(api, made))["trial"] is None, "what was undone is not proposed again"


async def test_worse_steps_are_dropped(learning: Service, llm: Model) -> None:
    api, made = learning.client, await on_trial(learning, llm)
    for success in [False, True] * 5:
        await report(api, made, success)
    await work(learning)
    after = await got(api, made)
    assert (after["steps"], after["trial"]) == (PARCEL["steps"], None)
    assert (await reviews(learning))[0]["result"]["verdict"] == "drop"


async def test_an_outcome_may_name_its_steps(learning: Service, llm: Model) -> None:
    api, made = learning.client, await on_trial(learning, llm)
    await report(api, made, True, variant="current")
    last = await report(api, made, False, True, variant="revised")
    trial = last["procedure"]["trial"]
    assert trial["current"] == {"success_count": 1, "failure_count": 0}
    assert trial["revised"] == {"success_count": 1, "failure_count": 1}
    problem(
        await api.post(f"{path(made)}/outcomes", json={"success": True, "variant": "x"}), 422, "invalid", "/variant"
    )


async def test_a_caller_s_steps_end_the_trial(learning: Service, llm: Model) -> None:
    api, made = learning.client, await on_trial(learning, llm)
    await api.patch(path(made), json={"tags": ["money"]})
    assert (await got(api, made))["trial"] is not None
    await api.patch(path(made), json={"steps": ["Ask the carrier"]})
    assert (await got(api, made))["trial"] is None


@pytest.mark.parametrize("steps", [["Call +1 555 0100"], ["Ask FedEx"], PARCEL["steps"], ["the"], []])
async def test_steps_that_nothing_shows_are_not_tried(learning: Service, llm: Model, steps: list[str]) -> None:
    llm.says["RevisedSteps"] = {"revised_steps": steps}
    made = await learn(learning.client)
    await fail(learning, made)
    assert (await got(learning.client, made))["trial"] is None
    (review,) = await reviews(learning)
    assert "nothing that the episodes show" in review["result"]["trial"]["skipped"]
    assert len(await findings(learning)) == 1


async def test_a_model_that_is_away_leaves_the_finding_and_is_asked_again(learning: Service, llm: Model) -> None:
    llm.says["RevisedSteps"] = {"revised_steps": BETTER}
    llm.server.then(*[Reply(401)] * 2)
    made = await learn(learning.client)
    await fail(learning, made)
    assert len(await findings(learning)) == 1
    (review,) = await reviews(learning)
    assert (review["status"], review["error"]) == ("queued", "The model's server answered 401.")
    for _ in range(3):
        await work(learning, minutes=60)
    assert len(await findings(learning)) == 1
    assert (await reviews(learning))[0]["status"] == "succeeded"
    assert (await got(learning.client, made))["trial"]["steps"] == BETTER


async def test_long_episodes_are_cut_to_the_model_s_context(learning: Service, llm: Model) -> None:
    made = await learn(learning.client)
    for number in range(20):
        action = await log(learning.client, f"Attempt {number}: " + "the carrier did not answer " * 80)
        await report(learning.client, made, number % 2 == 0, action_id=action["action_id"])
    await fail(learning, made)
    (asked,) = llm.shown("RevisedSteps")
    shown = [one["episode"]["content"].split(":")[0] for one in asked["outcomes"]]
    assert shown[:3] == ["Asked the carrier, attempt 1", "Asked the carrier, attempt 0", "Attempt 19"]
    assert 3 < len(shown) < 20


async def test_a_context_shows_the_steps_that_are_served(learning: Service, llm: Model) -> None:
    await on_trial(learning, llm)
    body = {**OWNER, "query": "the parcel never arrived"}
    text = (await learning.client.post("/v1/context", json=body)).json()["text"]
    assert BETTER[1] in text
    assert "trial: these steps are new, not tried yet" in text


async def test_the_beginning_of_a_trial_can_be_undone(learning: Service, llm: Model) -> None:
    made = await on_trial(learning, llm)
    (review,) = await reviews(learning)
    assert (await undo(learning, review["operation_id"]))["status"] == "succeeded"
    assert (await got(learning.client, made))["trial"] is None
    assert (await operation(learning, review["operation_id"]))["status"] == "undone"


words = st.lists(st.text(st.sampled_from("bcdfgklm"), min_size=2, max_size=8), min_size=1, max_size=6)


@given(words)
def test_no_word_comes_from_nowhere(told: list[str]) -> None:
    data = {"procedure": {"steps": [" ".join([*told, "parcel"])]}, "outcomes": []}
    assert founded([" ".join(["parcel", *told])], data)
    assert not founded([" ".join([*told, "parcel", "quince"])], data)
    assert not founded([" ".join([*told, "parcel", "42"])], data)
    assert not founded([" ".join(told), "with"], data), "a step of joining words says nothing"
