"""What other systems export is taken in as it is documented, and what is not is said."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.importers import agent_memory_server, letta, mem0, zep
from app.importers.loader import bring
from app.importers.models import DefaultOwner, ImportRecord, SkippedRecord
from app.storage.schema import Doc
from tests.support.command import Run
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
        {"id": "m4", "memory": "Whose?", "user_id": "not an id!"},
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


def bodies(found: list[Any], kind: str) -> list[Doc]:
    return [one.body for one in found if isinstance(one, ImportRecord) and one.kind == kind]


def left(found: list[Any]) -> dict[str, str]:
    return {one.where: one.reason for one in found if isinstance(one, SkippedRecord)}


def test_mem0() -> None:
    found = list(mem0.read(MEM0, NOBODY))
    (made,) = bodies(found, "memory")
    assert made["content"] == "Prefers tea"
    assert (made["user_id"], made.get("agent_id"), made["key"], made["tags"]) == ("alex", None, "mem0:m1", ["food"])
    assert made["event_at"] == "2025-02-01T17:00:00.000Z"
    assert made["metadata"] == {"a.b": 1, "run_id": "trip", "imported_from": {"system": "mem0", "id": "m1"}}
    (fact,) = bodies(found, "fact")
    assert (fact["subject"], fact["predicate"], fact["object"]) == ("alex", "works_at", "Acme")
    said = left(found)
    assert set(said) == {*(f"/results/{n}" for n in (1, 2, 3, 4, 5)), "/relations/1", "/next"}
    assert "expired" in said["/results/1"]
    assert "'yesterday'" in said["/results/4"]
    assert "--user" in left(list(mem0.read([{"memory": "x"}], NOBODY)))["/results/0"]


def test_zep() -> None:
    found = list(zep.read(ZEP, ADA))
    (fact,) = bodies(found, "fact")
    assert (fact["subject"], fact["predicate"], fact["object"]) == ("Ada", "LIVES_IN", "Boston")
    assert fact["valid_from"] == "2025-05-01T00:00:00.000Z"
    assert [one["content"] for one in bodies(found, "memory")] == ["Ada knows Ben", "Ada: An engineer in Boston."]
    sessions = {one.session["session_id"] for one in found if isinstance(one, ImportRecord) and one.session}
    assert sessions == {"zep-t-1"}
    assert set(left(found)) == {"/edges/2", "/nodes/1", "/threads/0/messages/2"}


def test_letta() -> None:
    found = list(letta.read(LETTA, DefaultOwner(None, "ada", NOW)))
    persona, human = bodies(found, "memory")
    assert (persona["agent_id"], persona.get("user_id"), persona["memory_type"]) == ("Memo-bot", None, "instruction")
    assert (human["agent_id"], human["user_id"], human["context"]) == ("Memo-bot", "ada", "About the user")
    assert [one["content"] for one in bodies(found, "message")] == ["I like jazz", "And blues"]
    assert "heartbeat" in left(found)["/agents/0/messages/2"]
    assert {"/tools", "/agents/0/system", "/agents/0/messages/0", "/agents/0/messages/4"} <= set(left(found))
    old = {"name": "memgpt", "core_memory": [{"label": "human", "value": "Likes go"}], "messages": []}
    (block,) = bodies(list(letta.read(old, ADA)), "memory")
    assert (block["agent_id"], block["content"]) == ("support", "Likes go")
    passage = {"id": "p", "text": "Archived", "agent_id": "agent-1", "created_at": "2025-01-01T00:00:00"}
    (archived,) = bodies(list(letta.read([passage], NOBODY)), "memory")
    assert (archived["agent_id"], archived["event_at"]) == ("agent-1", "2025-01-01T00:00:00.000Z")


def test_agent_memory_server() -> None:
    first, second = bodies(list(agent_memory_server.read(REDIS, NOBODY)), "memory")
    assert (first["memory_type"], first["tags"], first["pinned"]) == ("experience", ["travel"], True)
    assert first["metadata"]["entities"] == ["Paris"]
    assert (second["memory_type"], second["key"]) == ("fact", "agent-memory-server:01K")
    found = list(agent_memory_server.read(WORKING, ADA))
    assert [one["memory_type"] for one in bodies(found, "memory")] == ["fact", "summary"]
    assert bodies(found, "memory")[0]["user_id"] == "ada"
    assert [one["content"] for one in bodies(found, "message")] == ["Book a flight"]
    assert list(left(found)) == ["/0/data"]


@pytest.mark.parametrize("read", [mem0.read, zep.read, letta.read, agent_memory_server.read])
def test_nonsense_is_left(read: Any) -> None:
    for whole in ({}, [], [1], {"results": 7, "edges": 7, "agents": 7, "memories": 7}, {"messages": [None]}):
        assert bodies(list(read(whole, ADA)), "memory") == []


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
        assert ended.returncode == 0, ended.stderr
        taken[system] = json.loads(ended.stdout)
    assert taken["mem0"]["taken"] == {"memory": 1}
    assert taken["mem0"]["left"][0]["such_as"] == ["/results/1"]
    assert "32000 characters" in taken["mem0"]["left"][0]["reason"]
    assert taken["zep"]["taken"] == {"memory": 2, "fact": 1, "message": 2}
    assert taken["letta"]["taken"] == {"memory": 2, "message": 2}
    again = run("import", "--from", "zep", str(tmp_path / "zep.json"), "--user", "ada", "--agent", "support")
    assert "Taken: 2 memories, 1 facts" in again.stdout
    assert "That session_id is taken" in again.stdout
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
    async def post(path: str, body: Doc) -> str | None:
        answer = await api.post(path, json=body)
        return None if answer.is_success else answer.text

    report = await bring(list(zep.read(ZEP, ADA)), post)
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
    assert (refused.returncode, told["erased"], told["erased_checked"]) == (1, {"alex": 2}, True)
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
