"""What other systems export is taken in as it is documented, and what is not is said."""

import copy
import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.schemas import identifier
from app.importers import formats
from app.importers.loader import DefaultOwner, ImportRecord, SkippedEntry, bring, mapped_id
from app.storage.schema import Doc
from tests.support.command import Run
from tests.support.identifiers import KNOWN, WRONG, decomposed
from tests.support.server import serving

pytestmark = pytest.mark.anyio
NOW = "2026-06-01T12:00:00.000Z"
ADA = DefaultOwner("support", "ada", NOW)
NOBODY = DefaultOwner(None, None, NOW)

MEM0: Any = {
    "results": [
        {
            "id": "m1",
            "memory": "Prefers tea",
            "user_id": "alex",
            "agent_id": None,
            "run_id": "trip",
            "metadata": {"a.b": 1},
            "categories": ["food"],
            "created_at": "2025-02-01T10:00:00-07:00",
            "hash": "x",
            "score": 0.7,
        },
        {"id": "m2", "memory": "Is away", "user_id": "alex", "expiration_date": "2025-01-01"},
        {"id": "m3", "memory": "", "user_id": "alex"},
        {"id": "m4", "memory": "Whose?", "user_id": "acme/ada"},
        {"id": "m5", "memory": "When?", "user_id": "alex", "created_at": "yesterday"},
        "text",
    ],
    "relations": [{"source": "alex", "relationship": "works_at", "target": "Acme", "user_id": "alex"}, {"source": "x"}],
    "next": "https://example.com/?page=2",
}
ZEP: Any = {
    "nodes": [
        {"uuid": "n1", "name": "Ada", "summary": "An engineer in Boston."},
        {"uuid": "n2", "name": "Boston", "summary": ""},
    ],
    "edges": [
        {
            "uuid": "e1",
            "name": "LIVES_IN",
            "fact": "Ada lives in Boston",
            "source_node_uuid": "n1",
            "target_node_uuid": "n2",
            "valid_at": "2025-05-01T00:00:00Z",
            "invalid_at": None,
            "created_at": "2025-05-02T00:00:00Z",
        },
        {"uuid": "e2", "name": "KNOWS", "fact": "Ada knows Ben", "source_node_uuid": "n1", "target_node_uuid": "n9"},
        {"uuid": "e3", "name": "OWNS", "fact": "Ada owns a dog", "expired_at": "2025-06-01T00:00:00Z"},
    ],
    "threads": [
        {
            "thread_id": "t 1",
            "user_id": "ada",
            "messages": [
                {"uuid": "x", "role": "user", "name": "Ada", "content": "Hello", "created_at": "2025-01-01T00:00:00Z"},
                {"uuid": "y", "role": "assistant", "content": "Hi Ada", "created_at": "2025-01-01T00:00:01Z"},
                {"uuid": "z", "role": "system", "content": "be kind"},
            ],
        }
    ],
}
ZEP_PAGE: Any = {
    "items": [
        {
            "uuid": "x",
            "thread_uuid": "t9",
            "role": "user",
            "content": "Hello",
            "reference_time": "2024-03-01T09:00:00Z",
            "created_at": "2025-01-01T00:00:00Z",
        },
        {
            "uuid": "e9",
            "fact": "Ada owns a boat",
            "name": "OWNS",
            "source_node_name": "Ada",
            "target_node_name": "Boat",
        },
        {"uuid": "n9", "name": "Boat", "summary": "A small one."},
        {"uuid": "e8", "thread_id": "t9", "user_uuid": "u"},
    ],
    "next_cursor": "c2",
    "total_size": 5,
}
LETTA: Any = {
    "agents": [
        {
            "id": "agent-0",
            "name": "Memo bot",
            "system": "You are …",
            "block_ids": ["block-0", "block-1"],
            "messages": [
                {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "You are …"}]},
                {"id": "message-1", "role": "user", "content": [{"type": "text", "text": "I like jazz"}]},
                {"id": "message-2", "role": "user", "content": '{"type": "heartbeat", "time": "now"}'},
                {"id": "message-3", "role": "user", "content": '{"type": "user_message", "message": "And blues"}'},
                {"id": "message-4", "role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
            ],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "persona", "value": "I am brief.", "limit": 5000},
        {"id": "block-1", "label": "human", "value": "Her name is Ada.", "description": "About the user"},
        {"id": "block-2", "label": "unused", "value": "Nobody's"},
    ],
    "tools": [{"id": "tool-0"}],
    "files": [],
}
REDIS: Any = {
    "memories": [
        {
            "id": "01J",
            "text": "User visited Paris",
            "memory_type": "episodic",
            "user_id": "ada",
            "topics": ["travel"],
            "entities": ["Paris"],
            "event_date": "2025-03-01T00:00:00Z",
            "pinned": True,
            "namespace": "app",
        },
        {"id": "01K", "text": "Likes maps", "memory_type": "semantic", "user_id": "ada"},
    ],
    "total": 2,
    "next_offset": None,
}
WORKING: Any = {
    "session_id": "s1",
    "user_id": "ada",
    "messages": [{"role": "user", "content": "Book a flight", "id": "1", "created_at": "2025-01-01T00:00:00Z"}],
    "memories": [{"id": "w1", "text": "Flies economy", "memory_type": "semantic"}],
    "context": "They planned a trip.",
    "data": {"step": 3},
}


