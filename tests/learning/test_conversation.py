"""What a conversation leaves behind, with a model that says what it is told."""

import json
from typing import Any

import httpx
import pytest

from app.errors import RecalldError
from app.learning import conversation_extractors, prompts
from app.learning.derivations import DERIVATIONS
from app.memories.schemas import STATEMENTS, StatementRecord
from app.settings import Settings
from app.storage.schema import EVERYTHING
from tests.conftest import Service, Starter, TestParts
from tests.support.learning import end, kept, learned, operation, talk, undo, work
from tests.support.memories import OWNER, Faulty, Json, problem, remember
from tests.support.model import Model
from tests.support.scripted import Reply

pytestmark = pytest.mark.anyio

FILMS = ("Recommend me a film.", "How about a romance?", "I prefer action films.", "Then: Action Blockbuster!")


def lesson(text: str) -> Json:
    """A lesson of the user's preference, which corrects what the assistant proposed."""
    return {"quote": "I prefer action films", "kind": "heuristics", "text": text}


async def test_the_films_next_day(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    """Seed 000's example: told once, known in the next conversation."""
    await api.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    await talk(service, *FILMS)
    llm.says = {
        "memories": {
            "memories": [
                learned("The user prefers action films.", 3, profile_field="interest", object="action films"),
            ]
        },
        "LearnedExperience": {"lessons": [lesson("Ask which films somebody prefers before you recommend one.")]},
    }
    done = await end(service)
    assert (done["status"], done["error"]) == ("succeeded", None)
    assert {name: part["status"] for name, part in done["result"]["parts"].items()} == dict.fromkeys(
        ("memories", "profile", "facts", "experience", "summary"), "done"
    )
    (memory,) = await kept(service)
    assert memory["source"] | {"memory_ids": None} == {
        "said_at": memory["source"]["said_at"],
        "origin": "extraction",
        "session_id": "s",
        "message_seq": None,
        "speaker": None,
        "role": None,
        "action_ids": [],
        "memory_ids": None,
        "url": None,
        "note": None,
        "model": "scripted",
        "prompt_version": prompts.load("statements").id,
        "quote": "I prefer action films",
        "api_key_id": memory["source"]["api_key_id"],
    }
    (cited,) = memory["source"]["memory_ids"]
    assert (await api.get(f"/v1/memories/{cited}")).json()["content"] == "I prefer action films."
    assert (await api.get("/v1/users/u/profile")).json()["interests"] == ["action films"]
    experience = (await api.get("/v1/agents/a/experience")).json()
    assert [lesson["source"]["origin"] for lesson in experience["heuristics"]] == ["extraction"]
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "The user prefers action films."
    assert (await api.get("/v1/users/u/interactions")).json()["items"] == [], "the session's summary says it"

    service.clock.move(days=1)
    context = await api.post("/v1/context", json={**OWNER, "query": "Recommend me a film.", "session_id": "s2"})
    assert context.json()["text"].lower().count("prefer action films") == 1, (
        "as it was said, and not in other words, too"
    )
    task = {**OWNER, "task_id": "tomorrow", "session_id": "s2", "goal": "Recommend a film"}
    assert (await api.post("/v1/tasks", json=task)).status_code == 201
    for query, preference in (
        ("Recommend me a film.", "action films"),  # by the profile, for something is to be done
        ("Which film would they like?", "I prefer action films."),
    ):
        body = {**OWNER, "query": query, "session_id": "s2", "task_id": "tomorrow"}
        context = (await api.post("/v1/context", json=body)).json()["text"]
        assert "goal [pending]: Recommend a film" in context
        assert preference in context


async def test_a_task_that_ends_is_learned_from_as_a_session_is(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    for number, session in enumerate(("s", "s", "none", None)):
        task = {**OWNER, "task_id": f"t{number}", "session_id": session, "goal": "Find a film", "status": "in_progress"}
        assert (await api.post("/v1/tasks", json=task)).status_code == 201, session
    of_others = {"agent_id": "a", "user_id": "v", "task_id": "v", "session_id": "s", "goal": "Find a film"}
    assert (await api.post("/v1/tasks", json={**of_others, "status": "in_progress"})).status_code == 201
    await api.patch("/v1/tasks/v", json={"status": "completed"})
    assert await work(service) == 1
    assert llm.asked == []
    ended = (await api.patch("/v1/tasks/t0", json={"status": "completed"})).json()
    await work(service)
    learning = (await api.get(f"/v1/operations/{ended['operation_id']}")).json()
    assert (learning["kind"], learning["session_id"], learning["status"]) == ("post_conversation", "s", "succeeded")
    renamed = (await api.patch("/v1/tasks/t0", json={"goal": "Find two films"})).json()
    assert renamed["operation_id"] is None
    assert "operation_id" not in (await api.get("/v1/tasks/t0")).json()
    assert [memory["content"] for memory in await kept(service)] == ["The user prefers action films."]
    asked = len(llm.asked)
    for number, status in ((1, "failed"), (2, "completed"), (3, "completed")):
        await api.patch(f"/v1/tasks/t{number}", json={"status": status})
    assert await work(service) == 2, "the last has no session"
    assert len(llm.asked) == asked, "what was learned is not learned twice"
    (last, *_) = (await api.get("/v1/operations")).json()["items"]
    assert (last["kind"], last["status"], last["result"]["messages"]) == ("post_conversation", "succeeded", 0)


async def test_what_was_learned_can_be_undone(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await api.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    await api.patch("/v1/users/u/profile", json={"interests": ["tea"]})
    known = await remember(api, "The user likes romances.")
    await talk(service, *FILMS)
    llm.says = {
        "memories": {"memories": [learned("Now action.", 3, superseded_ids=[known["memory_id"]])]},
        "profile": {"interests": ["action films"]},
        "LearnedExperience": {"lessons": [lesson("Ask for the genre of the films first.")]},
    }
    done = await end(service)
    assert done["can_undo"] is True
    undone = await undo(service, done["operation_id"])
    assert undone["result"] == {"restored": 4, "not_restored": 0}
    (memory,) = await kept(service, status="any")
    known.pop("similar")
    assert memory | {"version": 1, "updated_at": ""} == known | {"updated_at": ""}
    assert (await api.get("/v1/users/u/profile")).json()["interests"] == ["tea"]
    assert (await api.get("/v1/agents/a/experience")).json()["heuristics"] == []
    assert (await api.get("/v1/users/u/interactions")).json()["items"] == []
    assert (await end(service))["result"]["messages"] == 0, "what was undone is not learned again"


async def test_the_model_sees_the_conversation_as_data_and_what_is_known(service: Service, llm: Model) -> None:
    known = await remember(service.client, "The user likes romances.", memory_type="preference")
    await service.client.patch("/v1/users/u/profile", json={"name": "Ada"})
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("Now action.", 3, superseded_ids=[known["memory_id"]])]}
    await end(service)
    (shown,) = llm.shown("Statements")
    assert [line["seq"] for line in shown["conversation"]] == [1, 2, 3, 4]
    assert [memory["memory_id"] for memory in shown["known_memories"]] == [known["memory_id"]]
    assert shown["profile"]["name"] == "Ada"
    old = (await service.client.get(f"/v1/memories/{known['memory_id']}")).json()
    (new,) = await kept(service, status="active")
    assert (old["status"], old["superseded_by"]) == ("superseded", new["memory_id"])
    assert new["supersedes"] == [known["memory_id"]]


async def test_the_model_is_not_shown_what_has_expired(service: Service, llm: Model) -> None:
    await remember(service.client, "The user likes romances.", expires_at="2026-07-01T00:00:00Z")
    stays = await remember(service.client, "The user likes comedies.", expires_at="2027-07-01T00:00:00Z")
    service.clock.move(days=60)
    await talk(service, *FILMS)
    await end(service)
    (shown,) = llm.shown("Statements")
    assert [memory["memory_id"] for memory in shown["known_memories"]] == [stays["memory_id"]]


async def test_nothing_is_learned_twice(service: Service, llm: Model) -> None:
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    await end(service)
    asked = len(llm.asked)
    again = await end(service)
    assert again["result"]["messages"] == 0
    assert len(llm.asked) == asked
    assert len(await kept(service)) == 1


async def test_every_twenty_messages_are_learned_from_once_it_is_quiet(service: Service, llm: Model) -> None:
    await talk(service, *(f"line {number}" for number in range(19)))
    assert await work(service, minutes=2) == 0
    await talk(service, "line 19", "line 20")
    assert await work(service) == 0
    assert await work(service, minutes=2) == 1
    (shown,) = llm.shown("Statements")
    assert len(shown["conversation"]) == 21
    await talk(service, "line 21")
    await end(service)
    assert [line["text"] for line in llm.shown("Statements")[1]["conversation"]] == ["line 21"]


async def test_what_was_served_is_not_learned_again(service: Service, llm: Model) -> None:
    await remember(service.client, "Ada lives in Boston.")
    served = (await service.client.post("/v1/context", json={**OWNER, "query": "Where does she live?"})).json()["text"]
    assert "Boston" in served
    await talk(service, f"{served}\nPlease whisper.")
    greeting = learned("Please whisper.", 1, kind="instruction")
    llm.says["memories"] = {"memories": [learned(served, 1), greeting]}
    done = await end(service)
    (shown,) = llm.shown("Statements")
    assert [line["text"] for line in shown["conversation"]] == ["Please whisper."]
    assert done["result"]["parts"]["memories"]["dropped"] == {"invalid": 1}
    assert sorted(memory["content"] for memory in await kept(service)) == ["Ada lives in Boston.", "Please whisper."]


@pytest.mark.parametrize(("given", "kept_as"), [(0.8, 0.8), (7, 0.5), (-1, 0.5), ("high", 0.5), (None, 0.5)])
def test_an_importance_that_is_none_loses_no_claim(given: Any, kept_as: float) -> None:
    """llama.cpp's grammars do not bound a number: Qwen2.5 0.5B gave 7 where at most 1 was asked."""
    stated: Json = {"quote": "I live in Oslo", "certainty": "stated", "holds": "now", "importance": given}
    claim = prompts.LearnedStatement.model_validate(
        {**stated, "subject": "user", "text": "Lives in Oslo.", "kind": "fact"}
    )
    assert claim.importance == kept_as


async def test_what_a_small_model_gets_wrong_is_dropped_and_counted(service: Service, llm: Model) -> None:
    stated: Json = {"subject": "user", "kind": "fact", "certainty": "stated", "holds": "now"}
    oslo: Json = {**stated, "quote": "I live in Oslo", "text": "The user lives in Oslo."}
    fact = {"predicate": "speaks_of", "object": "Oslo"}
    paints: Json = {**stated, "quote": "My sister Ines paints", "subject": "Ines", "text": "Ines paints."}
    invented = {"memory_id": "mem_1", "words": "The user lives in Rome."}
    llm.says["Statements"] = {
        "statements": [
            oslo | fact,
            oslo | fact,
            {"quote": "I live in Oslo"},
            "The user lives in Oslo.",
            {**oslo, "holds": "always"},
            {**oslo, "quote": "I was born in Oslo", "text": "The user was born in Oslo."},
            {**oslo, "certainty": "guessed", "text": "The user may leave Oslo."},
            {**oslo, "text": "The user has 4711 neighbours in Oslo."},
            {**oslo, "text": "The user owns Oslo."},
            {**paints, "profile_field": "interest", "object": "paints", "replaces": [invented, {"memory_id": 7}]},
        ]
    }
    llm.says["SecondLook"] = lambda data: {
        "unsupported": [{"why": "no", "number": one["number"]} for one in data["items"] if "owns" in one["text"]]
    }
    await talk(service, "I live in Oslo. My sister Ines paints.")
    done = await end(service)
    assert done["status"] == "succeeded"
    parts = done["result"]["parts"]
    wrong = {"invalid": 3, "not_quoted": 1, "not_stated": 1, "not_said": 1, "unsupported": 1, "known": 1}
    assert parts["memories"]["dropped"] == wrong
    assert parts["profile"]["dropped"] == {"not_of_this_part": 1}
    assert sorted(memory["content"] for memory in await kept(service)) == ["Ines paints.", "The user lives in Oslo."]
    assert (await service.client.get("/v1/users/u/profile")).status_code == 404, "no interest of the sister is theirs"
    (stored,) = (await service.client.get("/v1/facts", params={"user_id": "u"})).json()["items"]
    assert parts["facts"]["fact_ids"] == [stored["fact_id"]], "once"


async def test_the_agents_wishes_are_told(service: Service, llm: Model) -> None:
    settings = {"extraction_instructions": "Look for food allergies."}
    await service.client.post("/v1/agents", json={"agent_id": "a", "name": "Cook", "settings": settings})
    await talk(service, "Nuts make me ill.")
    await end(service)
    told = {shape: instructions for shape, instructions, _ in llm.asked}
    statements = prompts.load("statements").text
    assert f"{statements}\n\nThe owner of this agent asks in addition:\nLook for food allergies." in told["Statements"]


async def test_lessons_that_name_the_user_are_not_learned(service: Service, llm: Model) -> None:
    await service.client.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    await service.client.patch("/v1/users/u/profile", json={"name": "Ada Lovelace", "home": "Boston"})
    await talk(service, *FILMS)
    texts = ["Ada likes action.", "People in Boston like action.", "Ask for the genre of films.", "u wants action."]
    llm.says["LearnedExperience"] = {"lessons": [lesson(text) for text in texts]}
    await end(service)
    experience = (await service.client.get("/v1/agents/a/experience")).json()
    assert [lesson["text"] for lesson in experience["heuristics"]] == ["Ask for the genre of films."]


async def test_facts_are_asserted_by_the_rules_of_facts(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    home: Json = {"subject": "Ada", "predicate": "lives_in", "cardinality": "one"}
    old = {**OWNER, **home, "subject": "@user", "object": "New York", "valid_from": "2019-01-01T00:00:00Z"}
    assert (await api.post("/v1/facts", json=old)).status_code == 201
    await api.patch("/v1/users/u/profile", json={"name": "Ada"})
    await talk(service, "I have lived in Boston since May.", "Noted.")
    llm.says["facts"] = {
        "facts": [
            {**home, "object": "Boston", "at": "2026-05-01T00:00:00Z", "message_seqs": [1]},
            {**home, "object": "Mars", "at": None, "message_seqs": [77]},
            {**home, "object": "Venus base 4711", "at": None, "message_seqs": [1]},
            {**home, "object": "May", "at": "some day", "message_seqs": [1], "cardinality": "few"},
        ]
    }
    done = await end(service)
    facts, memories = done["result"]["parts"]["facts"], done["result"]["parts"]["memories"]
    assert (facts["dropped"], memories["dropped"]) == ({}, {"not_quoted": 1, "not_said": 1, "invalid": 1})
    assert [memory["content"] for memory in await kept(service)] == ["Ada lives in Boston"]
    (shown,) = llm.shown("Statements")
    assert shown["user_name"] == "Ada"
    assert shown["known_facts"] == [{"subject": "Ada", "predicate": "lives_in", "object": "New York"}]
    for as_of, city in (("2020-01-01T00:00:00Z", "New York"), ("2026-05-02T00:00:00Z", "Boston")):
        page = await api.get("/v1/facts", params={"user_id": "u", "predicate": "lives_in", "as_of": as_of})
        assert [fact["object"] for fact in page.json()["items"]] == [city]
    made = (await api.get(f"/v1/facts/{facts['fact_ids'][0]}")).json()
    assert (made["source"]["origin"], made["source"]["session_id"]) == ("extraction", "s")
    assert (made["subject"], made["agent_id"]) == ("@user", None)
    assert made["source"]["memory_ids"]
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Boston"


async def test_what_is_over_takes_no_time_from_what_holds(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    work: Json = {"subject": "Mira", "predicate": "works_for", "cardinality": "one"}
    known = {**OWNER, **work, "object": "Statoil", "valid_from": "2020-01-01T00:00:00Z"}
    assert (await api.post("/v1/facts", json=known)).status_code == 201
    await api.patch("/v1/users/u/profile", json={"home": "Bergen"})
    await talk(service, "Mira worked for Telenor before. I lived in Oslo then.", "Noted.")
    over: Json = {"at": None, "message_seqs": [1], "holds": "then"}
    home = {"subject": "user", "predicate": "lives_in", "cardinality": "one", "object": "Oslo"}
    llm.says["facts"] = {"facts": [{**work, **over, "object": "Telenor"}, {**home, **over}]}
    done = await end(service)
    assert done["result"]["parts"]["facts"]["dropped"] == {"not_of_this_part": 1}, "the profile has one home at a time"
    where = {"user_id": "u", "predicate": "works_for"}
    for as_of, firms in (("2019-06-01T00:00:00Z", {"Telenor"}), ("2026-05-02T00:00:00Z", {"Statoil", "Telenor"})):
        page = await api.get("/v1/facts", params={**where, "as_of": as_of})
        assert {fact["object"] for fact in page.json()["items"]} == firms, "when it ended is not known"
    assert [fact["object"] for fact in (await api.get("/v1/facts", params=where)).json()["items"]] == ["Statoil"]
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Bergen"
    remembered = {"Mira works for Telenor", "user lives in Oslo"}
    assert {memory["content"] for memory in await kept(service)} == remembered
    moved = {**OWNER, "subject": "Mira", "predicate": "works_for", "object": "Equinor"}
    now = (await api.post("/v1/facts", json=moved)).json()
    assert [old["object"] for old in now["superseded"]] == ["Statoil"], "the model said that there is one at a time"


async def test_a_learned_fact_has_the_cardinality_that_the_model_says(service: Service, llm: Model) -> None:
    await talk(service, "I speak Dutch and French. I drive a Fiat, no, I drive a Saab now.", "Noted.")
    said: Json = {"subject": "user", "at": None, "message_seqs": [1]}
    speaks, drives = {**said, "predicate": "speaks", "cardinality": "many"}, {**said, "predicate": "drives"}
    llm.says["facts"] = {
        "facts": [
            {**speaks, "object": "Dutch"},
            {**speaks, "object": "French"},
            {**drives, "object": "Fiat", "cardinality": "one"},
            {**drives, "object": "Saab", "cardinality": "one"},
        ]
    }
    await end(service)
    facts = (await service.client.get("/v1/facts", params={"user_id": "u"})).json()["items"]
    assert {(fact["object"], fact["cardinality"]) for fact in facts} == {
        ("Dutch", "many"),
        ("French", "many"),
        ("Saab", "one"),
    }


async def test_a_session_that_remembers_nothing_is_not_learned_from(service: Service, llm: Model) -> None:
    await talk(service, *FILMS, memorize="none")
    llm.says["memories"] = {
        "memories": [learned("The user prefers action films.", 3), learned("Guess.", 3, holds="no")]
    }
    done = await end(service)
    assert [shape for shape, *_ in llm.asked] == ["Statements", "SecondLook"]
    assert done["result"]["parts"].pop("summary") == {
        "status": "done",
        "summary": "The user prefers action films.",
        "dropped": {"invalid": 1},
    }
    assert {part["status"] for part in done["result"]["parts"].values()} == {"skipped"}
    assert await kept(service) == []


# --- Without a model, and with one that fails -------------------------------------------------------------------------


async def test_without_a_model_it_is_said_what_was_left_out(service: Service, api: httpx.AsyncClient) -> None:
    await talk(service, *FILMS)
    held = service.resources
    object.__setattr__(held, "llm", None)
    done = await end(service)
    assert done["status"] == "succeeded"
    parts = done["result"]["parts"]
    assert parts.pop("summary")["status"] == "skipped"
    assert {part["reason"] for part in parts.values()} == {"no language model is configured"}
    for path, body in (("/v1/memories/extract", {**OWNER, "messages": [{"role": "user", "content": "hi"}]}),):
        problem(await api.post(path, json=body), 409, "llm_not_configured")
    problem(await api.post("/v1/sessions/s/summarize"), 409, "llm_not_configured")


async def test_a_part_that_fails_is_tried_again_alone(service: Service, llm: Model) -> None:
    await talk(service, *FILMS)
    await service.client.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    llm.says["LearnedExperience"] = {"lessons": 7}
    waiting = await end(service)
    assert waiting["status"] == "queued"
    assert "experience: The model's answer cannot be used" in waiting["error"]
    assert len(await kept(service)) == 1
    llm.says["LearnedExperience"] = {"lessons": []}
    asked = len(llm.asked)
    assert await work(service, minutes=1) == 1
    assert {shape for shape, *_ in llm.asked[asked:]} == {"LearnedExperience"}
    done = await operation(service, waiting["operation_id"])
    assert (done["status"], done["result"]["parts"]["experience"]["status"]) == ("succeeded", "done")
    assert len(await kept(service)) == 1


async def test_a_part_that_was_learned_by_an_earlier_try_is_done(service: Service, llm: Model) -> None:
    """What its own first try has stored is the operation's result, and not skipped."""
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 1)]}
    llm.says["facts"] = {"facts": 7}
    answer = (await service.client.post("/v1/sessions/s/end")).json()
    await work(service)
    llm.says["facts"] = {"facts": []}
    await work(service, minutes=60)
    done = await operation(service, answer["operation_id"])
    memories = done["result"]["parts"]["memories"]
    assert (done["status"], memories["status"], memories["created"]) == ("succeeded", "done", 1)
    assert "before" not in str(done["result"]["parts"])


