"""Summaries that a language model writes: one memory for each session, changed in place."""

import asyncio

import httpx
import pytest

from app.learning.conversation_extractors import Conversation, summary_plan
from app.learning.dependencies import Tools
from app.learning.learning_run import Skipped
from app.sessions.repository import SummaryText
from app.sessions.schemas import SESSIONS
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.learning import end, kept, learned, operation, summaries, talk, undo, work
from tests.support.memories import OWNER, Json, found, history
from tests.support.model import Model

pytestmark = pytest.mark.anyio

FILMS = ("Recommend me a film.", "How about a romance?", "I prefer action films.", "Then: Action Blockbuster!")


def says(llm: Model, *texts: str) -> None:
    llm.says["memories"] = {"memories": [learned(text) for text in texts]}


async def summarized(service: Service, session: str = "s") -> Json:
    """The operation of a summary by hand, once it is over."""
    answer = await service.client.post(f"/v1/sessions/{session}/summarize")
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"])


async def test_a_summary_is_a_memory_that_searches_find(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await talk(service, *FILMS)
    says(llm, "The user chose an action film.")
    await end(service)
    (memory,) = await summaries(service)
    session = (await api.get("/v1/sessions/s")).json()
    assert memory["content"] == session["summary"] == "The user chose an action film."
    assert (memory["importance"], memory["trust"], memory["status"]) == (0.5, 0.7, "active"), "an assistant spoke, too"
    assert memory["event_at"] == session["last_message_at"]
    source = memory["source"]
    assert (source["origin"], source["session_id"], source["model"]) == ("extraction", "s", "scripted")
    assert source["prompt_version"].startswith("statements.")
    assert "The user chose an action film." in await found(api, "Which kind of film was chosen?")
    assert not {"summary_id", "summary_seq"} & set(session)


async def test_a_session_has_one_summary_which_is_changed_in_place(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, *(f"line {number}" for number in range(20)))
    says(llm, "They counted to line 18.")
    await work(service, minutes=2)
    (first,) = await summaries(service)
    await api.patch(f"/v1/memories/{first['memory_id']}", json={"tags": ["mine"], "importance": 0.8})
    service.clock.move(minutes=5)
    await talk(service, "And what about penguins?")
    says(llm, "The user asked about penguins")
    await end(service)
    (second,) = await summaries(service)
    assert second["memory_id"] == first["memory_id"]
    assert second["content"] == "They counted to line 18. The user asked about penguins."
    assert (second["tags"], second["importance"]) == (["mine"], 0.8), "what a caller set stays"
    assert second["event_at"] > first["event_at"]
    texts = [version["record"]["content"] for version in await history(api, first["memory_id"])]
    assert texts == ["They counted to line 18."] * 2
    assert second["content"] in await found(api, "penguins", memory_types=["summary"])
    says(llm, "They counted to line 18.", "The user asked about penguins.")
    done = await summarized(service)
    assert done["result"]["summary"] == second["content"]
    assert len(await summaries(service)) == 1


async def test_what_changed_nothing_has_no_summary_and_leaves_the_one_before(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, "Tell me a joke.", "No.")
    assert (await end(service))["result"]["parts"]["summary"] == {"status": "skipped", "reason": "nothing changed"}
    says(llm, "The user lives in Oslo.", "The user likes tea.")

    async def goes_on(text: str) -> Json:
        await api.post("/v1/sessions/s/reopen")
        await talk(service, text)
        return await end(service)

    await goes_on("I live in Oslo and like tea.")
    assert (await goes_on("I told you that I live in Oslo."))["result"]["parts"]["summary"]["status"] == "skipped"
    (oslo,) = [one for one in await kept(service) if "Oslo" in one["content"]]
    moved = learned("The user lives in Bergen.", superseded_ids=[oslo["memory_id"]])
    llm.says["memories"] = {"memories": [moved]}
    await goes_on("I moved to Bergen.")
    summary = "The user likes tea. The user lives in Bergen."
    assert (await api.get("/v1/sessions/s")).json()["summary"] == summary, "what was replaced is gone"


async def test_a_summary_has_what_the_session_told_although_a_job_that_stopped_has_stored_its_memories(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    source = {"session_id": "s"}
    body = {**OWNER, "content": "The user chose an action film.", "source": source}
    assert (await api.post("/v1/memories", json=body)).status_code == 201
    await talk(service, *FILMS)
    says(llm, "The user chose an action film.")
    await end(service)
    (memory,) = await summaries(service)
    assert memory["content"] == "The user chose an action film."


async def test_what_was_replaced_since_is_marked_in_the_summary_of_its_session(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    says(llm, "The user drives a Fiat.", "The user rows.", "The user plays the harp.")
    await talk(service, "I drive a Fiat, I row and I play the harp.")
    await end(service)
    known = {one["content"]: one["memory_id"] for one in await kept(service)}
    saab = learned("The user drives a Saab.", superseded_ids=[known["The user drives a Fiat."]])
    oboe = learned("The user plays the oboe.", superseded_ids=[known["The user plays the harp."]])
    llm.says["memories"] = {"memories": [saab, oboe]}
    service.clock.move(days=1)
    await talk(service, "I drive a Saab now, and play the oboe.", session="later")
    done = await end(service, "later")

    async def told() -> str:
        body = {"agent_id": "a", "user_id": "u", "query": "What do I do?", "session_id": "new"}
        return str((await api.post("/v1/context", json=body)).json()["text"])

    (line,) = [line for line in (await told()).splitlines() if "The user rows." in line and "session of" in line]
    fiat, _, harp = line.partition("The user rows.")
    assert "The user drives a Fiat (until" in fiat or "The user drives a Fiat. (until" in fiat, line
    assert "The user drives a Saab." in fiat
    assert "(until" in harp
    assert "The user plays the oboe." in harp
    assert (await undo(service, done["operation_id"]))["result"]["not_restored"] == 0
    assert "(until" not in await told()


async def test_summaries_written_at_the_same_time_leave_one_memory(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    says(llm, "The user chose an action film.")
    await talk(service, *FILMS)
    for _ in range(3):
        assert (await api.post("/v1/sessions/s/summarize")).status_code == 202
    await asyncio.gather(*(work(service) for _ in range(3)))
    (memory,) = await summaries(service, status="any")
    assert memory["content"] == (await api.get("/v1/sessions/s")).json()["summary"]


async def test_a_session_that_remembers_nothing_leaves_no_summary_behind(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, *FILMS, memorize="none")
    says(llm, "The user chose an action film.")
    await end(service)
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "The user chose an action film."
    assert await summaries(service, status="any") == []


async def test_a_memory_that_a_caller_deleted_is_made_anew(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    says(llm, "The user chose an action film.")
    await talk(service, *FILMS)
    await summarized(service)
    (first,) = await summaries(service)
    assert (await api.delete(f"/v1/memories/{first['memory_id']}")).status_code == 204
    await summarized(service)
    (second,) = await summaries(service)
    assert second["memory_id"] != first["memory_id"]


async def test_the_model_cannot_replace_a_summary_by_a_memory(service: Service, llm: Model) -> None:
    await talk(service, *FILMS, session="earlier")
    says(llm, "The user chose an action film.")
    await end(service, "earlier")
    (summary,) = await summaries(service)
    llm.says["memories"] = {"memories": [learned("Likes action films.", 1, superseded_ids=[summary["memory_id"]])]}
    await talk(service, "I like action films, too.")
    done = await end(service)
    assert summary["memory_id"] not in {one["memory_id"] for one in llm.shown("Statements")[-1]["known_memories"]}
    assert done["result"]["parts"]["memories"]["dropped"] == {"known": 1}
    assert (await summaries(service, session_id="earlier"))[0]["status"] == "active"


# --- Undo -------------------------------------------------------------------------------------------------------------


async def test_an_undo_takes_the_summary_along(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await talk(service, *FILMS)
    says(llm, "The user chose an action film.")
    done = await end(service)
    await undo(service, done["operation_id"])
    assert await summaries(service, status="any") == []
    assert (await api.get("/v1/sessions/s")).json()["summary"] is None
    await end(service)
    assert await summaries(service, status="any") == [], "what was undone is not learned again"


async def test_an_undo_brings_an_earlier_summary_back_as_it_was(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, "Tell me about penguins.", "They swim.")
    says(llm, "The user asked about penguins.")
    await summarized(service)
    (first,) = await summaries(service)
    await talk(service, "And now about quantum computing.")
    says(llm, "The user asked about quantum computing.")
    done = await end(service)
    longer = "The user asked about penguins. The user asked about quantum computing."
    assert (await summaries(service))[0]["content"] == longer
    assert (await undo(service, done["operation_id"]))["result"]["not_restored"] == 0
    (memory,) = await summaries(service)
    assert memory["memory_id"] == first["memory_id"]
    assert memory["content"] == (await api.get("/v1/sessions/s")).json()["summary"] == "The user asked about penguins."
    for asked in ({"mode": "text"}, {"mode": "vector", "min_similarity": 0.4}):
        hits = await found(api, "a question about penguins", memory_types=["summary"], **asked)
        assert hits == ["The user asked about penguins."], asked
    assert await found(api, "quantum", memory_types=["summary"], mode="text") == []


async def test_a_session_that_was_deleted_does_not_stop_an_undo(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    says(llm, "The user chose an action film.")
    await talk(service, *FILMS)
    done = await end(service)
    assert (await api.delete("/v1/sessions/s")).status_code == 204
    assert len(await summaries(service)) == 1, "the memories of a session stay"
    assert (await undo(service, done["operation_id"]))["result"]["not_restored"] == 0
    assert await summaries(service, status="any") == []


async def test_a_summary_that_a_caller_changed_since_is_not_taken_back(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    says(llm, "The user chose an action film.")
    await talk(service, *FILMS)
    done = await end(service)
    await api.patch("/v1/sessions/s", json={"summary": "I chose a film."})
    assert (await undo(service, done["operation_id"]))["result"]["not_restored"] == 1
    assert [one["content"] for one in await summaries(service)] == ["I chose a film."]
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "I chose a film."


# --- What comes too late ----------------------------------------------------------------------------------------------


async def planned(service: Service, seq: int) -> tuple[Tools, Conversation, SummaryText]:
    """A summary up to a message, before it is stored."""
    held = service.resources
    session = await held.store.get(SESSIONS, "default", "s")
    tools = Tools(held.store, held.embedder, held.clock, held.settings)
    return tools, Conversation(Scope("default"), "a", "u", (), session=session), SummaryText("Late.", 1.0, {}, seq)


async def test_a_summary_of_less_does_not_replace_one_of_more(service: Service, llm: Model) -> None:
    says(llm, "The user chose an action film.")
    await talk(service, *FILMS)
    late = summary_plan(*await planned(service, 2))
    await summarized(service)
    with pytest.raises(Skipped, match="later summary"):
        await late()


async def test_a_summary_of_messages_that_were_cleared_is_not_stored(service: Service, api: httpx.AsyncClient) -> None:
    await talk(service, *FILMS)
    late = summary_plan(*await planned(service, 4))
    await api.delete("/v1/sessions/s/messages")
    with pytest.raises(Skipped, match="messages are gone"):
        await late()
    await api.delete("/v1/sessions/s")
    with pytest.raises(Skipped, match="session is gone"):
        await late()
    await talk(service, *FILMS)
    with pytest.raises(Skipped, match="session is gone"):
        await late()
