"""Whose data a context shows, of what time, and how often it says the same."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.context import TITLES, ask, dropped, headings, items, names, problem_free, texts
from tests.support.memories import OWNER, Json, eventually, problem, remember
from tests.support.sessions import append, memories, said
from tests.support.tasks import begin

pytestmark = pytest.mark.anyio

LIVES = "Ada lives in Boston"


async def shown(api: httpx.AsyncClient, **fields: Any) -> str:
    text: str = (await ask(api, intent="recall", **fields))["text"]
    return text


# --- Said once --------------------------------------------------------------------------------------------------------


async def test_a_message_and_its_memory_are_one(api: httpx.AsyncClient) -> None:
    await append(api, said(LIVES, "She likes tea"))
    made = [one["memory_id"] for one in await memories(api)]
    body = await ask(api, session_id="s")
    assert texts(body, "messages") == [f"user: {LIVES}", "user: She likes tea"]
    assert dropped(body) == dict.fromkeys(made, "duplicate")
    elsewhere = await ask(api, session_id="another")
    assert {one["id"] for one in items(elsewhere, "memories")} == set(made)


async def test_what_the_conversation_no_longer_shows_is_remembered(api: httpx.AsyncClient) -> None:
    await append(api, said(LIVES, *(f"Point {at} is long over" for at in range(10))))
    body = await ask(api, session_id="s")
    assert f"user: {LIVES}" not in texts(body, "messages")
    assert texts(body, "memories") == [f"user: {LIVES}"]
    without = await ask(api, session_id="s", exclude=["messages"], fill=True, min_score=0)
    assert len(texts(without, "memories")) == 11


async def test_the_conversation_does_not_crowd_out_what_is_remembered(api: httpx.AsyncClient) -> None:
    await remember(api, "The house of Ada stands in Boston")
    await append(api, said(*(f"I ask for the {at}. time: where does Ada live?" for at in range(10))))
    body = await ask(api, session_id="s")
    assert body["budget"] - body["tokens"] > 3000
    assert texts(body, "memories") == ["The house of Ada stands in Boston"]


async def test_a_turn_too_long_for_the_context_comes_as_its_memory_or_not_at_all(api: httpx.AsyncClient) -> None:
    await append(api, said(LIVES))
    body = await ask(api, session_id="s", sections={"messages": {"tokens": 1}})
    assert texts(body, "messages") == []
    assert len(texts(body, "memories")) == 1
    assert list(dropped(body).values()) == ["section_budget"]


async def test_an_action_that_is_remembered_too_comes_once(api: httpx.AsyncClient) -> None:
    made = await remember(api, LIVES)
    act = {**OWNER, "action_type": "note", "content": LIVES}
    logged = (await api.post("/v1/actions", json=act)).json()
    body = await ask(api)
    shown = [one["id"] for name in ("memories", "episodes") for one in items(body, name)]
    assert len(shown) == 1
    assert {*shown, *dropped(body)} == {made["memory_id"], logged["action_id"]}
    assert set(dropped(body).values()) == {"duplicate"}


async def test_the_query_itself_is_not_repeated(api: httpx.AsyncClient) -> None:
    await append(api, said(LIVES, "Where does she work?"))
    for query in ("Where does she work?", " where does she  work?"):
        body = await ask(api, query, session_id="s")
        assert texts(body, "messages") == [f"user: {LIVES}"]
        assert "work" not in body["text"]
    assert texts(await ask(api, "And now?", session_id="s"), "messages")[-1] == "user: Where does she work?"
    as_turns = await ask(api, "Where does she work?", session_id="s", format="messages")
    assert [one["content"] for one in as_turns["messages"]] == [LIVES, "Where does she work?"]


# --- Of what time, and how sure ---------------------------------------------------------------------------------------


async def test_only_what_is_trusted(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in Quincy", trust=0.3)
    await remember(api, LIVES, trust=0.9)
    assert texts(await ask(api, min_trust=0.5), "memories") == [LIVES]
    assert len(texts(await ask(api), "memories")) == 2


async def test_what_was_true_then(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in Quincy", valid_until="2026-03-01T00:00:00Z")
    await remember(api, LIVES, valid_from="2026-03-01T00:00:00Z")
    assert "Boston" in await shown(api)
    assert "Quincy" not in await shown(api)
    then = await shown(api, as_of="2026-02-01T00:00:00Z")
    assert "Quincy" in then
    assert "Boston" not in then


async def test_what_was_learned_later_was_not_known_then(service: Service) -> None:
    """What is learned from a turn of the morning at the session's end says when the turn was."""
    morning, evening = "2026-06-01T13:00:00Z", "2026-06-01T20:00:00Z"
    service.clock.move(hours=6)
    await remember(service.client, LIVES, event_at="2026-06-01T12:30:00Z")
    assert LIVES in await shown(service.client, now=morning)
    assert LIVES not in await shown(service.client, now=morning, known_at=morning)
    assert LIVES in await shown(service.client, now=evening, known_at=evening)