async def test_what_an_earlier_try_learned_is_counted_once(
    service: Service, llm: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 1)]}

    async def broken(*_: object) -> None:
        raise RecalldError("The facts cannot be stored.")

    with monkeypatch.context() as patch:  # the facts come after the memories
        patch.setattr(conversation_extractors, "asserted", broken)
        waiting = await end(service)
    assert (waiting["status"], len(await kept(service))) == ("queued", 1)
    await work(service, minutes=60)
    done = await operation(service, waiting["operation_id"])
    memories = done["result"]["parts"]["memories"]
    assert (done["status"], memories["created"], len(memories["memory_ids"])) == ("succeeded", 1, 1)


async def test_a_model_that_stays_away_ends_as_failed_and_loses_nothing(service: Service, llm: Model) -> None:
    await talk(service, *FILMS)
    llm.server.then(*[Reply(401)] * 100)
    waiting = await end(service)
    for _ in range(6):
        await work(service, minutes=60)
    done = await operation(service, waiting["operation_id"])
    assert done["status"] == "failed"
    assert "memories: The model's server answered 401." in done["error"]
    assert len((await service.client.get("/v1/sessions/s/messages")).json()["items"]) == len(FILMS)
    llm.server.script.clear()
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    assert (await end(service))["status"] == "succeeded"
    assert len(await kept(service)) == 1


