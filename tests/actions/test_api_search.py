"""Similar past actions."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.embedding.embedder import Embedder
from app.embedding.onnx import OnnxModel
from app.settings import JobSettings, Settings
from tests.conftest import Starter, TestParts, TurnedClock
from tests.support.actions import OWNER, act, listed, log, log_all, similar
from tests.support.memories import Faulty, Json, eventually, problem, shared_service

pytestmark = pytest.mark.anyio

EPISODES: list[Json] = [
    act("Refunded order 17 after the parcel was lost", outcome="success", entities=["order-17"], tags=["money"]),
    act("Refused a refund, the parcel had arrived", outcome="failure", action_type="refund", session_id="s"),
    act("Reset the password of the account", outcome="success", event_type="decision", task_id="t"),
    act("Explained the opening hours", agent_id="a", user_id=None, outcome="partial"),
    act("Sent the parcel again", agent_id="b", outcome="success", timestamp="2026-05-20T00:00:00Z"),
    act("Booked a table for two", user_id="other", outcome="success"),
    act("Wrote a haiku", agent_id="b", user_id="other"),
]
PARCELS = {"Refunded order 17 after the parcel was lost", "Refused a refund, the parcel had arrived"}


@pytest.fixture(scope="module")
async def shared(model: OnnxModel, shared_settings: Settings, anyio_backend: str) -> AsyncIterator[Any]:
    async with shared_service(shared_settings, model) as made:
        await log_all(made.client, *EPISODES)
        yield made.client


async def test_actions_are_found_by_meaning(shared: httpx.AsyncClient) -> None:
    assert (await similar(shared, "somebody cannot log in any more"))[0] == "Reset the password of the account"
    assert EPISODES[0]["content"] in (await similar(shared, "money back for a missing package"))[:2]
    answered = await shared.post("/v1/actions/search", json={**OWNER, "query": "parcel"})
    items = answered.json()["items"]
    assert [one["score"] for one in items] == sorted((one["score"] for one in items), reverse=True)
    assert items[0]["action"] == (await shared.get(f"/v1/actions/{items[0]['action']['action_id']}")).json()
    assert set(answered.json()["took_ms"]) == {"embed", "search", "total"}


@pytest.mark.parametrize(
    ("fields", "contents"),
    [
        ({"only_successful": True}, {0, 2}),
        ({"outcome": "failure"}, {1}),
        ({"outcome": "failure", "only_successful": True}, set()),
        ({"action_type": "refund"}, {1}),
        ({"event_type": "decision"}, {2}),
        ({"entity": "order-17"}, {0}),
        ({"entity": "Order-17"}, {0}),
        ({"entity": "ORDER 17"}, {0}),
        ({"entity": "the Parcel"}, {0, 1}),
        ({"entity": "parcel lost"}, {0}),
        ({"entity": "lost parcel"}, set()),
        ({"entity": "parc"}, set()),
        ({"entity": "MONEY"}, {0}),
        ({"entity": "account", "event_type": "decision"}, {2}),
        ({"entity": "opening hours", "user_id": None}, {3}),
        ({"entity": "→"}, set()),
        ({"tag": "money"}, {0}),
        ({"tag": "Money"}, {0}),
        ({"session_id": "s"}, {1}),
        ({"task_id": "t"}, {2}),
        ({"include_shared": False}, {0, 1, 2}),
        ({"user_id": None}, {3}),
        ({"agent_id": None}, {0, 1, 2, 4}),
        ({"agent_id": None, "until": "2026-06-01T00:00:00Z"}, {4}),
        ({"agent_id": None, "since": "2026-06-01T00:00:00Z"}, {0, 1, 2}),
        ({"agent_id": None, "since": "2026-05-20T00:00:00Z", "until": "2026-05-20T00:00:00.001Z"}, {4}),
        ({"agent_id": None, "until": "2026-05-20T00:00:00Z"}, set()),
        ({"user_id": "nobody", "include_shared": False}, set()),
    ],
)
async def test_a_filter_holds_inside_the_search(shared: httpx.AsyncClient, fields: Json, contents: set[int]) -> None:
    asked = {name: value for name, value in {**OWNER, **fields}.items() if value is not None}
    found = await shared.post("/v1/actions/search", json={"query": "parcel refund", "top_k": 100, **asked})
    got = {one["action"]["content"] for one in found.json()["items"]}
    assert got == {EPISODES[at]["content"] for at in contents}


async def test_an_entity_of_a_script_without_spaces_is_found(api: httpx.AsyncClient) -> None:
    await log_all(api, act("我昨天去了北京出差"), act("我昨天去了上海出差"))
    assert await similar(api, "出差", entity="北京") == ["我昨天去了北京出差"]


async def test_k_come_back_whenever_k_match(shared: httpx.AsyncClient) -> None:
    for k in (1, 2):
        assert len(await similar(shared, "parcel", only_successful=True, top_k=k)) == k
    assert set(await similar(shared, "parcel refund", top_k=2)) == PARCELS


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"query": "x"}, ""),
        ({"query": " ", "agent_id": "a"}, "/query"),
        ({"query": "x", "agent_id": "a", "top_k": 0}, "/top_k"),
        ({"query": "x", "agent_id": "a", "top_k": 101}, "/top_k"),
        ({"query": "x", "agent_id": "a", "since": "yesterday"}, "/since"),
        ({"query": "x", "agent_id": "a", "only_successful": "yes"}, "/only_successful"),
        ({"query": "x", "agent_id": "a", "mode": "text"}, "/mode"),
    ],
)
async def test_a_bad_search_is_refused(shared: httpx.AsyncClient, body: Json, pointer: str) -> None:
    problem(await shared.post("/v1/actions/search", json=body), 422, "invalid", pointer)


async def test_what_ended_alike_of_the_same_is_found_once(api: httpx.AsyncClient) -> None:
    ends = ("failure", "success", None, "success")
    await log_all(api, *(act("Sent the parcel", outcome=one) for one in ends), act("Slept"))
    await log_all(api, act("Sent the parcel", outcome="success", entities=["order-7"]))
    assert await listed(api, order="asc") == ["Sent the parcel"] * 4 + ["Slept", "Sent the parcel"]
    assert await similar(api, "parcel", top_k=5) == ["Sent the parcel"] * 4 + ["Slept"]
    assert await similar(api, "parcel", only_successful=True, entity="order-7") == ["Sent the parcel"]
    assert await similar(api, "parcel", only_successful=True) == ["Sent the parcel"] * 2


async def test_an_action_is_found_when_its_post_has_answered(api: httpx.AsyncClient) -> None:
    assert await similar(api, "parcel") == []
    for at in range(5):
        await log(api, f"Sent parcel number {at}")
        assert f"Sent parcel number {at}" in await similar(api, f"parcel number {at}")


async def test_feedback_leaves_an_action_findable(api: httpx.AsyncClient) -> None:
    made = await log(api, "Sent the parcel", outcome="success")
    await api.patch(f"/v1/actions/{made['action_id']}/feedback", json={"user_rating": 5})
    found = await api.post("/v1/actions/search", json={**OWNER, "query": "posted a package", "only_successful": True})
    assert [one["action"]["feedback"]["user_rating"] for one in found.json()["items"]] == [5]


async def test_the_time_before_an_action_does_not_show_it_less(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await log(api, "Sent the parcel")
    clock.move(days=20)
    assert await similar(api, "parcel") == ["Sent the parcel"]


async def test_actions_and_memories_do_not_find_each_other(api: httpx.AsyncClient) -> None:
    await log(api, "Sent the parcel")
    await api.post("/v1/memories", json={**OWNER, "content": "Likes parcels"})
    assert await similar(api, "parcel") == ["Sent the parcel"]
    found = (await api.post("/v1/memories/search", json={**OWNER, "query": "parcel"})).json()["items"]
    assert [one["memory"]["content"] for one in found] == ["Likes parcels"]


async def test_an_action_is_kept_when_the_embedder_fails_and_found_by_meaning_later(
    parts: TestParts, start: Starter, settings: Settings, clock: TurnedClock
) -> None:
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    async with start(settings) as service:
        await log(service.client, "Wrote a haiku")
        made[-1].failing = True
        await log_all(service.client, act("Refunded the lost parcel"), act("Reset a password"))
        assert len(await listed(service.client)) == 3
        assert await similar(service.client, "parcel") == ["Refunded the lost parcel"]  # by words alone
        made[-1].failing = False
        assert "Refunded the lost parcel" in await similar(service.client, "parcel")  # by its words

        async def embedded() -> bool:
            clock.move(seconds=5)
            return (await similar(service.client, "cannot log in"))[0] == "Reset a password"

        assert await eventually(embedded, 10)


async def test_what_waits_for_its_vector_does_so_over_a_restart(
    parts: TestParts, start: Starter, settings: Settings, clock: TurnedClock
) -> None:
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    idle = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(idle) as service:
        made[-1].failing = True
        await log(service.client, "Reset a password")
    async with start(settings) as service:
        await log(service.client, "Wrote a haiku")

        async def embedded() -> bool:
            clock.move(seconds=5)
            return (await similar(service.client, "cannot log in"))[0] == "Reset a password"

        assert await eventually(embedded, 10)


async def test_the_score_of_an_action_is_its_own_and_not_that_of_a_memory(api: httpx.AsyncClient) -> None:
    await log_all(api, *(act(content) for content in ("Sent the parcel", "Slept", "Paid the rent")))
    for content in ("Sent the parcel", "Slept", "Paid the rent"):
        made = await api.post("/v1/memories", json={**OWNER, "content": content})
        assert made.status_code == 201, made.text
    for query in ("Where is the parcel?", "What is the capital of France?"):
        found = [
            (await api.post(path, json={**OWNER, "query": query})).json()["items"][0]["score"]
            for path in ("/v1/actions/search", "/v1/memories/search")
        ]
        assert found[0] < 0.8 * found[1], query