async def test_actions_of_later_are_not_shown(api: httpx.AsyncClient) -> None:
    for day in ("2026-05-05", "2026-05-25"):  # older ones are rolled up by and by
        act = {**OWNER, "action_type": "search", "content": f"Looked on {day}", "timestamp": f"{day}T00:00:00Z"}
        assert (await api.post("/v1/actions", json=act)).status_code == 201
    for field in ("as_of", "now"):
        assert texts(await ask(api, **{field: "2026-05-10T00:00:00Z"}), "episodes") == [
            "2026-05-05 search: Looked on 2026-05-05"
        ]


async def test_what_has_expired_is_gone(service: Service) -> None:
    api, soon = service.client, "2026-06-02T00:00:00Z"
    await remember(api, LIVES, expires_at=soon)
    await append(api, said("hello there"), memorize="none")
    await api.patch("/v1/sessions/s", json={"expires_at": soon})
    await begin(api, session_id="s", expires_at=soon)
    await api.patch("/v1/tasks/t", json={"status": "in_progress"})
    assert names(await ask(api, session_id="s")) == ["working", "messages", "memories"]
    assert names(await ask(api, session_id="s", now=soon)) == []
    service.clock.move(days=2)
    assert names(problem_free(await ask(api, session_id="s"))) == []
    problem(await api.post("/v1/context", json={**OWNER, "query": "x", "task_id": "t"}), 404, "not_found")


async def test_what_was_archived_replaced_or_deleted_is_not_shown(api: httpx.AsyncClient) -> None:
    old = await remember(api, "Ada lives in Quincy")
    await remember(api, "Ada lives in Salem", supersedes=[old["memory_id"]])
    archived = await remember(api, "Ada lives in Lowell")
    deleted = await remember(api, "Ada lives in Lynn")
    await api.patch(f"/v1/memories/{archived['memory_id']}", json={"status": "archived"})
    await api.delete(f"/v1/memories/{deleted['memory_id']}")
    body = await ask(api)
    assert texts(body, "memories") == ["Ada lives in Salem"]
    assert dropped(body) == {}


async def test_what_was_said_of_a_memory_stands_with_it(api: httpx.AsyncClient) -> None:
    await remember(api, LIVES, context="since the flood", event_at="2025-02-03T10:00:00Z")
    body = await ask(api)
    assert (headings(body, "memories"), texts(body, "memories")) == (["2025-02-03"], [f"{LIVES} (since the flood)"])


# --- Whose ------------------------------------------------------------------------------------------------------------

SECRETS = ("Ada hides it in Boston", "Ada said Boston", "looked for Ada in Boston", "boston-name", "sell Boston")


