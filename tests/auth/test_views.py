"""Whichever way a caller reads a record (its route, the change feed, an export, MCP), the same is shown, or nothing."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from app.core.clock import rfc3339
from app.core.prompt_text import map_strings, unquote
from app.feed.endpoints import KINDS
from app.lifespan import COLLECTIONS
from app.settings import JobSettings, Settings
from app.storage.changes import Insert
from app.storage.schema import Collection, Doc
from app.tasks.schemas import CHECKPOINTS
from app.views import VIEWS
from tests.conftest import Service
from tests.mcp.conftest import connecting
from tests.support.findings import found
from tests.support.issuer import Issuer
from tests.support.lives import Life
from tests.support.memories import Json

pytestmark = pytest.mark.anyio

USERS = ("service", "bob")
"""The first is the user for whom the issuer's tokens speak."""
LATER = 400
"""Seconds: records of the tests have expired by then, and tokens have not."""
SECRET = "none of the users' business"


class Caller:
    """`await caller.get("/v1/tasks/t")`: the answer, or None where it is 403 or 404."""

    def __init__(self, service: Service, headers: dict[str, str]) -> None:
        self.service, self.headers = service, headers

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.service.client.get(path, params=params, headers=self.headers)
        assert answer.status_code in (200, 403, 404), (path, answer.text)
        return answer.json() if answer.status_code == 200 else None

    async def listed(self, path: str, match: Callable[[Json], bool], **params: Any) -> Any:
        """The item of a list that fits."""
        page = await self.get(path, **params)
        return next((item for item in page["items"] if match(item)), None) if page else None

    async def told(self) -> dict[tuple[str, str], Json | None]:
        """The records that the feed gives, by kind and id."""
        records: dict[tuple[str, str], Json | None] = {}
        after: str | None = None
        while page := await self.get(
            "/v1/changes", include="record", limit=1_000, **({"after": after} if after else {})
        ):
            records |= {(item["kind"], item["id"]): item["record"] for item in page["items"] if item["id"]}
            after = page["next_cursor"]
            if after is None:
                break
        return records

    async def exported(self, user: str) -> list[Json]:
        answer = await self.service.client.get(f"/v1/users/{user}/export", headers=self.headers)
        lines = [json.loads(line) for line in answer.text.splitlines()] if answer.status_code == 200 else []
        return [line for line in lines if line["type"] == "record"]


def part(name: str) -> str:
    return quote(name, safe="")


ROUTES: dict[str, Callable[[Caller, Doc], Awaitable[Any]]] = {
    "memory": lambda caller, doc: caller.get(f"/v1/memories/{doc['memory_id']}"),
    "session": lambda caller, doc: caller.get(f"/v1/sessions/{doc['session_id']}"),
    "message": lambda caller, doc: caller.listed(
        f"/v1/sessions/{doc['session_id']}/messages", lambda item: item["seq"] == doc["seq"], limit=100
    ),
    "document": lambda caller, doc: caller.get(f"/v1/documents/{doc['document_id']}"),
    "task": lambda caller, doc: caller.get(f"/v1/tasks/{doc['task_id']}"),
    "checkpoint": lambda caller, doc: caller.get(f"/v1/tasks/{doc['task_id']}/checkpoints/{doc['seq']}"),
    "action": lambda caller, doc: caller.get(f"/v1/actions/{doc['action_id']}"),
    "fact": lambda caller, doc: caller.get(f"/v1/facts/{doc['fact_id']}"),
    "alias": lambda caller, doc: caller.listed(
        f"/v1/graph/entities/{part(doc['name'])}/aliases",
        lambda item: all(item[name] == doc[name] for name in ("agent_id", "user_id", "alias", "created_at")),
        status="any",
        **{name: doc[name] for name in ("agent_id", "user_id") if doc[name] is not None},
    ),
    "procedure": lambda caller, doc: caller.get(f"/v1/procedures/{doc['procedure_id']}"),
    "profile": lambda caller, doc: caller.get(f"/v1/users/{doc['user_id']}/profile"),
    "agent": lambda caller, doc: caller.get(f"/v1/agents/{doc['agent_id']}"),
    "finding": lambda caller, doc: caller.get(f"/v1/findings/{doc['finding_id']}"),
}
"""How each kind is read over HTTP."""