def called(name: str, arguments: Any, **more: Any) -> Doc:
    return {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}],
        **more,
    }


SPOKEN: Any = {
    "agents": [
        {
            "id": "agent-1",
            "name": "Memo",
            "messages": [
                {"role": "user", "content": '{"type": "user_message", "message": "Where do I live?"}'},
                called("archival_memory_search", '{"query": "home"}', content="I should look that up."),
                {"role": "tool", "content": '{"status": "OK"}', "tool_call_id": "c"},
                called("send_message", '{"message": "In Boston."}', content="Now I can answer."),
                called("send_message", {"message": "Since May."}),
                {
                    "role": "assistant",
                    "tool_call": {"name": "send_message", "arguments": '{"message": "Anything else?"}'},
                },
                called("send_message", '{"message": '),
            ],
        }
    ]
}


class Called:
    """The service as an import calls it. It is cut short at call number `most`."""

    def __init__(self, api: httpx.AsyncClient, most: int = 10_000) -> None:
        self._api, self._left = api, most

    async def post(self, path: str, body: Doc) -> str | None:
        answer = await self._call("POST", path, json=body)
        return None if answer.is_success else answer.text

    async def get(self, path: str) -> Any:
        answer = await self._call("GET", path)
        return answer.json() if answer.is_success else None

    async def _call(self, method: str, path: str, **given: Any) -> httpx.Response:
        self._left -= 1
        if self._left < 0:
            raise ConnectionError
        return await self._api.request(method, path, **given)


def bodies(found: list[Any], kind: str) -> list[Doc]:
    return [one.body for one in found if isinstance(one, ImportRecord) and one.kind == kind]


def left(found: list[Any]) -> dict[str, str]:
    return {one.where: one.reason for one in found if isinstance(one, SkippedEntry)}


def test_mem0() -> None:
    found = list(formats.read_mem0(MEM0, NOBODY))
    made, mapped = bodies(found, "memory")
    assert made["content"] == "Prefers tea"
    assert mapped["user_id"] == mapped_id("acme/ada")
    assert (made["user_id"], made.get("agent_id"), made["key"], made["tags"]) == ("alex", None, "mem0:m1", ["food"])
    assert made["event_at"] == "2025-02-01T17:00:00.000Z"
    assert made["metadata"] == {"a.b": 1, "imported_from": {"system": "mem0", "id": "m1"}}
    assert made["source"] == {"session_id": "trip"}
    (fact,) = bodies(found, "fact")
    assert (fact["subject"], fact["predicate"], fact["object"]) == ("alex", "works_at", "Acme")
    said = left(found)
    assert set(said) == {*(f"/results/{n}" for n in (1, 2, 4, 5)), "/relations/1", "/next"}
    assert "expired" in said["/results/1"]
    assert "'yesterday'" in said["/results/4"]
    assert "--user" in left(list(formats.read_mem0([{"memory": "x"}], NOBODY)))["/results/0"]