async def stock(api: httpx.AsyncClient, headers: dict[str, str], user: str, suffix: str) -> None:
    """A bit of everything of the user, which only they may see."""
    who = {"agent_id": "a", "user_id": user}
    bodies: list[tuple[str, str, Json]] = [
        ("POST", "/v1/memories", {**who, "content": f"{SECRETS[0]} {suffix}"}),
        ("POST", f"/v1/sessions/s-{user}/messages", {**who, "messages": said(f"{SECRETS[1]} {suffix}")}),
        ("POST", "/v1/sessions", {**who, "session_id": f"old-{user}"}),
        ("PATCH", f"/v1/sessions/old-{user}", {"summary": f"Talked of Boston {suffix}"}),
        ("POST", "/v1/actions", {**who, "action_type": "search", "content": f"{SECRETS[2]} {suffix}"}),
        ("PATCH", f"/v1/users/{user}/profile", {"name": f"{SECRETS[3]} {suffix}"}),
        ("POST", "/v1/facts", {**who, "subject": "Ada", "predicate": "hides", "object": f"the key {suffix}"}),
        ("POST", "/v1/tasks", {**who, "task_id": f"t-{user}", "goal": f"{SECRETS[4]} {suffix}"}),
        ("POST", "/v1/procedures", {**who, "name": "Hide", "trigger": "Ada asks", "steps": [f"in Boston {suffix}"]}),
    ]
    for method, path, body in bodies:
        answered = await api.request(method, path, json=body, headers=headers)
        assert answered.status_code in (200, 201), answered.text


async def asked(api: httpx.AsyncClient, headers: dict[str, str], user: str | None, of: str) -> Json:
    """With the task where it is there, else without: a task that is not there is not found."""
    body = {"agent_id": "a", "query": "Where is Ada?", "session_id": f"s-{of}", "task_id": f"t-{of}"}
    body |= {} if user is None else {"user_id": user}
    answered = await api.post("/v1/context", json=body, headers=headers)
    if answered.status_code == 404:
        del body["task_id"]
        answered = await api.post("/v1/context", json=body, headers=headers)
    assert answered.status_code == 200, answered.text
    found: Json = answered.json()
    return found


async def test_another_users_and_another_tenants_are_never_shown(service: Service) -> None:
    api, owner = service.client, await service.key()
    other_tenant = await service.key("elsewhere")
    bound = await service.key(users=["v"])
    await stock(api, owner, "u", "of-u")
    await stock(api, owner, "v", "of-v")

    own = await asked(api, owner, "u", "u")
    assert names(own) == [
        name for name in TITLES if name not in ("instructions", "always", "experience", "uncertain")
    ], own
    assert own["text"].count("of-u") == 8
    assert "of-v" not in own["text"]

    stranger = await asked(api, other_tenant, "u", "u")
    assert (stranger["text"], stranger["dropped"]) == ("", [])
    task = {**OWNER, "query": "x", "task_id": "t-u"}
    problem(await api.post("/v1/context", json=task, headers=other_tenant), 404, "not_found")

    for user, of in (("u", "u"), ("v", "u"), ("u", "v"), (None, "u")):
        cut = await asked(api, bound, user, of)
        assert "of-u" not in str(cut)
    assert (await asked(api, bound, "v", "v"))["text"].count("of-v") == 8

    nobody = await asked(api, owner, None, "nobody")
    assert nobody["text"] == ""


async def test_a_key_of_another_agent_sees_nothing_of_this_one(service: Service) -> None:
    api, owner = service.client, await service.key()
    await stock(api, owner, "u", "of-u")
    body = await asked(api, await service.key(agents=["b"]), "u", "u")
    assert names(body) == ["profile"]  # a user's profile is every agent's