TOOLS: dict[str, tuple[str, str]] = {
    "memory": ("get_memory", "memory_id"),
    "profile": ("get_profile", "user_id"),
    "task": ("update_task", "task_id"),
}
"""The tools of MCP that read one record."""
LISTS: dict[str, tuple[str, Json]] = {
    "list_memories": ("memory", {"user_id": USERS[0]}),
    "recall": ("memory", {"user_id": USERS[0], "query": "Rome"}),
    "find_facts": ("fact", {"user_id": USERS[0], "query": "where does service live?"}),
    "find_procedure": ("procedure", {"agent_id": "a", "user_id": USERS[0], "situation": "service comes"}),
}
"""Those that list records of a kind, and what they are asked for."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """No jobs: what has expired lies in the store until it is purged."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


@pytest.fixture
async def stocked(guarded: Service) -> Service:
    """Two users and agents with records of every kind; some of them expired, one finding without its evidence."""
    admin = await guarded.key(verbs="read,write,admin")
    api = guarded.client
    api.headers.update(admin)
    for user, agent in zip(USERS, ("a", "b"), strict=True):
        await Life(api, user, admin, agent=agent).lived()
        memories = [
            (await api.post("/v1/memories", json={"agent_id": agent, "user_id": user, "content": text})).json()
            for text in (f"{user} lives in Rome", f"{user} lives in Oslo", f"{user} lives in Bonn")
        ]
        rome, oslo, bonn = (memory["memory_id"] for memory in memories)
        owner = {"agent_id": agent, "user_id": user}
        await found(guarded, rome, oslo, owner=owner)
        await found(guarded, oslo, bonn, owner=owner)
        await api.delete(f"/v1/memories/{bonn}")
        kept = {
            "agent_id": agent,
            "name": agent.upper(),
            "system_prompt": SECRET,
            "settings": {"extraction_instructions": SECRET},
        }
        assert (await api.post("/v1/agents", json=kept)).status_code == 201
        assert (await api.patch(f"/v1/agents/{agent}/experience", json={"heuristics": [SECRET]})).status_code == 200
        soon = {"expires_at": rfc3339(guarded.clock.now() + timedelta(seconds=LATER / 2))}
        for path, body in (
            ("/v1/memories", {**owner, "content": f"{user} is out", **soon}),
            ("/v1/sessions", {**owner, "session_id": f"brief-{user}", **soon}),
            (f"/v1/sessions/brief-{user}/messages", {"messages": [{"role": "user", "content": "hello"}]}),
            ("/v1/tasks", {**owner, "task_id": f"brief-{user}", "goal": "g", **soon}),
            (f"/v1/tasks/brief-{user}/checkpoints", {}),
        ):
            assert (await api.post(path, json=body)).status_code == 201, path
    for body in ({"agent_id": "a", "content": "for all users"}, {"user_id": "bob", "content": "for all agents"}):
        assert (await api.post("/v1/memories", json=body)).status_code == 201
    for name in admin:
        del api.headers[name]
    return guarded


@pytest.fixture
async def callers(stocked: Service, issuer: Issuer) -> dict[str, Caller]:
    now = int(stocked.clock.now().timestamp())  # it stands still, which an issuer's clock does not
    token = issuer.sign(issuer.valid(scope="recalld:read", tenant="default", iat=now, exp=now + 600))
    headers = {
        "admin": await stocked.key(verbs="read,write,admin"),
        "writes": await stocked.key(verbs="write"),
        "reads": await stocked.key(verbs="read"),
        "of a user": await stocked.key(verbs="read", users=["service"]),
        "of another user": await stocked.key(verbs="read", users=["nobody"]),
        "of an agent": await stocked.key(verbs="read", agents=["a"]),
        "of both": await stocked.key(verbs="read", agents=["b"], users=["bob"]),
        "of another tenant": await stocked.key("other", verbs="read"),
        "a token": {"Authorization": f"Bearer {token}"},
    }
    return {name: Caller(stocked, given) for name, given in headers.items()}


async def stored(service: Service, collection: Collection) -> list[Doc]:
    docs = await service.resources.store.find(collection, "default", limit=1_000)
    assert docs, collection.name
    return docs


async def shown(service: Service, caller: Caller) -> dict[tuple[str, str], Any]:
    """What the routes show the caller of everything that is stored, by kind and id."""
    return {
        (kind, doc[view.collection.id_field]): await ROUTES[kind](caller, doc)
        for kind, view in VIEWS.items()
        for doc in await stored(service, view.collection)
    }


def test_every_kind_that_is_told_of_has_a_view_and_a_route_here() -> None:
    kinds = {collection.kind for collection in COLLECTIONS if collection.kind is not None}
    assert kinds == VIEWS.keys() == ROUTES.keys() == set(KINDS)
    assert {view.collection.kind: view.collection for view in VIEWS.values()} == {
        collection.kind: collection for collection in COLLECTIONS if collection.kind is not None
    }


