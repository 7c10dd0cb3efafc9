"""The summary of a session where there is no language model: an extract, or what the caller wrote."""

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service
from tests.support.learning import end, summaries, work
from tests.support.memories import found, problem
from tests.support.sessions import append, create, said

pytestmark = pytest.mark.anyio

MOVED = "My parcel 4711 never arrived in Boston."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Jobs run when a test says so."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def test_an_ended_session_leaves_an_extract_that_says_so(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, [*said(MOVED), *said("I ask the courier.", role="assistant")])
    done = await end(service)
    assert (done["status"], done["error"]) == ("succeeded", None), (
        "nothing failed: what needs a model was not asked for"
    )
    parts = {name: part["status"] for name, part in done["result"]["parts"].items()}
    assert (parts.pop("summary"), parts.pop("interaction")) == ("done", "done")
    assert set(parts.values()) == {"skipped"}
    assert parts.keys() >= {"memories", "profile", "facts"}
    (memory,) = await summaries(service)
    session = (await api.get("/v1/sessions/s")).json()
    assert memory["content"] == session["summary"] == f"(extract) user: {MOVED} assistant: I ask the courier."
    assert (memory["importance"], memory["trust"]) == (0.5, 0.7)
    assert memory["event_at"] == session["last_message_at"]
    source = memory["source"]
    assert (source["origin"], source["session_id"], source["model"]) == ("consolidation", "s", None)
    assert source["prompt_version"] == "extract.1"
    assert memory["content"] in await found(api, "parcel", memory_types=["summary"])
    (met,) = (await api.get("/v1/users/u/interactions")).json()["items"]
    assert met["summary"] == MOVED, "an interaction tells what the user wanted"


async def test_an_extract_is_rolled_on_every_twenty_messages(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED, *(f"line {number}" for number in range(18))))
    assert await work(service, minutes=2) == 0
    await append(api, said("The courier left it at the bakery."))
    assert await work(service) == 0, "once it is quiet"
    assert await work(service, minutes=2) == 1
    (first,) = await summaries(service)
    assert "bakery" in first["content"]
    await append(api, said(*(f"word {number}" for number in range(19)), "The insurance pays 80 euros."))
    await work(service, minutes=2)
    (second,) = await summaries(service)
    assert second["memory_id"] == first["memory_id"]
    assert second["content"].startswith(f"(extract) user: {MOVED}")
    assert "insurance" in second["content"]
    done = await end(service)
    assert done["result"]["parts"]["summary"]["reason"] == "the summary covers all messages"


async def test_a_long_append_is_summarized_by_its_size(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED, "lamp " * 6_000, "lamp " * 6_000))
    assert await work(service, minutes=2) == 1
    (memory,) = await summaries(service)
    assert MOVED in memory["content"]
    assert len(memory["content"].split()) < 170


async def test_a_session_that_remembers_nothing_has_a_summary_of_its_own_only(
    service: Service, api: httpx.AsyncClient
) -> None:
    await append(api, said(MOVED, *(f"line {number}" for number in range(19))), memorize="none")
    await work(service, minutes=2)
    assert MOVED in (await api.get("/v1/sessions/s")).json()["summary"]
    assert await summaries(service, status="any") == []


async def test_a_summary_that_a_caller_wrote_is_a_memory_and_no_extract_replaces_it(
    service: Service, api: httpx.AsyncClient
) -> None:
    await append(api, said(MOVED))
    await end(service)
    (extract,) = await summaries(service)
    patched = await api.patch("/v1/sessions/s", json={"summary": "A parcel was lost."})
    assert patched.json()["version"] == 3, "one more than the end left"
    (memory,) = await summaries(service)
    assert (memory["memory_id"], memory["content"]) == (extract["memory_id"], "A parcel was lost.")
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
    await end(service)
    assert [one["content"] for one in await summaries(service)] == [
        "(extract) user: Which museums are in Boston?",
        "A parcel was lost.",
    ]


async def test_a_user_who_is_erased_leaves_no_summary(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, said(MOVED))
    await end(service)
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
