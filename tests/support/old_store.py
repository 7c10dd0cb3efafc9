"""A store as a release leaves it, in files that stay in the repository, for the tests of upgrades.

Run `python -m tests.support.old_store 1.0.0` in a checkout of that release. It fills a store of each engine by the API
and writes `tests/data/stores/1.0.0/`: `embedded.xz` (the database as `recalld backup` writes it), `mongodb.xz` (its
documents and indexes as extended JSON), and for each the answers to `QUESTIONS` at that time. A folder that is there is
never made again: what it holds is what that release wrote.
"""

import asyncio
import json
import lzma
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
from bson import json_util
from pydantic import SecretStr

from app.embedding.factory import load_model
from app.setting_groups import MongodbSettings
from app.settings import Settings
from app.storage.factory import restore_store, where_of
from app.storage.transfer import MovableStore
from tests.conftest import TestParts, TurnedClock, running, settings_of
from tests.support.mongodb import Deployment, start_mongodb

STORES = Path(__file__).resolve().parents[1] / "data" / "stores"
OWNER: dict[str, Any] = {"agent_id": "support", "user_id": "ada"}
ASKED_AT = datetime(2026, 6, 1, 13, 0, tzinfo=UTC)
_OF_ADA = {"params": OWNER}
_QUIET: dict[str, Any] = {**OWNER, "record_access": False}

QUESTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "/v1/sessions", _OF_ADA),
    ("GET", "/v1/sessions/chat-1/messages", {}),
    ("GET", "/v1/memories", {"params": {**OWNER, "limit": 100}}),
    ("POST", "/v1/memories/search", {"json": {**_QUIET, "query": "Where does Ada live?", "top_k": 5}}),
    ("POST", "/v1/memories/search", {"json": {**_QUIET, "query": "peanuts", "top_k": 3, "tags": ["food"]}}),
    ("POST", "/v1/memories/search", {"json": {**_QUIET, "query": "what went wrong in the third harbour?"}}),
    ("GET", "/v1/facts", {"params": {**OWNER, "status": "any"}}),
    ("GET", "/v1/facts", {"params": {**OWNER, "subject": "ada", "as_of": "2020-01-01T00:00:00Z"}}),
    ("POST", "/v1/facts/search", {"json": {**OWNER, "query": "Where is her home?"}}),
    ("GET", "/v1/graph/entities/Ada Lovelace/aliases", _OF_ADA),
    ("GET", "/v1/graph/entities/Countess/neighbors", _OF_ADA),
    ("GET", "/v1/tasks", _OF_ADA),
    ("GET", "/v1/tasks/compare/checkpoints", {}),
    ("GET", "/v1/actions", _OF_ADA),
    ("POST", "/v1/actions/search", {"json": {**OWNER, "query": "lost parcel"}}),
    ("GET", "/v1/actions/stats", {"params": {"agent_id": "support"}}),
    ("GET", "/v1/procedures", _OF_ADA),
    ("POST", "/v1/procedures/search", {"json": {**OWNER, "situation": "a parcel was lost"}}),
    ("GET", "/v1/users/ada/profile", {}),
    ("GET", "/v1/users/ada/issues", {}),
    ("GET", "/v1/users/ada/interactions", {}),
    ("GET", "/v1/agents/support", {}),
    ("GET", "/v1/agents/support/experience", {}),
    ("GET", "/v1/keys", {}),
)
"""Asked of the store when it was made and after an upgrade."""

_VOLATILE = frozenset({"took_ms", "next_cursor", "score_parts"})