def test_zep() -> None:
    found = list(formats.read_zep(ZEP, ADA))
    (fact,) = bodies(found, "fact")
    assert (fact["subject"], fact["predicate"], fact["object"]) == ("Ada", "LIVES_IN", "Boston")
    assert fact["valid_from"] == "2025-05-01T00:00:00.000Z"
    assert [one["content"] for one in bodies(found, "memory")] == ["Ada knows Ben", "Ada: An engineer in Boston."]
    sessions = {one.session["session_id"] for one in found if isinstance(one, ImportRecord) and one.session}
    assert sessions == {"zep-t 1"}
    assert set(left(found)) == {"/edges/2", "/nodes/1", "/threads/0/messages/2"}


def test_a_page_of_zep_is_read_and_what_is_missing_is_said() -> None:
    found = list(formats.read_zep(ZEP_PAGE, ADA))
    (message,) = [one for one in found if isinstance(one, ImportRecord) and one.kind == "message"]
    assert message.session is not None
    assert (message.session["session_id"], message.body["timestamp"]) == ("zep-t9", "2024-03-01T09:00:00.000Z")
    assert [one["object"] for one in bodies(found, "fact")] == ["Boat"]
    assert [one["content"] for one in bodies(found, "memory")] == ["Boat: A small one."]
    assert set(left(found)) == {"/items/3", "/next_cursor"}
    inside = {
        "nodes": {"items": ZEP["nodes"], "next_cursor": None},
        "edges": {"items": ZEP["edges"], "next_cursor": "c"},
        "threads": [{"thread_id": "t", "messages": {"items": ZEP["threads"][0]["messages"], "next_cursor": "d"}}],
    }
    found = list(formats.read_zep(inside, ADA))
    assert [len(bodies(found, kind)) for kind in ("fact", "memory", "message")] == [1, 2, 2]
    assert {"/edges/next_cursor", "/threads/0/messages/next_cursor"} <= set(left(found))


@pytest.mark.parametrize(
    ("day", "until"),
    [
        ("2026-06-01", "2026-06-02T00:00:00.000Z"),
        ("2026-06-02T00:00:00Z", "2026-06-03T00:00:00.000Z"),
        ("9999-12-31", None),
    ],
)
def test_a_memory_of_mem0_lasts_through_the_day_on_which_it_expires(day: str, until: str | None) -> None:
    (made,) = bodies(list(formats.read_mem0([{"id": "1", "memory": "x", "expiration_date": day}], ADA)), "memory")
    assert made.get("expires_at") == until
    expired = {"id": "1", "memory": "x", "expiration_date": "2026-05-31"}
    assert bodies(list(formats.read_mem0([expired], ADA)), "memory") == []


def test_what_letta_has_deleted_stays_out() -> None:
    passages = [{"id": "p", "text": "Old", "is_deleted": True}, {"id": "q", "text": "New", "is_deleted": False}]
    found = list(formats.read_letta(passages, ADA))
    assert [one["content"] for one in bodies(found, "memory")] == ["New"]
    assert left(found) == {"/0": "it was deleted"}


def test_letta() -> None:
    found = list(formats.read_letta(LETTA, DefaultOwner(None, "ada", NOW)))
    persona, human = bodies(found, "memory")
    assert (persona["agent_id"], persona.get("user_id"), persona["memory_type"]) == ("Memo bot", None, "instruction")
    assert (human["agent_id"], human["user_id"], human["context"]) == ("Memo bot", "ada", "About the user")
    assert [one["content"] for one in bodies(found, "message")] == ["I like jazz", "And blues"]
    assert "heartbeat" in left(found)["/agents/0/messages/2"]
    assert {"/tools", "/agents/0/system", "/agents/0/messages/0", "/agents/0/messages/4"} <= set(left(found))
    old = {"name": "memgpt", "core_memory": [{"label": "human", "value": "Likes go"}], "messages": []}
    (block,) = bodies(list(formats.read_letta(old, ADA)), "memory")
    assert (block["agent_id"], block["content"]) == ("support", "Likes go")
    passage = {"id": "p", "text": "Archived", "agent_id": "agent-1", "created_at": "2025-01-01T00:00:00"}
    (archived,) = bodies(list(formats.read_letta([passage], NOBODY)), "memory")
    assert (archived["agent_id"], archived["event_at"]) == ("agent-1", "2025-01-01T00:00:00.000Z")


