"""Memories one by one, facts, conversations and profiles by MCP, on both engines."""

import httpx
import pytest

from app.mcp.transport import matched
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TestParts
from tests.mcp.conftest import Connect, call, connecting, refused
from tests.support.memories import Faulty, problem, remember

pytestmark = pytest.mark.anyio
ADA = "?agent_id=a&user_id=u"


async def test_a_list_has_the_own_and_the_shared_memories_by_pages(connect: Connect, api: httpx.AsyncClient) -> None:
    for number in range(7):
        await remember(api, f"Ada's note number {number}", user_id="u", agent_id="a" if number % 2 else "b")
    await remember(api, "Ada is allergic to nuts", user_id="u", agent_id=None, tags=["health"])
    await remember(api, "The office closes at six", user_id=None, agent_id="a")
    async with connect(ADA) as client:
        seen, cursor = list[str](), dict[str, str]()
        while True:
            page = await call(client, "list_memories", limit=2, **cursor)
            assert len(page["items"]) <= 2
            seen += [item["content"] for item in page["items"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert seen == ["Ada is allergic to nuts", *(f"Ada's note number {number}" for number in (5, 3, 1))]
        (item,) = (await call(client, "list_memories", tag="health"))["items"]
        assert item["tags"] == ["health"]
        assert (await call(client, "list_memories", memory_type="preference"))["items"] == []
        assert "cursor" in await refused(client, "list_memories", cursor="nonsense")
        assert "512" in await refused(client, "list_memories", cursor="x" * 70_000)
        assert "/limit" in await refused(client, "list_memories", limit=51)
    async with connect() as client:
        assert "agent_id, user_id or both" in await refused(client, "list_memories")
        assert len((await call(client, "list_memories", agent_id="a"))["items"]) == 4
        assert len((await call(client, "list_memories", user_id="u"))["items"]) == 8


async def test_a_memory_is_read_and_fixed(connect: Connect, api: httpx.AsyncClient) -> None:
    async with connect(ADA) as client:
        made = await call(
            client, "remember", content="Ada lives in Bostn", key="home", source={"note": "said on the phone"}
        )
        memory_id = made["memory_id"]
        got = await call(client, "get_memory", memory_id=memory_id)
        assert (got["content"], got["key"], got["status"], got["source"]["note"]) == (
            "Ada lives in Bostn", "home", "active", "said on the phone",
        )  # fmt: skip
        fixed = await call(client, "update_memory", memory_id=memory_id, content="Ada lives in Boston", tags=["place"])
        assert (fixed["content"], fixed["key"], fixed["tags"]) == ("Ada lives in Boston", "home", ["place"])
        assert "key" not in await call(client, "update_memory", memory_id=memory_id, key=None)
        stored = (await api.get(f"/v1/memories/{memory_id}")).json()
        assert (stored["content"], stored["key"], stored["version"]) == ("Ada lives in Boston", None, 3)
        await call(client, "update_memory", memory_id=memory_id, status="archived")
        assert (await call(client, "recall", query="Boston"))["items"] == []
        assert "at least one field" in await refused(client, "update_memory", memory_id=memory_id)
        assert "Name at least" in await refused(client, "update_memory", memory_id=memory_id, content=None)
        assert "not_found" in await refused(client, "get_memory", memory_id="mem_nothere")
    async with connect("?agent_id=a&user_id=v") as client:
        assert "not_found" in await refused(client, "get_memory", memory_id=memory_id)
        assert "not_found" in await refused(client, "update_memory", memory_id=memory_id, content="x")


async def test_facts_are_asked_as_of_a_time(connect: Connect, api: httpx.AsyncClient) -> None:
    async with connect(ADA) as client:
        told = {"subject": "Ada", "predicate": "lives_in"}
        first = await call(client, "assert_fact", **told, object="Boston", valid_from="2020-01-01T00:00:00Z")
        again = await call(client, "assert_fact", **told, object="Boston", valid_from="2020-01-01T00:00:00Z")
        assert (first["new"], again["new"], again["fact_id"]) == (True, False, first["fact_id"])
        await call(client, "assert_fact", **told, object="Oslo", valid_from="2025-01-01T00:00:00Z")
        for as_of, home in (({}, "Oslo"), ({"as_of": "2022-06-01T00:00:00Z"}, "Boston")):
            (item,) = (await call(client, "find_facts", query="Where does Ada live?", **as_of))["items"]
            assert (item["object"], item["match"] in ("strong", "possible", "weak")) == (home, True)
        assert (await call(client, "find_facts", query="Ada", as_of="2019-01-01T00:00:00Z"))["items"] == []
        assert (await call(client, "find_facts", query="Ada", known_at="2026-05-01T00:00:00Z"))["items"] == []
        for friend in ("Ben", "Eve"):
            await call(client, "assert_fact", subject="Ada", predicate="knows", object=friend, many=True, shared=True)
        known = await call(client, "find_facts", query="whom does Ada know?", predicate="knows")
        assert {item["object"] for item in known["items"]} == {"Ben", "Eve"}
        await call(client, "assert_fact", subject="Ben", predicate="speaks", object="Dutch")
        french = await call(client, "assert_fact", subject="Ben", predicate="speaks", object="French")
        (ended,) = french["superseded"]
        assert ended["object"] == "Dutch"
        assert "superseded" not in await call(client, "assert_fact", **ended["keep_both"])
        spoken = (await call(client, "find_facts", query="languages", predicate="speaks"))["items"]
        assert {fact["object"] for fact in spoken} == {"Dutch", "French"}
        always = await call(client, "assert_fact", subject="Ada", predicate="born_in", object="Rome", valid_from=None)
        assert "valid_from" not in always
        assert "/valid_until" in await refused(client, "assert_fact", **told, object="x", valid_until="soon")
    owners = {(one["predicate"], one["agent_id"]) for one in (await api.get("/v1/facts?user_id=u")).json()["items"]}
    assert owners == {("lives_in", "a"), ("knows", None), ("speaks", "a"), ("born_in", "a")}


async def test_a_conversation_is_appended_to(connect: Connect, api: httpx.AsyncClient) -> None:
    async with connect(ADA) as client:
        said = {"role": "user", "content": "I moved to Turin in May.", "name": "Ada"}
        first = await call(client, "append_messages", session_id="chat-1", messages=[said])
        assert (first["seqs"], len(first["memory_ids"])) == ([1], 1)
        answer = {"role": "assistant", "content": "Noted.", "timestamp": "2026-05-31T10:00:00Z"}
        assert (await call(client, "append_messages", session_id="chat-1", messages=[answer]))["seqs"] == [2]
        assert (await call(client, "recall", query="Where did Ada move?"))["items"][0]["speaker"] == 'user "Ada"'
        assert "/messages/0/role" in await refused(
            client, "append_messages", session_id="chat-1", messages=[{"role": "system", "content": "x"}]
        )
    session = (await api.get("/v1/sessions/chat-1")).json()
    assert (session["agent_id"], session["user_id"], session["message_count"]) == ("a", "u", 2)
    async with connect("?agent_id=a&user_id=v") as client:
        assert "chat-1" not in (await refused(client, "append_messages", session_id="chat-1", messages=[said]))


async def test_a_profile_is_empty_until_it_is_written(connect: Connect, api: httpx.AsyncClient) -> None:
    async with connect(ADA) as client:
        (listed,) = (await client.list_resources()).resources
        empty = await call(client, "get_profile")
        assert (empty["user_id"], empty["name"], empty["interests"], empty["version"]) == ("u", None, [], None)
        (content,) = (await client.read_resource(listed.uri)).contents
        assert '"name":null' in content.text  # type: ignore[union-attr]
        problem(await api.get("/v1/users/u/profile"), 404, "not_found")  # reading stores nothing
        await call(client, "update_profile", name="Ada", home="Boston", interests=["tea"])
        patched = await call(client, "update_profile", home=None, interests=["rain"], custom={"pet": "cat"})
        assert (patched["name"], patched["home"], patched["interests"]) == ("Ada", None, ["tea", "rain"])
        assert (await call(client, "get_profile")) == patched == (await api.get("/v1/users/u/profile")).json()
        assert "at least one field" in await refused(client, "update_profile")
        assert "/age" in await refused(client, "update_profile", age=200)


def test_a_match_is_a_word_of_its_probability() -> None:
    words = {score: matched(score, "hybrid")["match"] for score in (0.95, 0.5, 0.49, 0.2, 0.19, 0.0)}
    assert words == {0.95: "strong", 0.5: "strong", 0.49: "possible", 0.2: "possible", 0.19: "weak", 0.0: "weak"}
    assert matched(7.3, "text") == {}


async def test_a_hit_says_how_well_it_matches(connect: Connect) -> None:
    async with connect(ADA) as client:
        for said in ("Ada lives in Boston", "Ada prefers green tea", "Ada works as a nurse"):
            await call(client, "remember", content=said)
        first, *_ = (await call(client, "recall", query="In which city does Ada live?"))["items"]
        assert (first["content"], first["match"]) == ("Ada lives in Boston", "strong")
        assert first["score"] >= 0.5
        strange = (await call(client, "recall", query="quarterly revenue of the subsidiary in Peru"))["items"]
        assert {item["match"] for item in strange} == {"weak"}


async def test_a_search_by_words_alone_has_no_match(start: Starter, settings: Settings, parts: TestParts) -> None:
    parts.wrap = Faulty
    unattended = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(unattended) as service, connecting(service)(ADA) as client:
        await call(client, "remember", content="Ada lives in Boston")
        assert "match" in (await call(client, "recall", query="Boston"))["items"][0]
        embedder = service.resources.embedder
        assert isinstance(embedder, Faulty)
        embedder.failing = True
        (item,) = (await call(client, "recall", query="Boston"))["items"]
        assert not {"match", "score"} & set(item)


async def test_a_retried_write_is_done_once(connect: Connect, service: Service) -> None:
    from mcp_types import RequestParamsMeta  # noqa: PLC0415

    meta: RequestParamsMeta = {"recalld/idempotency-key": "once"}  # type: ignore[typeddict-unknown-key]
    async with connect(ADA) as client:
        message = {"session_id": "s", "messages": [{"role": "user", "content": "Hello"}]}
        first = await client.call_tool("append_messages", message, meta=meta)
        again = await client.call_tool("append_messages", message, meta=meta)
        assert first.structured_content == again.structured_content
        for _ in range(2):  # a PATCH takes no key: sent again, it changes nothing more
            assert (await call(client, "update_profile", interests=["tea"]))["version"] == 1
    assert (await service.client.get("/v1/sessions/s")).json()["message_count"] == 1


async def test_long_messages_are_kept_as_over_rest(connect: Connect, api: httpx.AsyncClient) -> None:
    long = "begin " + "x" * 50_000 + " end"
    async with connect("?agent_id=a&user_id=u") as client:
        made = await call(client, "append_messages", session_id="m", messages=[{"role": "user", "content": long}])
    assert "beginning and end" in made["warnings"][0]
    (kept,) = (await api.get("/v1/sessions/m/messages")).json()["items"]
    assert "characters left out" in kept["content"]


async def test_a_reminder_is_made_listed_snoozed_and_done(connect: Connect) -> None:
    async with connect(ADA) as client:
        due = {"due_at": "2026-06-02T08:00:00Z", "rrule": "FREQ=DAILY"}
        made = await call(client, "remember", content="Ada waters the ferns", **due)
        await call(
            client, "remember", content="Ada visits Oslo", event_at="2026-06-04T00:00:00Z", event_at_precision="day"
        )
        task = await call(client, "update_task", goal="Write the report", due_at="2026-06-03T08:00:00Z")
        items = (await call(client, "list_upcoming"))["items"]
        assert [(item["at"], item["kind"]) for item in items] == [
            ("2026-06-02T08:00Z", "due"), ("2026-06-03T08:00Z", "due"), ("2026-06-04T00:00Z", "plan"),
        ]  # fmt: skip
        assert (items[1]["task_id"], items[2]["content"]) == (task["task_id"], "Ada visits Oslo")
        named = {"memory_id": made["memory_id"]}
        assert (await call(client, "update_memory", **named, surface_at="2026-06-02T10:00:00Z"))["due_at"][
            :10
        ] == "2026-06-02"
        done = await call(client, "update_memory", **named, done_at="2026-06-02T10:00:00Z")
        assert done["due_at"] == "2026-06-03T08:00:00.000Z"
        assert len((await call(client, "list_upcoming", limit=1))["items"]) == 1
        assert "rrule" in await refused(client, "remember", content="x", due_at=due["due_at"], rrule="FREQ=SECONDLY")