async def fill(api: httpx.AsyncClient) -> None:
    """Writes some records of every kind, and changes and deletes some, so that there are gaps and versions."""

    async def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = await api.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    await call("POST", "/v1/agents", {"agent_id": "support", "name": "Support", "settings": {"decay": {"factor": 0.9}}})
    await call("PATCH", "/v1/agents/support/experience", {"heuristics": ["Ask for the order number first."]})
    await call("POST", "/v1/sessions", {"session_id": "chat-1", **OWNER})
    said = ["I moved to Boston last month.", "I am allergic to peanuts.", "My brother Ben keeps bees in Quincy.", "Hm."]
    words = {"messages": [{"role": "user", "name": "Ada", "content": text} for text in said]}
    await call("POST", "/v1/sessions/chat-1/messages", words, **{"Idempotency-Key": "append-1"})
    call_made = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    more = [
        {"role": "assistant", "tool_calls": [call_made]},
        {"role": "tool", "tool_call_id": "c1", "result": {"a": 1}},
    ]
    await call("POST", "/v1/sessions/chat-1/messages", {"messages": more})
    await call("PATCH", "/v1/sessions/chat-1/messages/1", {"content": "I moved to Boston in May."})
    await call("DELETE", "/v1/sessions/chat-1/messages/4")
    await call("PATCH", "/v1/sessions/chat-1", {"summary": "Ada moved to Boston.", "metadata": {"a.b": {"$c": None}}})
    await _memories(call)
    await _facts(call)
    await _deeds(call)
    ada = {"name": "Ada", "interests": ["climbing"], "custom": {"a.b": {"$c": 1}}}
    await call("PUT", "/v1/users/ada/profile", ada)
    await call("POST", "/v1/users/ada/interactions", {"summary": "Asked about an invoice", "outcome": "answered"})
    await call("POST", "/v1/users/ada/issues", {"description": "Cannot log in since the update"})
    await call("POST", "/v1/users/ada/solutions", {"problem": "Cannot log in", "fix": "Cleared the cache"})


async def _memories(call: Any) -> None:
    memory = {**OWNER, "memory_type": "preference", "tags": ["food"]}
    await call(
        "POST", "/v1/memories", {**memory, "content": "Ada does not eat peanuts", "metadata": {"a.b": [1, None]}}
    )
    home = {**OWNER, "key": "home"}
    await call("POST", "/v1/memories", {**home, "content": "Lives in New York"})
    await call("POST", "/v1/memories", {**home, "content": "Lives in Boston"})
    await call("POST", "/v1/memories", {**home, "content": "Lives in Rome", "trust": 0.4})
    harbours = " ".join(f"In the {n} harbour {w}." for n, w in _HARBOURS)
    made = await call("POST", "/v1/memories", {**OWNER, "content": f"The log of the voyage. {harbours * 6}"})
    await call("PATCH", f"/v1/memories/{made['memory_id']}", {"importance": 0.9, "pinned": True})
    gone = await call("POST", "/v1/memories", {**OWNER, "content": "Something that was deleted again"})
    await call("DELETE", f"/v1/memories/{gone['memory_id']}")
    await call("POST", "/v1/memories", {"agent_id": "support", "content": "Shop hours are nine to five"})


_HARBOURS = (
    ("first", "the crew took water and bread on board"),
    ("second", "a pilot showed them the channel between the rocks"),
    ("third", "the anchor chain broke, and a fishing boat towed them out"),
)


async def _facts(call: Any) -> None:
    home = {**OWNER, "subject": "Ada", "predicate": "lives_in"}
    await call("POST", "/v1/facts", {**home, "object": "New York", "valid_from": "2019-01-01T00:00:00Z"})
    await call("POST", "/v1/facts", {**home, "object": "Boston", "valid_from": "2026-05-01T00:00:00Z"})
    await call("POST", "/v1/facts", {**home, "object": "Paris", "trust": 0.3})
    knows = {**OWNER, "subject": "Ada", "predicate": "knows", "cardinality": "many"}
    await call("POST", "/v1/facts/batch", {"items": [{**knows, "object": name} for name in ("Ben", "Cleo")]})
    await call("POST", "/v1/graph/entities/Ada Lovelace/aliases", {**OWNER, "aliases": ["Ada", "Countess"]})


async def _deeds(call: Any) -> None:
    steps = [{"action": "search", "params": {"a.b": {"$c": None}}}, {"action": "read"}]
    await call("POST", "/v1/tasks", {"task_id": "compare", **OWNER, "goal": "Compare stores", "plan": steps})
    await call("PATCH", "/v1/tasks/compare", {"status": "in_progress"})
    await call("POST", "/v1/tasks/compare/checkpoints", {"label": "halfway"})
    await call("POST", "/v1/tasks/compare/scratchpad", {"content": "Recall matters most", "priority": 2.0})
    action = {**OWNER, "action_type": "refund", "outcome": "success", "entities": ["order-17"]}
    made = await call("POST", "/v1/actions", {**action, "content": "Refunded order 17: the parcel was lost"})
    await call("PATCH", f"/v1/actions/{made['action_id']}/feedback", {"user_rating": 5})
    await call("POST", "/v1/actions/batch", {"items": [{**action, "outcome": "failure"}, {**action, "outcome": None}]})
    refund = {**OWNER, "name": "Refund a lost parcel", "trigger": "A parcel never arrived", "steps": ["Look", "Refund"]}
    way = await call("POST", "/v1/procedures", refund)
    path = f"/v1/procedures/{way['procedure_id']}"
    await call("POST", f"{path}/outcomes", {"success": False, "note": "The carrier answers after nine"})
    await call("PATCH", path, {"steps": ["Look", "Ask", "Refund"]})


