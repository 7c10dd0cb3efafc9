"""The summary of a session where there is no language model: what the caller wrote, or none."""

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service
from tests.support.learning import end, summaries, work
from tests.support.memories import problem
from tests.support.sessions import append, create, said

pytestmark = pytest.mark.anyio

MOVED = "My parcel 4711 never arrived in Boston."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Jobs run when a test says so."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def test_an_ended_session_is_not_summed_up_in_quotes_and_the_operation_says_so(
    service: Service, api: httpx.AsyncClient
) -> None:
    await append(api, [*said(MOVED), *said("I ask the courier.", role="assistant")])
    done = await end(service)
    assert (done["status"], done["error"]) == ("succeeded", None)
    parts = done["result"]["parts"]
    assert parts.keys() == {"memories", "profile", "facts", "experience", "summary"}
    assert {(part["status"], part["reason"]) for part in parts.values()} == {
        ("skipped", "no language model is configured")
    }
    assert (await api.get("/v1/sessions/s")).json()["summary"] is None
    assert await summaries(service, status="any") == []


async def test_a_long_session_queues_no_summary(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED, *(f"line {number}" for number in range(18)), "lamp " * 6_000, "lamp " * 6_000))
    assert await work(service, minutes=2) == 0
    assert (await api.get("/v1/sessions/s")).json()["summary"] is None


async def test_a_summary_that_a_caller_wrote_is_a_memory_and_stays(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED))
    await end(service)
    patched = await api.patch("/v1/sessions/s", json={"summary": "A parcel was lost."})
    assert patched.json()["version"] == 3, "one more than the end left"
    (memory,) = await summaries(service)
    assert memory["content"] == "A parcel was lost."
    assert (memory["trust"], memory["source"]["origin"]) == (1.0, "api")
    assert memory["source"]["prompt_version"] is None
    done = await end(service)
    assert done["result"]["parts"]["summary"]["status"] == "skipped"
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "A parcel was lost."
    problem(await api.post("/v1/sessions/s/summarize"), 409, "llm_not_configured")


async def test_a_summary_that_is_cleared_takes_its_memory_along(service: Service, api: httpx.AsyncClient) -> None:
    await create(api)
    await api.patch("/v1/sessions/s", json={"summary": "A parcel was lost."})
    assert len(await summaries(service)) == 1
    cleared = (await api.patch("/v1/sessions/s", json={"summary": None})).json()
    assert cleared["summary"] is None
    assert await summaries(service, status="any") == []
    await api.patch("/v1/sessions/s", json={"summary": " "})
    assert await summaries(service, status="any") == [], "a blank one is none to remember"


async def test_what_was_cleared_keeps_its_summary_and_what_comes_next_gets_its_own(
    service: Service, api: httpx.AsyncClient
) -> None:
    await append(api, said(MOVED))
    await api.patch("/v1/sessions/s", json={"summary": "A parcel was lost."})
    await api.delete("/v1/sessions/s/messages")
    assert (await api.get("/v1/sessions/s")).json()["summary"] is None
    await append(api, said("Which museums are in Boston?"))
    await api.patch("/v1/sessions/s", json={"summary": "The user asked for museums."})
    assert [one["content"] for one in await summaries(service)] == ["The user asked for museums.", "A parcel was lost."]


async def test_a_user_who_is_erased_leaves_no_summary(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED))
    await api.patch("/v1/sessions/s", json={"summary": "A parcel was lost."})
    (memory,) = await summaries(service)
    assert (await api.delete("/v1/users/u")).status_code == 200
    problem(await api.get(f"/v1/memories/{memory['memory_id']}"), 404, "not_found")


async def test_a_key_that_may_write_nothing_but_its_user_summarizes_its_session(
    service: Service, api: httpx.AsyncClient
) -> None:
    own = await service.key(agents=["a"], users=["u"])
    other = await service.key(agents=["a"], users=["v"])
    body = {"agent_id": "a", "user_id": "u", "messages": said(MOVED)}
    assert (await api.post("/v1/sessions/s/messages", json=body, headers=own)).status_code == 201
    assert (await api.patch("/v1/sessions/s", json={"summary": "mine"}, headers=own)).status_code == 200
    problem(await api.patch("/v1/sessions/s", json={"summary": "not mine"}, headers=other), 404, "not_found")
    page = await api.get("/v1/memories", params={"memory_type": "summary"}, headers=own)
    (memory,) = page.json()["items"]
    assert (memory["content"], memory["source"]["api_key_id"] is None) == ("mine", False)
