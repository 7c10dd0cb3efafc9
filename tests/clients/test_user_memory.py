"""The hand-written part of the Python client: what people do daily with the memory of one user."""

from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

import anyio
import httpx
import pytest
from recalld_client import (
    NO_RETRY,
    AsyncRecalld,
    AsyncUserDocuments,
    AsyncUserFacts,
    AsyncUserMemory,
    AsyncUserProfile,
    AsyncUserSession,
    InvalidUser,
    Problem,
    Recalld,
    UserDocuments,
    UserFacts,
    UserMemory,
    UserProfile,
    UserSession,
)

pytestmark = pytest.mark.anyio

UNDER_WAY = ("queued", "running")


@pytest.fixture
async def me(api: httpx.AsyncClient) -> AsyncIterator[AsyncUserMemory]:
    async with AsyncRecalld(http=api) as memory:
        yield memory.user("ada", agent="support")


async def test_a_text_is_stored_and_found(me: AsyncUserMemory) -> None:
    made = await me.add("Ada prefers tea to coffee", tags=["drinks"], importance=0.8)
    await me.add("Ada plays the cello")
    assert (made["user_id"], made["agent_id"], made["tags"]) == ("ada", "support", ["drinks"])
    (best,) = await me.search("What does she like to drink?", limit=1)
    assert best["memory"]["memory_id"] == made["memory_id"]
    assert 0 < best["score"] <= 1
    assert await me.search("What does she like to drink?", tags=["music"]) == []


@pytest.mark.parametrize("nobody", ["", " ", None, 5, ["ada"]])
async def test_a_user_without_an_id_is_an_error_of_its_own(me: AsyncUserMemory, nobody: str) -> None:
    with pytest.raises(InvalidUser, match="A user needs an id"):
        Recalld(url="http://127.0.0.1:9").user(nobody)
    with pytest.raises(InvalidUser):
        AsyncUserMemory(me.client, nobody, "support")
    assert issubclass(InvalidUser, ValueError)


async def test_another_user_and_another_agent_see_nothing(me: AsyncUserMemory) -> None:
    await me.add("Ada prefers tea")
    held: Any = me.client
    bobs = AsyncRecalld(http=held._connections._given)
    for other in (bobs.user("bob", agent="support"), held.user("ada", agent="b")):
        assert await other.search("tea") == []
        assert [one async for one in other.memories()] == []


async def test_a_conversation_goes_into_a_session_of_its_own_that_has_ended(me: AsyncUserMemory) -> None:
    talk = [{"role": "user", "content": "I live in Boston."}, {"role": "assistant", "content": "Noted."}]
    stored = await me.add(talk)
    assert stored["how"] == "stored", "no language model is configured"
    assert [one["seq"] for one in stored["items"]] == [1, 2]
    (session,) = [one async for one in me.sessions()]
    assert (session["session_id"], session["status"], session["message_count"]) == (stored["session_id"], "ended", 2)
    with pytest.raises(TypeError, match="tags: only a text"):
        await me.add(talk, tags=["x"])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="Give a text or a list of messages, not dict"):
        await me.add({"role": "user", "content": "x"})  # type: ignore[call-overload]


async def test_messages_that_are_not_extracted_have_the_metadata_too(me: AsyncUserMemory) -> None:
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": "I keep bees.", "metadata": {"via": "web"}},
        {"role": "user", "content": "I have two hives."},
    ]
    stored = await me.add(talk, metadata={"topic": "pets"})
    assert stored["how"] == "stored"
    found = await me.get_all(filters={"topic": "pets"})
    assert [memory["memory_id"] for memory in found] == stored["memory_ids"][::-1]
    assert {memory["metadata"].get("via") for memory in found} == {"web", None}
    assert len(await me.get_all(limit=1)) == 1
    assert [hit["memory"]["content"] for hit in await me.search("bees", filters={"via": "web"})] == ["I keep bees."]