async def answers(api: httpx.AsyncClient) -> list[Any]:
    """Returns the answers to `QUESTIONS`, without what differs from one moment to the next."""
    found = []
    for method, path, given in QUESTIONS:
        answer = await api.request(method, path, **given)
        assert answer.status_code == 200, (path, answer.text)
        found.append(lasting(answer.json()))
    return found


def lasting(answer: Any) -> Any:
    """Returns an answer without times taken and cursors, and with rounded numbers."""
    if isinstance(answer, dict):
        return {name: lasting(value) for name, value in answer.items() if name not in _VOLATILE}
    if isinstance(answer, list):
        return [lasting(item) for item in answer]
    return round(answer, 4) if isinstance(answer, float) else answer


def read(release: str, name: str) -> bytes:
    """Returns the content of a file of a release."""
    return lzma.decompress((STORES / release / f"{name}.xz").read_bytes())


def releases() -> list[str]:
    """Returns the releases whose stores are kept."""
    return sorted(folder.name for folder in STORES.iterdir())


def restore_embedded(release: str, settings: Settings) -> None:
    """Puts the embedded store of a release into the data directory, as `recalld restore` does."""
    file = settings.data_dir.with_suffix(".backup")
    file.write_bytes(read(release, "embedded"))
    restore_store(where_of(settings), file)


def restore_mongodb(release: str, deployment: Deployment, name: str) -> None:
    """Puts documents and indexes of a release into an empty database, as `mongorestore` does."""
    with deployment.client() as client:
        for collection, kept in json_util.loads(read(release, "mongodb").decode()).items():
            if kept["documents"]:
                client[name][collection].insert_many(kept["documents"])
            if kept["indexes"]:
                client[name].command("createIndexes", collection, indexes=kept["indexes"])


def dumped(deployment: Deployment, name: str) -> str:
    """Returns documents and indexes of a database as extended JSON."""
    with deployment.client() as client:
        kept = {
            collection: {
                "documents": list(client[name][collection].find().sort("_id")),
                "indexes": [dict(i) for i in client[name][collection].list_indexes() if i["name"] != "_id_"],
            }
            for collection in sorted(client[name].list_collection_names())
        }
    return json_util.dumps(kept, json_options=json_util.CANONICAL_JSON_OPTIONS)


async def _made(settings: Settings, backup: Path | None = None) -> dict[str, Any]:
    """Fills a new store. Returns a key of it and the answers to `QUESTIONS`."""
    async with running(settings, TestParts(load_model("minilm-int8"), TurnedClock())) as service:
        await fill(service.client)
        key = await service.key(verbs="read,write,admin")
        service.client.headers.update(key)
        service.clock.time = ASKED_AT
        found = await answers(service.client)
        if backup is not None:
            await cast(MovableStore, service.resources.store).backup(backup)
    return {"key": key, "answers": found}


def _write(folder: Path, name: str, content: bytes) -> None:
    (folder / f"{name}.xz").write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


def main(release: str) -> None:
    """Makes the files of a release, which must be this checkout's."""
    target = STORES / release
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = asyncio.run(_made(settings_of(folder), folder / "embedded"))
        _write(target, "embedded", (folder / "embedded").read_bytes())
        _write(target, "embedded-answers", json.dumps(made, ensure_ascii=False).encode())
        with start_mongodb(folder / "mongodb") as deployment, deployment.database() as name:
            own = MongodbSettings(database=name, deadline_seconds=30)
            made = asyncio.run(_made(settings_of(folder / "other", store=SecretStr(deployment.uri), mongodb=own)))
            _write(target, "mongodb", dumped(deployment, name).encode())
            _write(target, "mongodb-answers", json.dumps(made, ensure_ascii=False).encode())
    print(*(f"{file.name}: {file.stat().st_size:,} bytes" for file in sorted(target.iterdir())), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