def test_agent_memory_server() -> None:
    first, second = bodies(list(formats.read_agent_memory_server(REDIS, NOBODY)), "memory")
    assert (first["memory_type"], first["tags"], first["pinned"]) == ("experience", ["travel"], True)
    assert first["metadata"]["entities"] == ["Paris"]
    assert (second["memory_type"], second["key"]) == ("fact", "agent-memory-server:01K")
    of_session = {"memories": [{"id": "01L", "text": "Likes Rome", "session_id": "s 1"}]}
    (made,) = bodies(list(formats.read_agent_memory_server(of_session, ADA)), "memory")
    assert (made["source"], made["metadata"].get("session_id")) == ({"session_id": mapped_id("s 1")}, None)
    found = list(formats.read_agent_memory_server(WORKING, ADA))
    assert [one["memory_type"] for one in bodies(found, "memory")] == ["fact", "summary"]
    assert bodies(found, "memory")[0]["user_id"] == "ada"
    assert [one["content"] for one in bodies(found, "message")] == ["Book a flight"]
    assert list(left(found)) == ["/0/data"]


ODD: list[Any] = [
    7, -1.5, True, None, "", "x", "\ud800", [], [7], [[]], {}, {"a": 7}, {"items": 7}, {"items": [7]}, float("inf"),
    "[" * 5_000, '{"type": "user_message", "message": 7}',
]  # fmt: skip


def with_odd(value: Any) -> Iterator[Any]:
    """The value with each of the odd ones in the place of it, and of each part of it."""
    yield from ODD
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        for changed in with_odd(part):
            copied = copy.copy(value)
            copied[name] = changed
            yield copied


@pytest.mark.parametrize(
    ("read", "whole"),
    [
        (formats.read_mem0, MEM0),
        (formats.read_zep, ZEP),
        (formats.read_zep, ZEP_PAGE),
        (formats.read_letta, LETTA),
        (formats.read_letta, SPOKEN),
        (formats.read_agent_memory_server, REDIS),
        (formats.read_agent_memory_server, WORKING),
    ],
)
def test_no_odd_value_ends_an_import(read: Any, whole: Any) -> None:
    for changed in with_odd(whole):
        if isinstance(changed, dict | list):
            list(read(changed, ADA))


def test_it_all_arrives_and_again_changes_nothing(data: Path, run: Run, tmp_path: Path) -> None:
    big = {"id": "m9", "memory": "x" * 40_000, "user_id": "alex"}
    files = {"mem0": {"results": [MEM0["results"][0], big]}, "zep": ZEP, "letta": LETTA, "agent-memory-server": REDIS}
    taken: dict[str, Any] = {}
    for system, content in files.items():
        path = tmp_path / f"{system}.json"
        path.write_text(json.dumps(content))
        options = ("import", "--from", system, str(path), "--user", "ada", "--agent", "support", "--json")
        assert json.loads(run(*options, "--dry-run").stdout)["dry_run"] is True
        ended = run(*options)
        taken[system] = json.loads(ended.stdout)
        assert ended.returncode == (3 if taken[system]["left"] else 0), ended.stderr
    assert taken["mem0"]["taken"] == {"memory": 1}
    of_run = run("search", "tea", "--user", "alex", "--filters", '{"run_id": "trip"}', "--json")
    assert [hit["memory"]["content"] for hit in json.loads(of_run.stdout)["items"]] == ["Prefers tea"]
    assert taken["mem0"]["left"][0]["such_as"] == ["/results/1"]
    assert "32000 characters" in taken["mem0"]["left"][0]["reason"]
    assert taken["zep"]["taken"] == {"memory": 2, "fact": 1, "message": 2}
    assert taken["letta"]["taken"] == {"memory": 2, "message": 2}
    again = run("import", "--from", "zep", str(tmp_path / "zep.json"), "--user", "ada", "--agent", "support")
    assert "Taken: 2 memories, 1 facts" in again.stdout
    assert "Already there: 2 messages" in again.stdout
    assert "taken in" not in again.stdout
    for broken in ("nothing.json", "broken.json"):
        (tmp_path / "broken.json").write_text("{")
        refused = run("import", "--from", "mem0", str(tmp_path / broken))
        assert (refused.returncode, refused.stdout) == (1, "")