@pytest.mark.parametrize(
    ("status", "answer", "how"),
    [
        (201, {"items": [], "created": 0}, "extracted"),
        (202, {"operation_id": "op_1", "status": "running"}, "extracting"),
        (409, {"code": "llm_not_configured"}, "stored"),
        (409, {"code": "conflict"}, None),
        (503, {"code": "llm_unavailable"}, None),
    ],
)
async def test_add_says_what_it_did(status: int, answer: dict[str, Any], how: str | None) -> None:
    paths: list[str] = []

    def answered(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path.rpartition("/")[2])
        return (
            httpx.Response(status, json=answer) if paths[-1] == "extract" else httpx.Response(201, json={"items": []})
        )

    async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answered)) as http:
        me = AsyncRecalld(http=http, retry=NO_RETRY).user("ada")
        if how is None:
            with pytest.raises(Problem):
                await me.add([{"role": "user", "content": "x"}])
        else:
            assert (await me.add([{"role": "user", "content": "x"}]))["how"] == how
    assert paths == (["extract", "messages", "end"] if how == "stored" else ["extract"])


async def test_a_context_is_filled_if_the_caller_says_so(me: AsyncUserMemory) -> None:
    for day in range(40):  # more than a small store, which is given whole
        await me.add(f"On day {day} of the trip it rained in Bergen")
    usual, filled = await me.context("thanks!"), await me.context("thanks!", fill=True)
    assert usual["text"].count("Bergen") < filled["text"].count("Bergen")


async def test_a_session_from_the_first_word_to_the_end(me: AsyncUserMemory) -> None:
    monday = me.session("monday")
    with pytest.raises(Problem, match="404 not_found"):
        await monday.get()
    await monday.append("I live in Boston.")
    await monday.append("Which part?", role="assistant")
    await monday.append([{"role": "user", "content": "Back Bay"}])
    said = [(one["seq"], one["role"], one["content"]) async for one in monday.messages(limit=2)]
    assert said == [(1, "user", "I live in Boston."), (2, "assistant", "Which part?"), (3, "user", "Back Bay")]
    context = await monday.context("Where do I live?", budget=500, format="messages")
    assert context["tokens"] <= 500
    assert [one["content"] for one in context["messages"]][-2:] == ["Back Bay", "Where do I live?"]
    assert (await me.context("Where do I live?", session="monday"))["budget"] == 2000
    assert (await monday.end())["status"] in ("queued", "running", "succeeded")
    with pytest.raises(Problem) as ended:
        await monday.append("More", reopen=False)
    assert ended.value.code == "session_ended"
    assert (await monday.append("More"))["items"][0]["seq"] == 4
    assert (await monday.get())["status"] == "active"
    await monday.delete()
    assert [one async for one in me.sessions()] == []


async def test_facts(me: AsyncUserMemory) -> None:
    await me.facts.add("Ada", "lives_in", "Boston", valid_from="2024-05-01T00:00:00Z", cardinality="one")
    await me.facts.add("Ada", "lives_in", "Paris", valid_from="2025-09-01T00:00:00Z", cardinality="one")
    assert {one["object"] async for one in me.facts} == {"Paris"}
    then = [one["object"] async for one in me.facts.all(as_of="2024-06-01T00:00:00Z")]
    assert then == ["Boston"]
    found = await me.facts.search("Where does Ada live?", limit=1)
    assert found[0]["fact"]["object"] == "Paris"
    await me.facts.retract(found[0]["fact"]["fact_id"])
    assert [one["object"] async for one in me.facts] == []


async def test_documents(me: AsyncUserMemory) -> None:
    sent = await me.documents.add("fern.md", "# Ferns\n\nWater ferns daily.", metadata={"topic": "ferns"})
    with anyio.fail_after(60):
        while (operation := await me.documents.operation(sent))["status"] in UNDER_WAY:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert operation["status"] == "succeeded"
    document = await me.documents.get(sent["document_id"])
    assert (document["status"], document["passages"], document["media_type"]) == ("ready", 1, "text/markdown")
    (hit,) = await me.search("When do ferns get water?", filters={"topic": "ferns"})
    assert hit["memory"]["context"] == "fern.md › Ferns"
    latin = await me.documents.add("b.txt", "Süß".encode("latin-1"), media_type="text/plain; charset=iso-8859-1")
    assert [one["name"] async for one in me.documents] == ["b.txt", "fern.md"]
    assert [one["document_id"] async for one in me.documents.all("b.txt")] == [latin["document_id"]]
    bob = AsyncUserMemory(me.client, "bob", "support")
    assert [one async for one in bob.documents] == []
    await me.documents.delete(document["document_id"])
    with pytest.raises(Problem, match="404 not_found"):
        await me.documents.get(document["document_id"])