async def test_a_bound_key_learns_within_its_bounds(service: Service, llm: Model) -> None:
    """It is bound to the agent: what every agent may know of the user, and what all users would see, is not its own."""
    await service.client.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    bound = await service.key(agents=["a"], users=["u"])
    body = {**OWNER, "messages": [{"role": "user", "content": "I prefer action films."}]}
    await service.client.post("/v1/sessions/s/messages", json=body, headers=bound)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 1)]}
    answer = await service.client.post("/v1/sessions/s/end", headers=bound)
    await work(service)
    done = (await service.client.get(f"/v1/operations/{answer.json()['operation_id']}", headers=bound)).json()
    parts = done["result"]["parts"]
    assert parts["memories"]["created"] == 1
    assert (parts["profile"]["status"], parts["experience"]["status"]) == ("skipped", "skipped")
    assert "bound" in parts["profile"]["reason"]


async def test_what_was_learned_is_noted_with_its_sources(service: Service, llm: Model) -> None:
    await talk(service, *FILMS)
    llm.says["profile"] = {"interests": ["action films"]}
    await end(service)
    notes = await service.resources.store.find(DERIVATIONS, "default", EVERYTHING, limit=10)
    assert len(notes) == 4  # memories, profile, facts, summary: the agent is not registered
    assert {(note["session_id"], note["from_seq"], note["to_seq"]) for note in notes} == {("s", 1, 4)}
    (profile,) = [note["result"] for note in notes if "changed" in note["result"]]
    quoted = {"field": "interests", "value": "action films", "quote": "I prefer action films"}
    assert (profile["changed"], profile["quotes"]) == (["interests"], [quoted])