async def test_an_agents_settings_are_not_read_by_a_key_that_may_not_see_it(service: Service) -> None:
    api, owner = service.client, await service.key()
    agent = {"agent_id": "a", "name": "A", "settings": {"max_context_tokens": 1200}}
    assert (await api.post("/v1/agents", json=agent, headers=owner)).status_code == 201
    assert (await asked(api, owner, "u", "u"))["budget"] == 300
    assert (await asked(api, await service.key(agents=["b"]), "u", "u"))["budget"] == 4000
    assert (await asked(api, await service.key("elsewhere"), "u", "u"))["budget"] == 4000


async def test_a_key_that_may_only_write_gets_none(service: Service) -> None:
    only_write = await service.key(verbs="write")
    answered = await service.client.post("/v1/context", json={**OWNER, "query": "x"}, headers=only_write)
    problem(answered, 403, "forbidden")


async def test_a_users_context_shows_no_other_users_session_or_task(service: Service) -> None:
    api, owner = service.client, await service.key()
    await stock(api, owner, "v", "of-v")
    assert "of-v" not in (await asked(api, owner, "u", "v"))["text"]


async def test_what_is_shared_is_everybodys(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in Salem, the agent knows", user_id=None)
    await remember(api, "Ada lives in Lynn, all agents know", agent_id=None)
    await remember(api, "Ada lives in Lowell, another agent knows", agent_id="b")
    assert {text.rpartition(", ")[2] for text in texts(await ask(api), "memories")} == {
        "the agent knows",
        "all agents know",
    }
    assert len(texts(await ask(api, user_id=None), "memories")) == 1


# --- Accesses ---------------------------------------------------------------------------------------------------------


async def test_only_what_is_packed_counts_as_accessed(api: httpx.AsyncClient) -> None:
    made = [(await remember(api, f"Ada lives in house {at}"))["memory_id"] for at in range(4)]

    async def counts() -> dict[str, int]:
        return {one["memory_id"]: one["access_count"] for one in (await api.get("/v1/memories")).json()["items"]}

    body = await ask(api, sections={"memories": {"limit": 2}})
    packed = [one["id"] for one in items(body, "memories")]
    assert set(dropped(body)) == set(made) - set(packed)

    async def written() -> bool:
        return sum((await counts()).values()) > 0

    await eventually(written)
    assert await counts() == {memory_id: int(memory_id in packed) for memory_id in made}


# --- What we served comes back ----------------------------------------------------------------------------------------


async def test_what_was_served_is_not_learned_again(api: httpx.AsyncClient) -> None:
    await remember(api, LIVES)
    served = (await ask(api))["text"]
    await append(api, said(f"{served}So where is she?", served), session="next")
    learned = [one["content"] for one in await memories(api, session_id="next")]
    assert learned == ["So where is she?"]
    assert texts(await ask(api, "And now?", session_id="next"), "messages") == ["user: So where is she?"]
    as_is = (await api.get("/v1/sessions/next/messages")).json()["items"]
    assert as_is[0]["content"] == f"{served}So where is she?"  # the conversation is kept as it was


async def test_what_was_served_and_cut_is_not_learned_again(api: httpx.AsyncClient) -> None:
    await remember(api, LIVES)
    served = (await ask(api))["text"]
    without_end, without_start = served[: served.index("Boston")], served[served.index("Memories") :]
    await append(api, said(without_end, f"{without_start}So where is she?", f"Hello\n{without_end}"), session="next")
    learned = [one["content"] for one in await memories(api, session_id="next")]
    assert learned == ["So where is she?", "Hello"]


async def test_what_merely_talks_of_tags_is_learned(api: httpx.AsyncClient) -> None:
    text = "Our template has a <b>bold</b> part and the word recalld_context, not < or >"
    await append(api, said(text))
    assert [one["content"] for one in await memories(api)] == [text]
    assert texts(await ask(api, session_id="s"), "messages") == [f"user: {text}"]


async def test_what_stands_between_tags_that_are_spoken_of_is_learned(api: httpx.AsyncClient) -> None:
    await append(api, said("Does <recalld_context> need an end like </recalld_context>?"))
    assert "need an end" in (await memories(api))[0]["content"]
