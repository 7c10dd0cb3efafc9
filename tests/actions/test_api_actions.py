"""What agents did: logging, listing, feedback."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.actions import OWNER, act, listed, log, log_all
from tests.support.memories import STRANGERS, Json, problem

pytestmark = pytest.mark.anyio

HOSTILE: Json = {"a.b": None, "$set": {"$inc": [None]}, "": "x"}
CALL: Json = {"tool": "pay", "input": HOSTILE, "output": [None, {"x": None}], "duration_ms": 1.5}
BLANK: Json = {"user_rating": None, "was_helpful": None, "correction": None}


async def test_a_logged_action_has_all_its_fields(api: httpx.AsyncClient) -> None:
    body: Json = {
        **OWNER,
        "session_id": "s",
        "task_id": "t",
        "event_type": "task_complete",
        "action_type": "refund",
        "actor": "user",
        "action": CALL,
        "content": "refunded",
        "context": HOSTILE,
        "outcome": "partial",
        "entities": ["order-17"],
        "tags": ["x"],
        "feedback": {"user_rating": 5, "was_helpful": True, "correction": "c"},
        "metadata": HOSTILE,
    }
    made = await api.post("/v1/actions", json={**body, "timestamp": "2026-05-20T02:00:00+02:00"})
    assert made.status_code == 201
    action = made.json()
    assert {name: action[name] for name in body} == body
    assert (action["timestamp"], action["version"]) == ("2026-05-20T00:00:00.000Z", 1)
    assert action["action_id"].startswith("act_")
    assert {"tenant_id", "content_hash"}.isdisjoint(action)
    got = await api.get(f"/v1/actions/{action['action_id']}")
    assert got.json() == action
    assert got.headers["etag"] == made.headers["etag"] == '"1"'


async def test_what_is_not_given_is_its_default(api: httpx.AsyncClient) -> None:
    action = (await api.post("/v1/actions", json={"agent_id": "a", "action_type": "look"})).json()
    assert (action["event_type"], action["actor"], action["outcome"]) == ("tool_call", "agent", None)
    assert action["timestamp"] == action["created_at"]
    assert action["action"] == dict.fromkeys(("tool", "input", "output", "duration_ms"))
    assert (action["feedback"], action["entities"], action["user_id"]) == (BLANK, [], None)


async def test_an_action_keeps_any_other_key_as_data(api: httpx.AsyncClient) -> None:
    """Seed 001 logs `{"query", "rag_results_count"}`."""
    seed: Json = {"query": "refund order 17", "rag_results_count": 3, **HOSTILE, "": {"deep": [None, 1.5]}}
    made = await log(api, None, action_type="rag", action={**CALL, **seed})
    assert made["action"] == {**CALL, **seed}
    path = f"/v1/actions/{made['action_id']}"
    assert (await api.get(path)).json()["action"] == {**CALL, **seed}
    assert (await api.patch(f"{path}/feedback", json={"user_rating": 5})).json()["action"] == {**CALL, **seed}
    alone = await log(api, None, action_type="rag", action={"query": "lost parcel", "rag_results_count": 0})
    assert {name: alone["action"][name] for name in ("query", "rag_results_count", "tool")} == {
        "query": "lost parcel",
        "rag_results_count": 0,
        "tool": None,
    }
    assert "lost parcel" in alone["content"]
    many = {f"k{at}": at for at in range(300)}
    problem(await api.post("/v1/actions", json=act("x", action=many)), 422, "invalid")


async def test_content_is_made_of_the_action_where_there_is_none(api: httpx.AsyncClient) -> None:
    call = {"tool": "payments.refund", "input": {"order": 17}, "output": "done\nwell"}
    line = (await log(api, None, action_type="refund", action=call))["content"]
    for part in ("refund", "payments.refund", "order", "17", "done"):
        assert part in line
    assert "\n" not in line
    assert (await log(api, None, action_type="look"))["content"] == "look"
    assert len((await log(api, None, action={"output": "long " * 1000}))["content"]) <= 200


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"agent_id": None}, "/agent_id"),
        ({"action_type": ""}, "/action_type"),
        ({"action_type": " "}, "/action_type"),
        ({"outcome": "ok"}, "/outcome"),
        ({"actor": "robot"}, "/actor"),
        ({"content": "  "}, "/content"),
        ({"action": {"duration_ms": -1}}, "/action/duration_ms"),
        ({"action": {"tool": 5}}, "/action/tool"),
        ({"feedback": {"user_rating": 6}}, "/feedback/user_rating"),
        ({"timestamp": "2026-01-01T00:00:00"}, "/timestamp"),
        ({"entities": ["x"] * 65}, "/entities"),
        ({"action_id": "act_1"}, "/action_id"),
    ],
)
async def test_bad_fields_are_named(api: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    bad = act("x") | fields
    problem(await api.post("/v1/actions", json=bad), 422, "invalid", pointer)
    both = {"items": [act("good"), bad]}
    problem(await api.post("/v1/actions/batch", json=both), 422, "invalid", f"/items/1{pointer}")
    assert await listed(api) == []


async def test_a_batch_is_logged_in_its_order_or_not_at_all(service: Service) -> None:
    api = service.client
    made = await log_all(api, *(act(f"n{at}") for at in range(4)))
    assert [one["content"] for one in made] == ["n0", "n1", "n2", "n3"]
    for items in ([], [act("x")] * 501):
        problem(await api.post("/v1/actions/batch", json={"items": items}), 422, "invalid", "/items")
    bound = await service.key(users=["u"])
    mixed = {"items": [act("mine"), act("theirs", user_id="v")]}
    problem(await api.post("/v1/actions/batch", json=mixed, headers=bound), 403, "forbidden")
    assert (await api.get("/v1/actions/stats", params={"agent_id": "a"}, headers=bound)).json()["total_actions"] == 4


async def test_actions_are_listed_by_each_filter(api: httpx.AsyncClient) -> None:
    await log_all(
        api,
        act("one", session_id="s", entities=["order-17", "ada"], tags=["x"]),
        act("two", agent_id="a2", task_id="t", event_type="error", action_type="look", outcome="failure"),
        act("three", user_id=None, outcome="success", tags=["x", "y"], entities=["order-1"]),
    )
    for params, contents in (
        ({}, {"one", "two", "three"}),
        ({"agent_id": "a"}, {"one", "three"}),
        ({"user_id": "u"}, {"one", "two"}),
        ({"agent_id": "a", "user_id": "u"}, {"one"}),
        ({"session_id": "s"}, {"one"}),
        ({"task_id": "t"}, {"two"}),
        ({"event_type": "error"}, {"two"}),
        ({"action_type": "work"}, {"one", "three"}),
        ({"outcome": "success"}, {"three"}),
        ({"entity": "order-17"}, {"one"}),
        ({"entity": "ORDER-17"}, {"one"}),
        ({"entity": " Ａda "}, {"one"}),
        ({"entity": "order"}, set()),
        ({"tag": "x"}, {"one", "three"}),
        ({"tag": "X"}, {"one", "three"}),
        ({"tag": "x", "outcome": "failure"}, set()),
    ):
        assert set(await listed(api, **params)) == contents, params
    problem(await api.get("/v1/actions", params={"outcome": "ok"}), 422, "invalid")


async def test_a_list_goes_by_the_time_it_happened_page_by_page(api: httpx.AsyncClient) -> None:
    hours = {"four": 4, "one": 1, "three": 3, "two": 2, "also two": 2}
    await log_all(api, *(act(name, timestamp=f"2026-05-20T0{hour}:00:00Z") for name, hour in hours.items()))
    assert await listed(api, order="asc") == ["one", "two", "also two", "three", "four"]
    seen: list[str] = []
    params: Json = {"limit": 2, "user_id": "u"}
    while True:
        page = (await api.get("/v1/actions", params=params)).json()
        seen += [one["content"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == ["four", "three", "also two", "two", "one"]
    problem(await api.get("/v1/actions", params={**params, "user_id": "v"}), 400, "invalid_cursor")
    span = {"since": "2026-05-20T02:00:00Z", "until": "2026-05-20T06:00:00+02:00"}
    assert await listed(api, **span) == ["three", "also two", "two"]
    problem(await api.get("/v1/actions", params={"since": "2026-05-20T02:00:00"}), 422, "invalid")


async def test_a_list_by_time_is_whole_while_old_and_equal_times_arrive(api: httpx.AsyncClient) -> None:
    """Entries are logged late and many at one moment: a cursor neither skips nor repeats."""
    moment = "2026-05-20T02:00:00Z"
    await log_all(api, *(act(f"at once {at}", timestamp=moment) for at in range(7)))
    await log_all(api, act("new", timestamp="2026-05-30T00:00:00Z"), act("old", timestamp="2020-01-01T00:00:00Z"))
    for order, late in (("desc", "2019-01-01T00:00:00Z"), ("asc", "2026-05-31T00:00:00Z")):
        seen: list[str] = []
        params: Json = {"limit": 2, "order": order, "since": "2019-06-01T00:00:00Z", "until": "2026-05-31T00:00:00Z"}
        while True:
            page = (await api.get("/v1/actions", params=params)).json()
            seen += [one["content"] for one in page["items"]]
            await log(api, "outside", timestamp=late)
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
        wanted = ["old", *(f"at once {at}" for at in range(7)), "new"]
        assert seen == (wanted if order == "asc" else wanted[::-1])


async def test_feedback_is_merged_and_null_clears(api: httpx.AsyncClient) -> None:
    path = f"/v1/actions/{(await log(api, 'x'))['action_id']}"

    async def give(**feedback: Any) -> Json:
        answered = await api.patch(f"{path}/feedback", json=feedback)
        assert answered.status_code == 200, answered.text
        assert (await api.get(path)).json() == answered.json()
        body: Json = answered.json()
        return body

    assert (await give(user_rating=4))["feedback"] == {**BLANK, "user_rating": 4}
    assert (await give(was_helpful=False, correction="softer"))["feedback"] == {
        "user_rating": 4,
        "was_helpful": False,
        "correction": "softer",
    }
    cleared = await give(correction=None)
    assert (cleared["feedback"], cleared["version"]) == ({**BLANK, "user_rating": 4, "was_helpful": False}, 4)
    assert (await give())["version"] == 4
    for bad in ({"user_rating": 0}, {"user_rating": "5"}, {"user_rating": True}, {"was_helpful": 1}, {"x": 1}):
        problem(await api.patch(f"{path}/feedback", json=bad), 422, "invalid", f"/{next(iter(bad))}")
    stale = await api.patch(f"{path}/feedback", json={"user_rating": 1}, headers={"If-Match": '"1"'})
    problem(stale, 412, "precondition_failed")
    problem(await api.patch("/v1/actions/none/feedback", json={"user_rating": 1}), 404, "not_found")


@pytest.mark.parametrize("binding", STRANGERS)
async def test_what_is_not_yours_does_not_exist(service: Service, binding: str) -> None:
    api, owner = service.client, await service.key()
    stranger = await service.key(**STRANGERS[binding])
    made = await api.post("/v1/actions", json=act("a secret refund", outcome="success"), headers=owner)
    path = f"/v1/actions/{made.json()['action_id']}"
    problem(await api.get(path, headers=stranger), 404, "not_found")
    problem(await api.patch(f"{path}/feedback", json={"user_rating": 1}, headers=stranger), 404, "not_found")
    assert (await api.get("/v1/actions", headers=stranger)).json()["items"] == []
    for body in ({"agent_id": "a"}, {"user_id": "u"}, OWNER):
        found = await api.post("/v1/actions/search", json={"query": "secret refund", **body}, headers=stranger)
        assert found.json()["items"] == []
    figures = (await api.get("/v1/actions/stats", params={"agent_id": "a"}, headers=stranger)).json()
    assert (figures["total_actions"], figures["counts"]) == (0, {})
    assert (await api.get(path, headers=owner)).json() == made.json()


async def test_a_bound_key_logs_inside_its_bindings_only(service: Service) -> None:
    api, of_user, of_agent = service.client, await service.key(users=["u"]), await service.key(agents=["a"])
    assert (await api.post("/v1/actions", json=act("x"), headers=of_user)).status_code == 201
    for fields in ({"user_id": None}, {"user_id": "v"}):
        problem(await api.post("/v1/actions", json=act("x", **fields), headers=of_user), 403, "forbidden")
    problem(await api.post("/v1/actions", json=act("x", agent_id="b"), headers=of_agent), 403, "forbidden")
    shared = (await api.post("/v1/actions", json=act("for all users", user_id=None), headers=of_agent)).json()
    path = f"/v1/actions/{shared['action_id']}"
    assert (await api.get(path, headers=of_user)).status_code == 200
    problem(await api.patch(f"{path}/feedback", json={"user_rating": 1}, headers=of_user), 403, "forbidden")