async def test_statements_are_kept_beside_their_memories_and_go_with_them(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    async def statements() -> list[StatementRecord]:
        return await service.resources.store.find(STATEMENTS, "default", EVERYTHING)

    await talk(service, *FILMS, "My sister moves to Bergen in July 2027.")
    bergen = {"subject": "sister", "predicate": "lives_in", "object": "Bergen", "holds": "planned", "at": "2027-07"}
    llm.says["memories"] = {
        "memories": [
            learned("The user prefers action films.", 3, kind="preference"),
            learned("The user prefers action films.", 3, kind="preference"),
            learned("The user's sister moves to Bergen.", 5, **bergen),
        ]
    }
    done = await end(service)
    kept_now = {memory["content"]: memory["memory_id"] for memory in await kept(service)}
    films, sister = sorted(await statements(), key=lambda one: one["message_seq"])
    assert (films["text"], films["quote"], films["subject"]) == (
        "The user prefers action films.",
        "I prefer action films",
        "user",
    ), "once"
    assert {one["text"]: one["memory_id"] for one in (films, sister)} == kept_now
    assert (sister["session_id"], sister["message_seq"], sister["holds"]) == ("s", 5, "planned")
    assert (sister["at"], sister["object"], sister["user_id"]) == ("2027-07-01T00:00:00.000Z", "Bergen", "u")
    exported = map(json.loads, (await api.get("/v1/users/u/export")).text.splitlines())
    assert sum(line.get("collection") == "statements" for line in exported) == 2
    await api.delete(f"/v1/memories/{films['memory_id']}")
    assert [one["text"] for one in await statements()] == ["The user's sister moves to Bergen."]
    await end(service)
    assert (await undo(service, done["operation_id"]))["result"]["not_restored"] == 1, "the first one is gone"
    assert (await api.delete("/v1/users/u")).json()["erased"]["statements"] == 1
    assert await statements() == []


async def test_what_an_undo_takes_back_leaves_no_statement(service: Service, llm: Model) -> None:
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    done = await end(service)
    store = service.resources.store
    assert len(await store.find(STATEMENTS, "default", EVERYTHING)) == 1
    await undo(service, done["operation_id"])
    assert await store.find(STATEMENTS, "default", EVERYTHING) == []


async def test_a_summary_by_hand(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await talk(service, *FILMS)
    llm.says["memories"] = {"memories": [learned("The user prefers action films.", 3)]}
    answer = await api.post("/v1/sessions/s/summarize")
    assert answer.status_code == 202
    await work(service)
    done = await operation(service, answer.json()["operation_id"])
    assert (done["status"], done["result"]["summary"]) == ("succeeded", "The user prefers action films.")
    assert (await api.get("/v1/sessions/s")).json()["summary"] == "The user prefers action films."
    context = (await api.get("/v1/sessions/s/context")).json()
    assert context["summary"] == "The user prefers action films."
    problem(await api.post("/v1/sessions/none/summarize"), 404, "not_found")


async def test_while_the_embedding_model_is_away_it_is_learned_with_what_words_find(
    start: Starter, settings: Settings, parts: TestParts, llm: Model
) -> None:
    parts.wrap = Faulty
    async with start(settings) as service:
        old = await remember(service.client, "The user prefers romance films.", memory_type="preference")
        await talk(service, *FILMS)
        embedder = service.resources.embedder
        assert isinstance(embedder, Faulty)
        embedder.failing = True
        superseding = learned("The user prefers action films.", 3, superseded_ids=[old["memory_id"]])
        llm.says["memories"] = {"memories": [superseding]}
        done = await end(service)
        assert done["result"]["parts"]["memories"]["status"] == "done", done
        (new,) = await kept(service)
        assert (new["content"], new["embedding"]["status"]) == ("The user prefers action films.", "pending")
        superseded = (await service.client.get(f"/v1/memories/{old['memory_id']}")).json()
        assert (superseded["status"], superseded["superseded_by"]) == ("superseded", new["memory_id"])


async def test_what_a_model_appended_makes_and_retires_no_rule(service: Service, llm: Model) -> None:
    """The header says that a model chose the call, as every call of an MCP tool is marked."""
    api = service.client
    french = await remember(api, "Answer in French.", memory_type="instruction")
    await talk(service, "Please whisper. Answer in English.")
    llm.says["memories"] = {
        "memories": [
            learned("Please whisper.", 1, kind="instruction"),
            learned("Answer in English.", 1, kind="instruction", superseded_ids=[french["memory_id"]]),
        ]
    }
    ended = await api.post("/v1/sessions/s/end", headers={"x-recalld-by-model": "mcp"})
    await work(service)
    done = await operation(service, ended.json()["operation_id"])
    assert done["status"] == "succeeded", done
    kinds = {memory["content"]: (memory["memory_type"], memory["status"]) for memory in await kept(service)}
    assert kinds == {
        "Answer in French.": ("instruction", "active"),
        "Please whisper.": ("preference", "active"),
        "Answer in English.": ("preference", "active"),
    }


async def test_what_a_memory_says_besides_what_is_replaced_stays_and_is_proposed(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    old = "The user has a deadly peanut allergy and her sister is vegetarian."
    known = (await api.post("/v1/memories", json={**OWNER, "content": old})).json()
    await talk(service, "My sister eats fish again.", "Noted.")
    replaced = {
        "memory_id": known["memory_id"],
        "words": "her sister is vegetarian",
        "left": "The user has a deadly peanut allergy",
    }
    lost = {"memory_id": known["memory_id"], "words": "said by nobody", "left": ""}
    told = learned("The user's sister eats fish again.", 1, replaces=[replaced])
    llm.says["memories"] = {"memories": [told]}
    done = await end(service)
    memory = (await api.get(f"/v1/memories/{known['memory_id']}")).json()
    assert (memory["status"], memory["content"]) == ("active", old)
    prompt = (await api.post("/v1/context", json={**OWNER, "query": "May I serve peanuts?"})).json()["text"]
    assert "her sister is vegetarian. (until 2026-06-01: The user's sister eats fish again.)" in prompt
    (finding,) = (await api.get("/v1/findings", params=OWNER)).json()["items"]
    assert (finding["kind"], finding["evidence"][0]["shortened"]) == ("stale", "The user has a deadly peanut allergy.")
    assert (await api.post(f"/v1/findings/{finding['finding_id']}/accept")).status_code == 200
    memory = (await api.get(f"/v1/memories/{known['memory_id']}")).json()
    assert memory["content"] == "The user has a deadly peanut allergy."
    assert (await undo(service, done["operation_id"]))["status"] in ("succeeded", "partial")
    await talk(service, "My sister eats meat, too.", "Noted.", session="t")
    llm.says["memories"] = {"memories": [learned("Her sister eats meat.", 1, replaces=[lost])]}
    done = await end(service, "t")
    assert done["result"]["parts"]["memories"]["dropped"] == {"known": 1}


async def test_a_plan_has_its_day_and_what_has_none_has_no_time(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, "I'm moving to Oslo on 1 July. I'm allergic to walnuts.", "Noted.")
    plan = {"quote": "I'm moving to Oslo on 1 July", "holds": "planned", "at": "2026-07-01"}
    home = {"subject": "user", "predicate": "lives_in", "object": "Oslo", "cardinality": "one", **plan}
    nuts = {
        "subject": "user",
        "predicate": "is_allergic_to",
        "object": "walnuts",
        "cardinality": "many",
        "message_seqs": [1],
    }
    llm.says["facts"] = {"facts": [home, nuts]}
    llm.says["memories"] = {
        "memories": [learned("The user moves to Oslo.", 1, **plan), learned("The user is allergic to walnuts.", 1)]
    }
    await end(service)
    times = {memory["content"]: (memory["event_at"], memory["event_at_precision"]) for memory in await kept(service)}
    assert times["The user moves to Oslo."] == ("2026-07-01T00:00:00.000Z", "day")
    assert times["The user is allergic to walnuts."] == (None, None)
    prompt = (await api.post("/v1/context", json={**OWNER, "query": "What is the user allergic to?"})).json()["text"]
    assert "walnuts (since" not in prompt
    profile = "/v1/users/u/profile"
    assert (await api.get(profile)).json()["home"] is None
    assert (await api.get(profile, params={"as_of": "2026-07-01T08:00:00Z"})).json()["home"] == "Oslo"


async def test_the_message_that_a_replaced_memory_was_learned_from_is_marked_too(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    first = "I have a deadly peanut allergy and my sister is vegetarian."
    await talk(service, first, "Noted.")
    sister = learned("The user's sister is vegetarian.", quote="my sister is vegetarian", subject="sister")
    del sister["message_seqs"]
    llm.says["memories"] = {"memories": [sister]}
    await end(service)
    (known,) = await kept(service)
    before = (await api.post("/v1/memories/search", json={**OWNER, "query": "peanut allergy"})).json()["items"]
    await talk(service, "My sister eats fish again.", "Noted.", session="t")
    again = learned("The user's sister eats fish again.", 1, superseded_ids=[known["memory_id"]])
    llm.says["memories"] = {"memories": [again]}
    done = await end(service, "t")
    query = {**OWNER, "query": "peanut allergy"}
    prompt = (await api.post("/v1/context", json=query)).json()["text"]
    assert f"{first} (until 2026-06-01: The user's sister eats fish again.)" in prompt
    hits = (await api.post("/v1/memories/search", json=query)).json()["items"]
    assert hits[0]["memory"]["content"] == before[0]["memory"]["content"] == first
    await undo(service, done["operation_id"])
    assert "(until" not in (await api.post("/v1/context", json=query)).json()["text"]
