"""What was learned from a message is judged again once the message was edited or deleted."""

import asyncio

import httpx
import pytest

from app.learning.derivations import DERIVATIONS
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.learning import end, kept, learned, summaries, talk, work
from tests.support.memories import OWNER, Json, found, problem, remember
from tests.support.model import Model

pytestmark = pytest.mark.anyio

TURNS = ("I live in Rome.", "Nice!", "I prefer tea.", "Noted.", "My sister lives in Oslo.", "Good to know.")


def lives(content: str, seq: int, subject: str, place: str) -> Json:
    return learned(content, seq, subject=subject, predicate="lives_in", object=place, cardinality="one")


ROME = lives("The user lives in Rome.", 1, "user", "Rome")
SISTER = lives("The user has a sister in Oslo.", 5, "Sister", "Oslo")


async def told(service: Service, llm: Model) -> None:
    await talk(service, *TURNS)
    llm.says = {
        "memories": {"memories": [ROME, learned("The user prefers tea.", 3), SISTER]},
    }
    assert (await end(service))["status"] == "succeeded"


async def judged(service: Service) -> None:
    """The job that judges has run, and those that it queued for a quiet moment."""
    await work(service)
    await work(service, minutes=2)


async def contents(service: Service) -> set[str]:
    return {memory["content"] for memory in await kept(service)}


async def stated_of(api: httpx.AsyncClient) -> set[str]:
    page = await api.get("/v1/facts", params={"user_id": "u", "status": "any", "timeline": True})
    return {fact["object"] for fact in page.json()["items"]}


async def test_what_came_of_a_deleted_message_goes_and_the_rest_is_learned_again(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await told(service, llm)
    llm.says = {
        "memories": {"memories": [learned("The user prefers tea.", 3), SISTER]},
    }
    asked = len(llm.asked)
    assert (await api.delete("/v1/sessions/s/messages/1")).status_code == 204
    assert (await api.get("/v1/sessions/s")).json()["summary"] is None, "at once"
    assert await summaries(service) == []
    await judged(service)
    assert await contents(service) == {"The user prefers tea.", "The user has a sister in Oslo."}
    assert await stated_of(api) == {"Oslo"}
    assert "Rome" not in str(llm.asked[asked:])
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "The user prefers tea. The user has a sister in Oslo."
    assert ["Rome" in one["content"] for one in await summaries(service)] == [False]
    assert "Rome" not in str([*await found(api, "where does the user live?")])


async def test_what_came_of_an_edited_message_says_what_it_says_now(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await told(service, llm)
    llm.says = {
        "memories": {"memories": [lives("The user lives in Turin.", 1, "user", "Turin"), SISTER]},
    }
    edited = await api.patch("/v1/sessions/s/messages/1", json={"content": "I live in Turin."})
    assert edited.status_code == 200
    await judged(service)
    assert await contents(service) == {
        "The user prefers tea.",
        "The user has a sister in Oslo.",
        "The user lives in Turin.",
    }
    assert await stated_of(api) == {"Turin", "Oslo"}
    assert (await api.get("/v1/sessions/s")).json()[
        "summary"
    ] == "The user lives in Turin. The user has a sister in Oslo."


async def test_an_edit_of_metadata_alone_judges_nothing(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await told(service, llm)
    before, asked = await contents(service), len(llm.asked)
    await api.patch("/v1/sessions/s/messages/1", json={"metadata": {"seen": True}})
    await judged(service)
    assert (await contents(service), len(llm.asked)) == (before, asked)
    assert (await api.get("/v1/sessions/s")).json()["summary"] is not None


async def test_what_a_memory_of_it_had_superseded_comes_back(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    old = await remember(api, "The user lives in Paris.", trust=0.5)
    await talk(service, *TURNS)
    superseding = learned("The user lives in Rome.", 1, superseded_ids=[old["memory_id"]])
    llm.says = {"memories": {"memories": [superseding]}}
    await end(service)
    assert (await api.get(f"/v1/memories/{old['memory_id']}")).json()["status"] == "superseded"
    llm.says = {}
    await api.delete("/v1/sessions/s/messages/1")
    await judged(service)
    assert (await api.get(f"/v1/memories/{old['memory_id']}")).json()["status"] == "active"


async def test_what_callers_stored_themselves_stays(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await told(service, llm)
    own = await remember(api, "Rome it is.", source={"session_id": "s", "message_seq": 1})
    await api.patch("/v1/sessions/s", json={"summary": "Written by hand."})
    await api.delete("/v1/sessions/s/messages/1")
    await judged(service)
    assert (await api.get(f"/v1/memories/{own['memory_id']}")).status_code == 200
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "Written by hand."


async def test_another_session_and_another_user_keep_what_is_theirs(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await told(service, llm)
    llm.says = {"memories": {"memories": [learned("In Rome the user lives.", 1)]}}
    await talk(service, *TURNS, session="other")
    await end(service, "other")
    llm.says = {}
    await api.delete("/v1/sessions/s/messages/1")
    await judged(service)
    assert "In Rome the user lives." in await contents(service)


async def test_nothing_of_the_deleted_text_is_left_in_operations_and_derivations(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await told(service, llm)
    llm.says = {}
    await api.delete("/v1/sessions/s/messages/1")
    await judged(service)
    held = await service.resources.store.find(DERIVATIONS, None, order="asc", limit=1_000)
    assert "Rome" not in str(held)
    assert "Rome" not in (await api.get("/v1/operations", params={"limit": 100})).text


async def test_learning_under_way_does_not_bring_a_deleted_message_back(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, *TURNS)
    loop, statuses = asyncio.get_running_loop(), list[int]()

    def reply(_: Json) -> Json:
        if not statuses:  # the model's server runs in a thread of its own
            deletion = asyncio.run_coroutine_threadsafe(api.delete("/v1/sessions/s/messages/1"), loop)
            statuses.append(deletion.result(60).status_code)
        return {"memories": [learned("The user lives in Rome.", 1)]}

    llm.says = {"memories": reply}
    await api.post("/v1/sessions/s/end")
    for _ in range(3):
        await work(service, minutes=5)
    assert statuses == [204]
    assert "Rome" not in str(await kept(service))
    problem(await api.delete("/v1/sessions/s/messages/1"), 404)


# --- Without a model --------------------------------------------------------------------------------------------------


async def test_without_a_model_a_summary_that_may_quote_the_message_goes_and_none_is_written(
    start: Starter, settings: Settings
) -> None:
    without = settings.model_copy(update={"llm": Settings(_env_file=None).llm, "jobs": JobSettings(enabled=False)})
    async with start(without) as service:
        api = service.client
        await talk(service, *TURNS)
        await end(service)
        assert (await api.get("/v1/sessions/s")).json()["summary"] is None
        assert (await api.delete("/v1/sessions/s/messages/5")).status_code == 204
        await judged(service)
        assert (await api.get("/v1/sessions/s")).json()["summary"] is None
        assert await summaries(service) == []
        assert (await api.get("/v1/sessions", params=OWNER)).json()["items"][0]["message_count"] == len(TURNS) - 1
