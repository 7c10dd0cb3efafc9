"""A store that is away is told as such: no read answers as if nothing was there, whichever of its looks failed."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.memories import OWNER, Json, problem, remember
from tests.support.sessions import append, said
from tests.support.stores import Watched
from tests.support.tasks import begin, note

pytestmark = pytest.mark.anyio

ASKED = {**OWNER, "query": "Where does Ada live?", "now": "2026-06-02T00:00:00Z"}
"""As of a moment, so that nothing is written of what was recalled."""
READS: list[tuple[str, Json | None]] = [
    ("/v1/memories", None),
    ("/v1/memories?user_id=u&memory_type=fact", None),
    ("/v1/memories/search", ASKED | {"record_access": False}),
    ("/v1/sessions", None),
    ("/v1/sessions/s", None),
    ("/v1/sessions/s/messages", None),
    ("/v1/sessions/s/messages?last=2", None),
    ("/v1/sessions/s/context", None),
    ("/v1/sessions/s/stats", None),
    ("/v1/tasks", None),
    ("/v1/tasks/t", None),
    ("/v1/tasks/t/working-memory", None),
    ("/v1/tasks/t/checkpoints", None),
    ("/v1/actions", None),
    ("/v1/actions/search", {**OWNER, "query": "deploy"}),
    ("/v1/actions/stats?agent_id=a", None),
    ("/v1/facts", None),
    ("/v1/facts/search", {**OWNER, "query": "Where does Ada live?"}),
    ("/v1/graph/entities?agent_id=a&user_id=u", None),
    ("/v1/procedures", None),
    ("/v1/procedures/search", {**OWNER, "situation": "a release is due"}),
    ("/v1/users", None),
    ("/v1/users/u/profile", None),
    ("/v1/agents", None),
    ("/v1/agents/a", None),
    ("/v1/operations", None),
    ("/v1/keys", None),
    ("/v1/audit", None),
]


@pytest.fixture
async def service(watched: list[Watched], start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


@pytest.fixture
async def lived(api: httpx.AsyncClient) -> str:
    """Something for each read to find; the path of a memory."""
    made = await remember(api, "Ada lives in Boston.")
    await append(api, said("Hello.", "I am Ada."))
    await begin(api)
    await note(api, "Ask Ada.")
    for path, body in (
        ("/v1/tasks/t/checkpoints", {}),
        ("/v1/actions", {**OWNER, "action_type": "deploy", "content": "Deployed the shop", "outcome": "success"}),
        ("/v1/facts", {**OWNER, "subject": "Ada", "predicate": "lives_in", "object": "Boston"}),
        ("/v1/procedures", {**OWNER, "name": "Release", "trigger": "A release is due", "steps": ["Deploy"]}),
        ("/v1/users/u/interactions", {"summary": "Said hello"}),
        ("/v1/agents", {"agent_id": "a", "name": "Ann"}),
    ):
        assert (await api.post(path, json=body)).is_success, path
    return f"/v1/memories/{made['memory_id']}"


async def ask(api: httpx.AsyncClient, path: str, body: Json | None) -> httpx.Response:
    return await api.request("GET" if body is None else "POST", path, json=body)


async def test_a_read_that_cannot_look_says_so(api: httpx.AsyncClient, lived: str, watched: list[Watched]) -> None:
    store = watched[0]
    for path, body in [*READS, (lived, None), (f"{lived}/history", None)]:
        await ask(api, path, body)  # what is kept from now on, is
        store.watch()
        assert (await ask(api, path, body)).status_code == 200, path
        looks = len(store.asked)
        assert looks > 1, path
        for number in range(1, looks + 1):
            store.watch(away={number})
            problem(await ask(api, path, body), 503, "store_unavailable")
        store.watch()
        assert (await ask(api, path, body)).status_code == 200, path


async def test_a_context_names_what_it_could_not_look_for(
    api: httpx.AsyncClient, lived: str, watched: list[Watched]
) -> None:
    store, body = watched[0], ASKED | {"session_id": "s", "task_id": "t"}
    await ask(api, "/v1/context", body)
    store.watch()
    whole = (await ask(api, "/v1/context", body)).json()
    assert whole["errors"] == []
    for number in range(1, len(store.asked) + 1):
        store.watch(away={number})
        answer = await ask(api, "/v1/context", body)
        if answer.status_code != 503:
            told = {one["code"] for part in ("errors", "warnings") for one in answer.json()[part]}
            assert told in ({"store_unavailable"}, {"values_unmarked"}), store.asked[number - 1]
    store.watch(away=range(2, 1_000))  # after the look for the key
    problem(await ask(api, "/v1/context", body), 503)
