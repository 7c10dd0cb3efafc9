"""DELETE by id and by filter, and expiry, which is exact on read."""

import httpx
import pytest

from tests.conftest import TurnedClock
from tests.support.memories import found, listed, path_of, problem, recall, remember

pytestmark = pytest.mark.anyio


async def test_a_deleted_memory_is_gone_with_its_history(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x")
    await api.patch(path, json={"content": "y"})
    gone = await api.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    for response in (
        await api.get(path),
        await api.get(f"{path}/history"),
        await api.patch(path, json={"content": "z"}),
        await api.delete(path),
    ):
        problem(response, 404, "not_found")
    assert await listed(api, status="any") == []
    assert await found(api, "y") == []


async def test_deleting_by_filter_needs_an_owner(api: httpx.AsyncClient) -> None:
    await remember(api, "x")
    for params in ({}, {"memory_type": "fact"}, {"tag": "t"}):
        problem(await api.delete("/v1/memories", params=params), 422)
    assert await listed(api) == ["x"]


@pytest.mark.parametrize(
    ("params", "gone"),
    [
        ({"user_id": "u"}, {"mine", "tagged", "pinned", "of the user"}),
        ({"agent_id": "a"}, {"mine", "tagged", "pinned", "of the agent", "of another"}),
        ({"agent_id": "a", "user_id": "u"}, {"mine", "tagged", "pinned"}),
        ({"user_id": "u", "tag": "t"}, {"tagged"}),
        ({"user_id": "u", "pinned": "true"}, {"pinned"}),
        ({"user_id": "u", "memory_type": "issue"}, {"pinned"}),
        ({"user_id": "nobody"}, set()),
    ],
)
async def test_deleting_by_filter_takes_what_matches_and_nothing_else(
    api: httpx.AsyncClient, params: dict[str, str], gone: set[str]
) -> None:
    await remember(api, "mine")
    await remember(api, "tagged", tags=["t", "s"])
    await remember(api, "pinned", pinned=True, memory_type="issue")
    await remember(api, "of the agent", user_id=None)
    await remember(api, "of the user", agent_id=None)
    await remember(api, "of another", user_id="u2")
    before = set(await listed(api))
    response = await api.delete("/v1/memories", params=params)
    assert response.json() == {"deleted": len(gone)}
    assert set(await listed(api)) == before - gone


# --- Expiry -----------------------------------------------------------------------------------------------------------


async def test_an_expired_memory_is_gone_to_the_millisecond_everywhere(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    path = await path_of(api, "x", expires_at="2026-07-01T00:00:00Z")
    await api.patch(path, json={"tags": ["t"]})
    just_before = "2026-06-30T23:59:59.999Z"
    assert len((await recall(api, "x", now=just_before))["items"]) == 1
    assert (await recall(api, "x", now="2026-07-01T00:00:00.000Z"))["items"] == []
    clock.move(days=30)
    for response in (
        await api.get(path),
        await api.get(f"{path}/history"),
        await api.patch(path, json={"expires_at": None}),
        await api.delete(path),
    ):
        problem(response, 404, "not_found")
    assert await listed(api, status="any") == []
    assert await found(api, "x") == []
    assert await found(api, "x", mode="text") == []


async def test_deleting_by_metadata_takes_what_has_all_entries(api: httpx.AsyncClient) -> None:
    await remember(api, "one", metadata={"batch": 7, "from": "crm"})
    await remember(api, "two", metadata={"batch": 7})
    await remember(api, "three", metadata={"batch": "7", "from": "crm"})
    await remember(api, "four", metadata={"batch": 7, "from": "crm"}, user_id="u2")
    problem(await api.delete("/v1/memories", params={"metadata": '{"batch": 7}'}), 422, "invalid", "/query/user_id")
    asked = {"user_id": "u", "metadata": '{"batch": 7, "from": "crm"}'}
    assert (await api.delete("/v1/memories", params=asked)).json() == {"deleted": 1}
    assert await listed(api) == ["four", "three", "two"]