async def test_what_is_imported_says_so(api: httpx.AsyncClient) -> None:
    """And nothing else can be said by a caller."""
    memory: Doc = {"user_id": "ada", "content": "Prefers tea", "origin": "import"}
    fact: Doc = {"user_id": "ada", "subject": "Ada", "predicate": "likes", "object": "tea", "origin": "import"}
    for path, body in (("/v1/memories", memory), ("/v1/facts", fact)):
        made = await api.post(f"{path}/batch", json={"items": [body]})
        assert [one["source"]["origin"] for one in made.json()["items"]] == ["import"]
        refused = await api.post(path, json=body | {"origin": "extraction"})
        assert refused.status_code == 422
        other = {name: value for name, value in body.items() if name != "origin"} | {"user_id": "bob"}
        assert (await api.post(path, json=other)).json()["source"]["origin"] == "api"


async def test_memories_and_facts_of_other_systems_say_that_they_were_imported(api: httpx.AsyncClient) -> None:
    report = await bring(list(formats.read_zep(ZEP, ADA)), Called(api))
    assert report.taken == {"memory": 2, "fact": 1, "message": 2}
    facts = (await api.get("/v1/facts", params={"user_id": "ada", "agent_id": "support"})).json()["items"]
    assert {one["source"]["origin"] for one in facts} == {"import"}
    memories = (await api.get("/v1/memories", params={"user_id": "ada"})).json()["items"]
    assert sorted(one["source"]["origin"] for one in memories) == ["import", "import", "message", "message"]


def test_erased_users_stay_out_unless_they_are_to_come_back(data: Path, run: Run, tmp_path: Path) -> None:
    with serving(data) as server:
        assert server.client.delete("/v1/users/alex").status_code == 200
        assert server.stop() == 0
    file = tmp_path / "mem0.json"
    others = {"id": "m7", "memory": "Likes rain", "user_id": "bea"}
    file.write_text(json.dumps({"results": [MEM0["results"][0], others], "relations": MEM0["relations"][:1]}))
    options = ("import", "--from", "mem0", str(file), "--json")
    refused = run(*options)
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["erased"], told["erased_checked"]) == (3, {"alex": 2}, True)
    assert told["taken"] == {"memory": 1}
    assert "alex" in refused.stderr
    restored = run(*options, "--restore-erased")
    told = json.loads(restored.stdout)
    assert (restored.returncode, told["taken"], told["erased"]) == (0, {"memory": 2, "fact": 1}, {})
    with serving(data) as server:
        url = ("--url", str(server.client.base_url).rstrip("/"))
        told = json.loads(run(*options, *url).stdout)
        assert (told["erased"], told["erased_checked"]) == ({}, False)
        assert "Not checked" in run(*options[:-1], *url).stdout


# --- What Letta's agents said -----------------------------------------------------------------------------------------


def test_what_a_letta_agent_sends_by_its_tool_is_what_it_said() -> None:
    found = list(formats.read_letta(SPOKEN, ADA))
    said = [(one["role"], one["content"]) for one in bodies(found, "message")]
    assert said == [
        ("user", "Where do I live?"),
        ("assistant", "In Boston."),
        ("assistant", "Since May."),
        ("assistant", "Anything else?"),
    ]
    skipped = {one.where: one for one in found if isinstance(one, SkippedEntry)}
    at = "/agents/0/messages"
    assert {where: one.is_memory for where, one in skipped.items()} == {
        f"{at}/1": False,
        f"{at}/2": False,
        f"{at}/6": True,
    }
    assert "send_message" in skipped[f"{at}/6"].reason


def test_an_agent_that_never_sends_speaks_by_its_text() -> None:
    messages = [called("search", "{}", content="Let me look."), {"role": "assistant", "content": "In Boston."}]
    found = list(formats.read_letta({"agents": [{"name": "Memo", "messages": messages}]}, ADA))
    assert [one["content"] for one in bodies(found, "message")] == ["Let me look.", "In Boston."]


# --- Ids of the source ------------------------------------------------------------------------------------------------