async def test_a_profile(me: AsyncUserMemory) -> None:
    assert await me.profile.get() is None
    await me.profile.update(name="Ada", interests=["chess"])
    await me.profile.update(interests=["astronomy"])
    profile = await me.profile.get()
    assert profile is not None
    assert (profile["name"], profile["interests"]) == ("Ada", ["chess", "astronomy"])


async def test_feedback_update_and_forget(me: AsyncUserMemory) -> None:
    await me.add("Ada prefers tea")
    (hit,) = await me.search("tea")
    applied = await me.feedback(hit, helpful=True, query="tea")
    assert (applied["applied"], applied["helpful_count"]) == (True, 1)
    changed = await me.update(hit, importance=0.9)
    assert changed["version"] > hit["memory"]["version"]
    plan = await me.forget(policy={"max_importance": 1.0, "older_than_days": 0})
    assert plan["dry_run"]
    assert (await me.get(hit))["status"] == "active"
    await me.forget(hit)
    with pytest.raises(Problem, match="404 not_found"):
        await me.get(hit["memory"]["memory_id"])
    with pytest.raises(TypeError, match="a memory or a policy"):
        await me.forget()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="memory's id"):
        await me.forget({"score": 1})


async def test_a_policy_is_applied(me: AsyncUserMemory) -> None:
    made = await me.add("Ada prefers tea")
    begun = await me.forget(policy={"max_importance": 1.0, "older_than_days": 0}, apply=True)
    with anyio.fail_after(60):
        while (operation := await me.client.get_operation(begun["operation_id"]))["status"] in UNDER_WAY:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert operation["status"] == "succeeded"
    assert (await me.get(made))["status"] == "archived"


async def test_lists_have_every_item_once_over_many_pages(me: AsyncUserMemory) -> None:
    contents = [f"Ada owns book number {number}" for number in range(7)]
    for content in contents:
        await me.add(content, deduplicate=False)
    got = [one["content"] async for one in me.memories(limit=3, order="asc")]
    assert got == contents
    assert [one async for one in me.memories(tag="none")] == []


async def test_what_is_coming_is_listed_in_order(me: AsyncUserMemory) -> None:
    await me.add("Ada visits Oslo", event_at="9000-06-01T00:00:00Z", event_at_precision="month")
    await me.add("Ada pays the rent", due_at="8999-06-01T00:00:00Z")
    kinds = [(one["kind"], one["memory"] and one["memory"]["content"]) async for one in me.upcoming()]
    assert kinds == [("due", "Ada pays the rent"), ("plan", "Ada visits Oslo")]
    assert [one["kind"] async for one in me.upcoming("9000-01-01T00:00:00Z")] == ["due"]


async def test_erasing_removes_all_of_the_user(me: AsyncUserMemory) -> None:
    await me.add("Ada prefers tea")
    await me.profile.update(name="Ada")
    await me.erase()
    assert [one async for one in me.memories()] == []


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("later", "now"),
    [
        (AsyncRecalld, Recalld),
        (AsyncUserMemory, UserMemory),
        (AsyncUserSession, UserSession),
        (AsyncUserDocuments, UserDocuments),
        (AsyncUserFacts, UserFacts),
        (AsyncUserProfile, UserProfile),
    ],
)
async def test_both_clients_have_the_same_methods(later: type, now: type) -> None:
    def shape(kind: type) -> dict[str, list[str]]:
        names = {name: member for name, member in vars(kind).items() if not name.startswith("_") and callable(member)}
        return {name.replace("aclose", "close"): list(signature(member).parameters) for name, member in names.items()}

    assert shape(later) == shape(now)
    assert shape(later) or later is AsyncRecalld