async def test_the_feed_gives_what_the_route_gives(stocked: Service, callers: dict[str, Caller]) -> None:
    for expired in (False, True):
        if expired:
            stocked.clock.move(seconds=LATER)
        for name, caller in callers.items():
            by_route, by_feed = await shown(stocked, caller), await caller.told()
            for key, record in by_route.items():
                assert by_feed.get(key) == record, (name, key)
            assert {key for key, record in by_feed.items() if record} <= by_route.keys(), name
            sees = {kind for (kind, _), record in by_route.items() if record}
            assert sees == {"admin": VIEWS.keys(), "writes": set(), "of another tenant": set()}.get(name, sees), name


async def test_an_export_gives_what_the_routes_give(stocked: Service, callers: dict[str, Caller]) -> None:
    kinds = {view.collection.name: kind for kind, view in VIEWS.items()}
    for expired in (False, True):
        if expired:
            stocked.clock.move(seconds=LATER)
        for name, caller in callers.items():
            by_route = await shown(stocked, caller)
            exported = [line for user in USERS for line in await caller.exported(user)]
            for line in exported:
                if line["collection"] in kinds:
                    kind = kinds[line["collection"]]
                    named = {**line["record"], **line.get("kept", {})}
                    assert line["record"] == by_route[kind, named[VIEWS[kind].collection.id_field]], (name, line)
            of_users = {
                (kind, doc[view.collection.id_field])
                for kind, view in VIEWS.items()
                for doc in await stored(stocked, view.collection)
                if doc["user_id"] in USERS
            }
            number = sum(line["collection"] in kinds for line in exported)
            assert number == sum(by_route[key] is not None for key in of_users), name


async def test_mcp_gives_what_the_routes_give(stocked: Service, callers: dict[str, Caller]) -> None:
    for name, caller in callers.items():
        by_route = await shown(stocked, caller)
        async with connecting(stocked)(headers=caller.headers) as client:
            for (kind, record_id), record in by_route.items():
                if kind not in TOOLS:
                    continue
                tool, argument = TOOLS[kind]
                answer: Any = await client.call_tool(tool, {argument: record_id})
                given = map_strings(answer.structured_content or {}, unquote)
                if record is None:
                    unknown = {"user_id", "version", "recalld_context"} if kind == "profile" else set()
                    assert answer.is_error or {field for field, value in given.items() if value} <= unknown
                    continue
                assert not answer.is_error
                assert given
                same = given.keys() & record.keys() - {"source"}
                assert {field: given[field] for field in same} == {field: record[field] for field in same}
            for tool, (kind, arguments) in LISTS.items():
                answer = await client.call_tool(tool, arguments)
                items = [] if answer.is_error else map_strings(answer.structured_content, unquote)["items"]
                assert items or name != "admin", answer
                for item in items:
                    record = by_route[kind, item[VIEWS[kind].collection.id_field]]
                    assert record is not None, (name, tool, item)
                    assert {field: record.get(field, value) for field, value in item.items()} == item


async def test_what_an_agent_keeps_from_users_is_told_to_none_of_them(
    stocked: Service, callers: dict[str, Caller]
) -> None:
    for name, caller in callers.items():
        told = SECRET in json.dumps([*(await caller.told()).values()])
        assert told == (name in ("admin", "reads", "of an agent")), name


async def test_a_damaged_record_is_left_out_and_keeps_no_other_from_being_shown(
    stocked: Service, callers: dict[str, Caller], caplog: pytest.LogCaptureFixture
) -> None:
    admin, store = callers["admin"], stocked.resources.store
    before, lines = await admin.told(), await admin.exported("bob")
    (checkpoint, *_) = [doc for doc in await stored(stocked, CHECKPOINTS) if doc["task_id"] == "work-bob"]
    broken = {name: value for name, value in checkpoint.items() if name != "reason"}
    await store.commit([Insert(CHECKPOINTS, {**broken, "checkpoint_id": "ckpt_broken", "seq": 1_000})])
    assert await admin.told() == {**before, ("checkpoint", "ckpt_broken"): None}
    assert await admin.exported("bob") == lines
    told = [record for record in caplog.records if getattr(record, "id", None) == "ckpt_broken"]
    assert {(record.kind, record.error) for record in told} == {("checkpoint", "KeyError")}  # type: ignore[attr-defined]