def test_an_id_that_is_none_here_gets_one_that_is() -> None:
    for name in (*WRONG.values(), "a/b/c", "x" * 5_000, "\ud800"):
        if name:
            assert identifier(mapped_id(name)) == mapped_id(name)
            assert mapped_id(mapped_id(name)) == mapped_id(name)
    assert mapped_id("a/b") != mapped_id("a-b")
    assert mapped_id("a/b") != mapped_id("a\tb")
    for name in KNOWN:
        assert mapped_id(decomposed(name)) == name


def test_numbers_are_ids_and_other_things_are_none() -> None:
    owner = DefaultOwner(None, None, NOW)
    found = list(formats.read_mem0([{"memory": "x", "user_id": 7}, {"memory": "y", "user_id": ["u"]}], owner))
    assert [one["user_id"] for one in bodies(found, "memory")] == ["7"]
    assert list(left(found)) == ["/results/1"]


def test_the_report_says_which_ids_were_mapped(data: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mem0.json"
    file.write_text(
        json.dumps(
            [
                {"id": "1", "memory": "Likes tea", "user_id": "acme/ada"},
                {"id": "2", "memory": "Is tall", "user_id": "auth0|5f"},
            ]
        )
    )
    ended = run("import", "--from", "mem0", str(file), "--json")
    assert (ended.returncode, json.loads(ended.stdout)["mapped"]) == (0, {"acme/ada": mapped_id("acme/ada")})
    assert mapped_id("acme/ada") in run("import", "--from", "mem0", str(file)).stdout
    refused = run("import", "--from", "mem0", str(file), "--user", "a/b")
    assert refused.returncode == 1
    assert "--user: must be 1 to 255 printable characters" in refused.stderr


# --- Files as tools write them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_ends_no_import(data: Path, run: Run, tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps([{"id": "1", "memory": "Likes tea – often", "user_id": "ada"}]), encoding=encoding)
    assert json.loads(run("import", "--from", "mem0", str(file), "--json").stdout)["taken"] == {"memory": 1}
    if encoding == "utf-8-sig":
        for name in ("ada", "all"):
            export = tmp_path / f"{name}.jsonl"
            with serving(data) as server:
                written = server.client.get("/v1/users/ada/export").content if name == "ada" else b""
            if name == "all":
                assert run("export", str(export)).returncode == 0
                written = export.read_bytes()
            export.write_bytes(BOM_UTF8 + written)
            assert run("import", str(export)).returncode == 0


def test_what_is_deep_or_huge_in_one_record_does_not_end_the_import(data: Path, run: Run, tmp_path: Path) -> None:
    def deep(levels: int) -> str:
        return f'{{"id": "d{levels}", "memory": "x", "metadata": {"[" * levels + "]" * levels}, "score": 1}}'

    file = tmp_path / "mem0.json"
    big = '{"id": "b", "memory": "x", "metadata": {"n": ' + "9" * 5_000 + "}}"
    kept = '{"id": "k", "memory": "Has \\"[\\" in it", "raw": ' + "[" * 900 + "]" * 900 + "}"
    file.write_text(
        f"[{deep(700)}, {deep(100_000)}, {big}, {kept}]".replace('"metadata": [', '"metadata": {"m": [').replace(
            '], "score"', ']}, "score"'
        )
    )
    ended = run("import", "--from", "mem0", str(file), "--user", "ada", "--json")
    told = json.loads(ended.stdout)
    assert told["taken"] == {"memory": 1}, ended.stderr
    assert sorted(where for one in told["left"] for where in one["such_as"]) == [
        "/results/0",
        "/results/1",
        "/results/2",
    ]


# --- What the command says --------------------------------------------------------------------------------------------


def test_an_import_that_takes_all_prints_no_empty_table(data: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps([{"id": "1", "memory": "Likes tea", "user_id": "ada"}]))
    for command in (("--dry-run",), ()):
        ended = run("import", "--from", "mem0", str(file), *command)
        assert ended.returncode == 0
        lines = [line for line in ended.stdout.splitlines() if not line.startswith("Not checked")]
        assert lines == ["Would take: 1 memories" if command else "Taken: 1 memories"]
    exported = tmp_path / "all.jsonl"
    assert run("export", str(exported)).returncode == 0
    again = run("import", str(exported))
    assert (again.returncode, len(again.stdout.splitlines())) == (0, 1)


def test_the_exit_code_tells_whether_records_were_left_out(data: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps([{"id": "1", "memory": "Likes tea", "user_id": "ada"}, {"id": "2", "memory": "Whose?"}]))
    for dry in ((), ("--dry-run",)):
        ended = run("import", "--from", "mem0", str(file), "--json", *dry)
        (reason,) = json.loads(ended.stdout)["left"]
        assert (ended.returncode, reason["such_as"]) == (3, ["/results/1"])
    system = tmp_path / "letta.json"
    system.write_text(json.dumps(LETTA))
    ended = run("import", "--from", "letta", str(system), "--user", "ada", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["left"]) == (0, [])
    assert "/agents/0/system" in {where for one in told["not_memory"] for where in one["such_as"]}


# --- Cut short and begun again ----------------------------------------------------------------------------------------

LONG: Any = {
    "thread_id": "long",
    "user_id": "ada",
    "messages": [
        {
            "role": ("user", "assistant")[at % 2],
            "content": f"Line {at}",
            "created_at": f"2025-01-01T00:{at // 60:02}:{at % 60:02}Z",
        }
        for at in range(230)
    ],
}


async def test_an_import_that_was_cut_short_goes_on_where_it_was(api: httpx.AsyncClient) -> None:
    found = list(formats.read_zep(LONG, ADA))
    with pytest.raises(ConnectionError):
        await bring(found, Called(api, most=2))  # the session and its first hundred
    report = await bring(found, Called(api))
    assert (report.taken, report.there) == ({"message": 130}, {"message": 100})
    assert report.shown()["left"] == []
    again = await bring(found, Called(api))
    assert (again.taken, again.there) == ({}, {"message": 230})
    page = (await api.get("/v1/sessions/zep-long/messages", params={"last": 1000})).json()["items"]
    assert [one["content"] for one in page] == [f"Line {at}" for at in range(230)]


async def test_a_session_with_other_messages_stays_as_it_is(api: httpx.AsyncClient) -> None:
    body = {"agent_id": "support", "user_id": "ada", "messages": [{"role": "user", "content": "Mine"}]}
    assert (await api.post("/v1/sessions/zep-long/messages", json=body)).status_code == 201
    report = await bring(list(formats.read_zep(LONG, ADA)), Called(api))
    (reason,) = report.shown()["left"]
    assert (report.taken, report.there, reason["count"]) == ({}, {}, 230)
    other = {"session_id": "zep-t 1", "agent_id": "support", "user_id": "bob"}
    assert (await api.post("/v1/sessions", json=other)).status_code == 201
    report = await bring(list(formats.read_zep({"threads": ZEP["threads"]}, ADA)), Called(api))
    (reason,) = report.shown()["left"]
    assert report.there == {}
    assert "agent support and user bob have it: import with this --agent and --user" in reason["reason"]


def test_a_file_in_which_nothing_is_found_is_an_error_that_names_the_shape(
    data: Path, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "memories.json"
    for whole, reason in (({"memories_of": [1]}, ""), ([{"said": "x"}], "it has no text; ")):
        file.write_text(json.dumps(whole))
        refused = run("import", "--from", "mem0", str(file), "--user", "ada", "--dry-run")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f'holds no memory of mem0: {reason}give {{"results": […]' in refused.stderr
    file.write_text('{"results": []}')
    empty = run("import", "--from", "mem0", str(file), "--user", "ada", "--dry-run")
    assert (empty.returncode, empty.stdout.splitlines()[0]) == (0, "Would take: nothing")


@pytest.mark.parametrize("bare", [False, True])
def test_a_file_of_another_system_is_told_by_its_name(data: Path, run: Run, tmp_path: Path, bare: bool) -> None:
    file = tmp_path / "memories.json"
    file.write_text(json.dumps(MEM0["results"] if bare else MEM0))
    for more in ((), ("--dry-run",)):
        refused = run("import", "--from", "zep", str(file), "--user", "ada", *more)
        assert refused.returncode == 1
        assert "it reads as a file of mem0" in refused.stderr
        assert "import it with --from mem0" in refused.stderr
    assert not data.exists()
