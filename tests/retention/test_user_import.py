"""A user's export comes in again: into another tenant the same, and it works there as it did."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.audit.tombstones import ErasureKey
from app.audit.trail import owned
from app.cli.archive import ArchiveRefused, first_line, read_user
from app.jobs.queue import RETENTION, Job
from app.lifespan import COLLECTIONS
from app.memories.repository import PENDING
from app.memories.schemas import MEMORIES
from app.retention.user_export import KEPT, NoUserExport, UserReport, begins_user_export, unfit
from app.sessions.schemas import MESSAGES, SESSIONS
from app.settings import JobSettings, Settings
from app.storage.scope import SYSTEM
from app.tasks.schemas import TASKS
from tests.conftest import Service, Starter
from tests.support.identifiers import decomposed, segment
from tests.support.lives import Life
from tests.support.memories import Json
from tests.support.operations import work
from tests.support.planting import plant

pytestmark = pytest.mark.anyio
REBUILT = {
    "agent_memories": {
        "content_hash",
        "due_from",
        "event_until",
        "identity_hash",
        "standing",
        "metadata_terms",
        "replaced_by",
    },
    "memory_history": {
        *(
            "content_hash",
            "due_from",
            "event_until",
            "identity_hash",
            "metadata_terms",
            "anchored_at",
            "dedupe_key",
            "archived_by",
        ),
        *("archived_at", "kept_apart", "merged", "claimed_key", "disputes", "standing", "replaced_by"),
        "document_id",
    },
    "facts": {"content_hash", "group_id", "subject_key", "predicate_key", "object_key"},
    "entity_aliases": {"name_key", "alias_key"},
    "action_logs": {"content_hash", "entity_keys", "tag_keys", "mentions", "tool", "duration_ms", "measured"},
    "messages": {"text", "own_text"},
    "conversation_sessions": {"metadata_terms"},
    "procedures": {"name_key", "content_hash"},
    "procedure_history": {"name_key", "content_hash"},
    "operations": {"undo", "undoing"},
}
"""Internal fields that an import makes itself; those of past versions are read by nobody."""


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Without background work: what is exported is what was said."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


class Tenants:
    """Tenants a and b of a service, and what goes from one to the other."""

    def __init__(self, service: Service, folder: Path, a: Json, b: Json) -> None:
        self.service, self.api, self.folder, self.a, self.b = service, service.client, folder, a, b

    async def exported(self, headers: Json, user: str = "ada") -> Path:
        answer = await self.api.get(f"/v1/users/{user}/export", headers=headers)
        file = self.folder / "user.jsonl"
        file.write_text(answer.text)
        return file

    async def imported(self, file: Path, tenant: str = "b", **options: Any) -> UserReport:
        held = self.service.resources
        store: Any = held.store
        return await read_user(store, held.embedder, file, tenant, ErasureKey.of(held.settings), **options)


@pytest.fixture
async def tenants(service: Service, tmp_path: Path) -> Tenants:
    return Tenants(service, tmp_path, await service.key("a"), await service.key("b"))


def lines_of(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def compared(lines: list[Json]) -> dict[tuple[str, str], Json]:
    """Records by what they are, without what an import changes: the origin, and operations under way."""
    found = {}
    by_name = {collection.name: collection for collection in COLLECTIONS}
    for line in lines[1:-1]:
        record = line["record"]
        if line["collection"] == "operations" and record["status"] == "queued":
            continue
        for doc in (record, record.get("record")):
            if isinstance(doc, dict) and isinstance(doc.get("source"), dict):
                doc["source"].pop("origin", None)
        named = {**record, **line.get("kept", {})}
        found[line["collection"], named[by_name[line["collection"]].id_field]] = line
    return found


async def test_into_another_tenant_it_is_the_same(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    file = await tenants.exported(tenants.a)
    report = await tenants.imported(file)
    lines = lines_of(file)
    under_way = [line for line in lines[1:-1] if line["record"].get("status") == "queued"]
    assert report.ok, report.bad[:3]
    assert (report.new, report.left, report.taken) == (len(lines) - 2 - len(under_way), len(under_way), 0)
    again = lines_of(await tenants.exported(tenants.b))
    told = {line["record"]["source"]["origin"] for line in again if line.get("collection") == "agent_memories"}
    assert told == {"import"}
    before, after = compared(lines), compared(again)
    assert before.keys() <= after.keys()
    for name, line in before.items():
        if name[0] == "audit":
            continue
        assert after[name] == line
    run_again = await tenants.imported(file)
    assert (run_again.ok, run_again.new, run_again.there, run_again.taken) == (True, 0, report.new, 0)
    store = tenants.service.resources.store
    assert all(finding.ok for finding in await store.check(deep=True))
    assert await store.find(PENDING, SYSTEM) == []


async def test_every_internal_field_comes_back(tenants: Tenants) -> None:
    """But for what belongs to the store that it lay in: the numbers of jobs, and undo logs."""
    await Life(tenants.api, "ada", tenants.a).lived()
    assert (await tenants.imported(await tenants.exported(tenants.a))).ok
    store = tenants.service.resources.store
    for collection in owned(COLLECTIONS):
        assert set(collection.internal) - {"tenant_id"} <= {
            *KEPT.get(collection.name, ()),
            *REBUILT.get(collection.name, ()),
        }, "say how an import comes by each"
        if collection.name in ("operations", "memory_history", "procedure_history"):
            continue
        for doc in await store.find(collection, "a", limit=1_000):
            new = await store.get(collection, "b", doc[collection.id_field])
            assert new is not None
            expected = doc | {"tenant_id": "b"}
            if "source" in doc and collection.name != "agents":
                expected["source"] = doc["source"] | {"origin": "import"}
            absent = {name for name in new if new[name] is None and name not in expected}
            assert {name: value for name, value in new.items() if name not in absent} == expected


async def test_files_come_along_with_their_texts(tenants: Tenants) -> None:
    body = {"agent_id": "a", "user_id": "ada", "memory_type": "file"}
    for key, content in (("/memories/empty", ""), ("/memories/long", "x" * 100_000)):
        made = await tenants.api.post("/v1/memories", json={**body, "key": key, "content": content}, headers=tenants.a)
        assert made.status_code == 201, made.text
    report = await tenants.imported(await tenants.exported(tenants.a))
    assert report.pending == 0
    page = await tenants.api.get("/v1/memories", params={"key_prefix": "/memories/"}, headers=tenants.b)
    assert sorted(len(memory["content"]) for memory in page.json()["items"]) == [0, 100_000]
    asked = {"agent_id": "a", "user_id": "ada", "query": "word", "top_k": 100}
    hits = (await tenants.api.post("/v1/memories/search", json=asked, headers=tenants.b)).json()["items"]
    assert {hit["memory"]["memory_type"] for hit in hits} & {"file"} == set()


async def test_messages_of_all_vendors_come_along(tenants: Tenants) -> None:
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "41 crates"}
    sent = [{"role": "assistant", "content": "40", "a.b": {"$c": 1}}, {"role": "user", "content": [answer]}]
    body = {"agent_id": "a", "user_id": "ada", "messages": sent}
    await tenants.api.post("/v1/sessions/s/messages", json=body, headers=tenants.a)
    assert (await tenants.imported(await tenants.exported(tenants.a))).ok
    store = tenants.service.resources.store
    old, new = [await store.find(MESSAGES, tenant, order="asc") for tenant in ("a", "b")]
    assert (old[0]["extra"], old[1]["own_text"]) == ({"a.b": {"$c": 1}}, "")
    assert [doc | {"tenant_id": "a"} for doc in new] == old


async def test_figures_of_rolled_up_days_and_keys_of_facts_come_along(tenants: Tenants) -> None:
    api, store, clock = tenants.api, tenants.service.resources.store, tenants.service.clock
    old = {"agent_id": "a", "user_id": "ada", "action_type": "look", "outcome": "success"}
    await api.post("/v1/actions", json={**old, "timestamp": "2026-04-01T00:00:00Z"}, headers=tenants.a)
    await store.commit([Job("retention", SYSTEM).enqueue(clock.now())])
    await work(tenants.service)
    fact = {"agent_id": "a", "user_id": "ada", "subject": "Ada", "predicate": "lives_in", "object": "Rome"}
    await api.post("/v1/facts", json=fact, headers=tenants.a)
    file = await tenants.exported(tenants.a)
    assert (await tenants.imported(file)).ok
    params: Json = {"agent_id": "a", "window_days": 100}
    figures = [
        (await api.get("/v1/actions/stats", params=params, headers=key)).json() for key in (tenants.a, tenants.b)
    ]
    assert figures[0] == figures[1]
    assert figures[0]["counts"] == {"success": 1}
    moved = await api.post("/v1/facts", json={**fact, "predicate": "livesIn", "object": "Oslo"}, headers=tenants.b)
    assert (moved.json()["predicate"], len(moved.json()["supersedes"])) == ("lives_in", 1)


async def test_it_works_there_as_it_did(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    fact = {"agent_id": "a", "user_id": "ada", "subject": "Ada", "predicate": "works_at", "object": "Acme"}
    said = {"agent_id": "a", "user_id": "ada", "messages": [{"role": "user", "content": "more"}]}
    for path, body in (
        ("/v1/facts", fact | {"valid_from": "2020-01-01T00:00:00Z"}),
        ("/v1/sessions/talk-ada/messages", said),
    ):
        assert (await tenants.api.post(path, json=body, headers=tenants.a)).status_code == 201
    assert (await tenants.imported(await tenants.exported(tenants.a))).ok
    paths = [
        *("/v1/sessions/chat-ada/messages", "/v1/tasks/work-ada", "/v1/tasks/work-ada/checkpoints"),
        *("/v1/users/ada/profile", "/v1/facts?user_id=ada&agent_id=a&as_of=2026-06-01T12:00:00Z"),
    ]
    for path in paths:
        answers = [(await tenants.api.get(path, headers=headers)).json() for headers in (tenants.a, tenants.b)]
        for answer in answers:
            for one in answer.get("items", []):
                one.get("source", {}).pop("origin", None)
        assert answers[0] == answers[1], path
        assert answers[0].get("items", True), path
    for path, query in (
        ("/v1/memories/search", {"query": "who wished a good day?", "user_id": "ada", "now": "2026-07-01T00:00:00Z"}),
        ("/v1/facts/search", {"query": "where does ada live?", "user_id": "ada"}),
        ("/v1/actions/search", {"query": "refund", "user_id": "ada"}),
        ("/v1/procedures/search", {"situation": "ada comes", "agent_id": "a", "user_id": "ada"}),
    ):
        found = [
            [item["score"] for item in (await tenants.api.post(path, json=query, headers=headers)).json()["items"]]
            for headers in (tenants.a, tenants.b)
        ]
        assert found[0] == pytest.approx(found[1]), path
        assert found[0], path
    for session, seqs in (("talk-ada", [2, 2]), ("left-ada", [4, 3]), ("new-ada", [4, 3])):
        answers = [
            (await tenants.api.post(f"/v1/sessions/{session}/messages", json=said, headers=headers)).json()
            for headers in (tenants.a, tenants.b)
        ]
        assert [answer["items"][0]["seq"] for answer in answers] == seqs, "past all that is remembered of it"
    kept = [
        (await tenants.api.post("/v1/tasks/work-ada/checkpoints", json={}, headers=headers)).json()["seq"]
        for headers in (tenants.a, tenants.b)
    ]
    assert kept[0] == kept[1]


async def test_a_record_of_another_user_does_not_come_in_by_what_is_kept(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    file = await tenants.exported(tenants.a)
    lines = lines_of(file)
    for line in lines:
        if line.get("collection") == "messages":
            line["kept"]["user_id"] = "bob"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = await tenants.imported(file)
    assert {detail for _, detail in report.bad} == {"belongs to another user than the file"}
    assert await tenants.service.resources.store.find(MESSAGES, "b") == []


async def test_what_is_not_whole_is_told_and_the_rest_comes_in(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    file = await tenants.exported(tenants.a)
    lines = file.read_text().splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if '"agent_memories"' in line)
    memory = json.loads(lines[place])

    def spoiled(**record: Any) -> str:
        return json.dumps(memory | {"record": memory["record"] | record}) + "\n"

    faults = {
        "is no JSON object": "[1]\n",
        "unexpected": "{ not json\n",
        "is no record of a user": json.dumps(memory | {"collection": "api_keys"}) + "\n",
        "another user": spoiled(user_id="bob"),
        "KeyError": json.dumps(memory | {"record": {"memory_id": "m", "user_id": "ada"}}) + "\n",
        "holds no memory_id": spoiled(memory_id=7),
        "tags is no list": spoiled(memory_id="mem_x", tags="none"),
    }
    file.write_text("".join([*lines[: place + 1], *faults.values(), *lines[place + 1 : -1]]))
    report = await tenants.imported(file)
    expected = [*range(place + 2, place + 2 + len(faults)), len(lines) + len(faults)]
    assert [number for number, _ in report.bad] == expected, report.bad
    assert "cut short" in report.bad[-1][1]
    whole = await tenants.imported(await tenants.exported(tenants.a))
    assert (whole.ok, whole.new) == (True, 0)
    short = lines_of(await tenants.exported(tenants.a))
    del short[place]
    file.write_text("".join(json.dumps(line) + "\n" for line in short))
    assert "counts other records" in (await tenants.imported(file)).bad[0][1]


async def test_ids_that_others_have_are_left_alone(tenants: Tenants) -> None:
    """Nor do messages come into a session of somebody else."""
    await Life(tenants.api, "ada", tenants.a).lived()
    said = {"agent_id": "a", "user_id": "bob", "messages": [{"role": "user", "content": "mine"}]}
    path = "/v1/sessions/chat-ada/messages"
    assert (await tenants.api.post(path, json=said, headers=tenants.b)).status_code == 201
    report = await tenants.imported(await tenants.exported(tenants.a))
    assert (report.ok, report.taken) == (True, 4), "the session and its three messages"
    left = (await tenants.api.get(path, headers=tenants.b)).json()["items"]
    assert [one["content"] for one in left] == ["mine"]


async def test_without_the_model_vectors_are_pending(tenants: Tenants) -> None:
    await tenants.api.post("/v1/memories", json={"user_id": "ada", "content": "tea"}, headers=tenants.a)
    file = await tenants.exported(tenants.a)
    held = tenants.service.resources

    class Away:
        name, dim = held.embedder.name, held.embedder.dim

        async def windows(self, texts: Any) -> Any:
            return [[text] for text in texts]

        async def embed_texts(self, texts: Any) -> Any:
            from app.errors import EmbeddingUnavailable  # noqa: PLC0415

            raise EmbeddingUnavailable

    store: Any = held.store
    away: Any = Away()
    report = await read_user(store, away, file, "b", ErasureKey.of(held.settings))
    assert (report.ok, report.new, report.pending) == (True, 1, 1)
    (memory,) = await store.find(MEMORIES, "b")
    assert memory["embedding"]["status"] == "pending"
    assert [doc["document_id"] for doc in await store.find(PENDING, SYSTEM)] == [memory["memory_id"]]


async def test_an_erased_user_stays_out_unless_it_is_on_purpose(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    file = await tenants.exported(tenants.a)
    assert (await tenants.imported(file)).ok
    assert (await tenants.api.delete("/v1/users/ada", headers=tenants.b)).status_code == 200
    report = await tenants.imported(file)
    assert (report.ok, report.new, report.erased) == (False, 0, len(lines_of(file)) - 2)
    kept = file.read_text()
    assert lines_of(await tenants.exported(tenants.b))[-1]["total"] == 0
    file.write_text(kept)
    report = await tenants.imported(file, restore_erased=True)
    assert report.ok
    assert report.new > 50


async def test_it_is_in_the_audit_trail(tenants: Tenants) -> None:
    await tenants.api.post("/v1/memories", json={"user_id": "ada", "content": "tea"}, headers=tenants.a)
    await tenants.imported(await tenants.exported(tenants.a))
    admin = await tenants.service.key("b", verbs="admin")
    asked = {"user_id": "ada", "action": "import_user"}
    (entry,) = (await tenants.api.get("/v1/audit", params=asked, headers=admin)).json()["items"]
    assert entry["changes"] == {"users": {"import": 1}}


@pytest.mark.parametrize("text", ["", "nonsense\n", '{"type":"export","format":9,"user_id":"ada"}\n', "[]\n"])
async def test_another_file_is_refused(tenants: Tenants, text: str) -> None:
    file = tenants.folder / "file"
    file.write_text(text)
    with pytest.raises(NoUserExport):
        await tenants.imported(file)


@pytest.mark.before_store
async def test_a_file_is_known_by_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text, told in (('{"type":"export","format":1}\n', True), ('{"recalld":"tenant"}\n', False), ("", False)):
        file.write_text(text)
        assert begins_user_export(first_line(file)) == told
    with pytest.raises(ArchiveRefused, match="cannot be read"):
        first_line(tmp_path / "nothing")


async def test_a_user_of_any_id_comes_in_under_either_spelling(tenants: Tenants) -> None:
    name = "auth0|J\u00f6rg M\u00fcller"
    body = {"agent_id": "a", "user_id": name, "content": "Likes tea"}
    assert (await tenants.api.post("/v1/memories", json=body, headers=tenants.a)).status_code == 201
    file = await tenants.exported(tenants.a, segment(name))
    file.write_text(decomposed(file.read_text()))
    report = await tenants.imported(file)
    assert (report.user_id, report.new, report.bad) == (name, 1, [])
    (came,) = (await tenants.api.get("/v1/memories", params={"user_id": name}, headers=tenants.b)).json()["items"]
    assert came["user_id"] == name


async def test_a_purged_action_leads_to_its_summary_in_the_other_tenant_too(tenants: Tenants) -> None:
    body = {"agent_id": "a", "user_id": "ada", "action_type": "mail", "timestamp": "2026-04-01T10:00:00Z"}
    action = (await tenants.api.post("/v1/actions", json=body, headers=tenants.a)).json()
    service = tenants.service
    await service.resources.store.commit([Job(RETENTION, SYSTEM).enqueue(service.clock.now())])
    assert await work(service) == 1
    assert (await tenants.imported(await tenants.exported(tenants.a))).ok
    path = f"/v1/actions/{action['action_id']}"
    there, here = [(await tenants.api.get(path, headers=key)).json() for key in (tenants.a, tenants.b)]
    assert there["rolled_up_into"] == here["rolled_up_into"] is not None
    assert here["content"].startswith("On 2026-04-01: 1 action")


async def test_sessions_are_found_by_metadata_in_the_other_tenant_too(tenants: Tenants) -> None:
    session = {"session_id": "s", "agent_id": "a", "user_id": "ada", "metadata": {"channel": "mail"}}
    assert (await tenants.api.post("/v1/sessions", json=session, headers=tenants.a)).status_code == 201
    said = [{"role": "tool", "tool_call_id": "c", "result": {"sky": 1}}, {"role": "user", "content": "gone"}]
    await tenants.api.post("/v1/sessions/s/messages", json={"messages": said}, headers=tenants.a)
    assert (await tenants.api.delete("/v1/sessions/s/messages/2", headers=tenants.a)).status_code == 204
    report = await tenants.imported(await tenants.exported(tenants.a))
    assert report.ok, report.bad
    found = await tenants.api.get("/v1/sessions", params={"metadata": '{"channel": "mail"}'}, headers=tenants.b)
    assert [one["session_id"] for one in found.json()["items"]] == ["s"]
    held = (await tenants.api.get("/v1/sessions/s/messages", headers=tenants.b)).json()["items"]
    assert [(one["seq"], one["result"], one["deleted_at"] is None) for one in held] == [
        (1, {"sky": 1}, True),
        (2, None, False),
    ]
    added = {"messages": [{"role": "user", "content": "next"}]}
    made = await tenants.api.post("/v1/sessions/s/messages", json=added, headers=tenants.b)
    assert made.json()["items"][0]["seq"] == 3


WRONG_SHAPES: dict[str, Json] = {
    "agent_memories": {"tags": 5},
    "facts": {"valid_from": "yesterday"},
    "messages": {"seq": 2**63 - 1},
    TASKS.name: {"status": "unheard of"},
}
UNREACHABLE: dict[str, Json] = {
    "agent_memories": {"memory_id": "a/../b"},
    SESSIONS.name: {"session_id": "a/b"},
    TASKS.name: {"agent_id": " "},
}
"""Ids that no path can name."""
WITHOUT_NEXT: dict[str, Json] = {
    "agent_memories": {"version": 2**63 - 1},
    "facts": {"source": {"origin": "api", "session_id": "s", "message_seq": 2**63 - 1}},
    SESSIONS.name: {"message_count": 2**63 - 1},
    TASKS.name: {"version": -1},
}
"""Numbers that no record has, or whose next one does not fit into 64 bits."""


@pytest.mark.parametrize("faults", [WRONG_SHAPES, UNREACHABLE, WITHOUT_NEXT], ids=["shapes", "ids", "numbers"])
async def test_a_record_that_does_not_fit_is_named_by_its_line_and_left_out(
    tenants: Tenants, faults: dict[str, Json]
) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    file = await tenants.exported(tenants.a)
    lines = lines_of(file)
    wrong = dict(faults)
    expected = []
    for number, line in enumerate(lines, start=1):
        fields = wrong.pop(line.get("collection", ""), None)
        if fields is not None:
            line["record"] |= fields
            expected.append(number)
    assert not wrong
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = await tenants.imported(file)
    assert [number for number, _ in report.bad] == expected, report.bad
    assert not report.ok


async def test_records_that_do_not_fit_are_found_in_a_store(tenants: Tenants) -> None:
    await Life(tenants.api, "ada", tenants.a).lived()
    store = tenants.service.resources.store
    assert all(finding.ok for finding in await unfit(store, COLLECTIONS))
    memory = (await store.find(MEMORIES, "a", limit=1))[0]
    await plant(store, MEMORIES, memory["memory_id"], tenant="a", tags=5)
    (finding,) = [finding for finding in await unfit(store, COLLECTIONS) if not finding.ok]
    assert finding.name == "agent_memories: records"
    assert memory["memory_id"] in finding.detail
