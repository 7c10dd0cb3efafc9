"""People: profile, interactions, issues and solutions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.facts.profile import USERS
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS
from app.facts.service import FactService
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.service import MemoryService
from app.profiles.users import UserService
from app.retrieval.retriever import Retriever
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, R
from app.storage.scope import Scope
from app.writes.executor import Precondition, run_write
from tests.conftest import Service
from tests.support.memories import Json, found, problem
from tests.support.profiles import USER, know, send

pytestmark = pytest.mark.anyio

PROFILE: Json = {
    "name": "Ada",
    "age": 36,
    "home": "London",
    "occupation": "analyst",
    "interests": ["engines"],
    "conversation_preferences": ["be brief"],
    "preferences": {"a.b": 1, "$set": {"": None}},
    "custom": {"deep": {"er": [None]}},
}
EMPTY: Json = {
    **dict.fromkeys(("name", "age", "home", "occupation")),
    "interests": [],
    "conversation_preferences": [],
    "preferences": {},
    "custom": {},
}


async def test_a_profile_is_there_from_the_first_thing_said(api: httpx.AsyncClient) -> None:
    problem(await api.get(f"{USER}/profile"), 404, "not_found")
    made = await know(api, name="Ada")
    assert made == {**EMPTY, "name": "Ada", **{k: made[k] for k in ("user_id", "version", "created_at", "updated_at")}}
    assert (made["user_id"], made["version"]) == ("ada", 1)
    got = await api.get(f"{USER}/profile")
    assert (got.json(), got.headers["etag"]) == (made, '"1"')


async def test_a_put_replaces_the_whole_profile(api: httpx.AsyncClient) -> None:
    made = await send(api, "PUT", f"{USER}/profile", PROFILE)
    assert {name: made[name] for name in PROFILE} == PROFILE
    replaced = await send(api, "PUT", f"{USER}/profile", {"home": "Ockham"})
    assert {name: replaced[name] for name in EMPTY} == {**EMPTY, "home": "Ockham"}
    assert replaced["version"] == 2
    assert await send(api, "PUT", f"{USER}/profile", {"home": "Ockham"}) == replaced


async def test_a_patch_adds_to_lists_merges_objects_and_overwrites_scalars(api: httpx.AsyncClient) -> None:
    await send(api, "PUT", f"{USER}/profile", PROFILE)
    patch = {"age": None, "home": "Ockham", "interests": ["ENGINES", "music"], "custom": {"deep": {"sea": 1}}}
    patched = await know(api, preferences={"a.b": None, "c": True}, **patch)
    assert {name: patched[name] for name in PROFILE} == {
        **PROFILE,
        "age": None,
        "home": "Ockham",
        "interests": ["engines", "music"],
        "preferences": {"$set": {"": None}, "c": True},
        "custom": {"deep": {"er": [None], "sea": 1}},
    }
    assert (await know(api))["version"] == 2
    assert (await know(api, preferences={"c": 1}))["preferences"]["c"] is not True


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"age": -1}, "/age"),
        ({"age": "36"}, "/age"),
        ({"name": " "}, "/name"),
        ({"interests": [""]}, "/interests/0"),
        ({"user_id": "eve"}, "/user_id"),
    ],
)
async def test_a_bad_patch_is_refused(api: httpx.AsyncClient, body: Json, pointer: str) -> None:
    problem(await api.patch(f"{USER}/profile", json=body), 422, "invalid", pointer)
    problem(await api.get(f"{USER}/profile"), 404, "not_found")


async def test_null_clears_each_part_of_a_profile(api: httpx.AsyncClient) -> None:
    empty = await know(api)
    full: Json = {"name": "Ada", "age": 36, "interests": ["tea"], "conversation_preferences": ["brief"]}
    known = await know(api, **full, preferences={"a": 1}, custom={"b": {"c": 2}}, home="Oslo", occupation="engineer")
    parts = set(known) - {"user_id", "version", "created_at", "updated_at"}
    cleared = await know(api, **dict.fromkeys(parts))
    assert {name: cleared[name] for name in parts} == {name: empty[name] for name in parts}


async def test_an_interaction_leaves_the_profiles_version(api: httpx.AsyncClient) -> None:
    known = await know(api, name="Ada")
    made = await asyncio.gather(
        *(api.post(f"{USER}/interactions", json={"summary": str(at), "outcome": "x"}) for at in range(12))
    )
    assert {response.status_code for response in made} == {201}
    kept = (await send(api, "GET", f"{USER}/interactions"))["items"]
    assert {one["summary"] for one in kept} == {str(at) for at in range(12)}
    assert await send(api, "GET", f"{USER}/profile") == known
    patched = await api.patch(f"{USER}/profile", json={"age": 36}, headers={"If-Match": f'"{known["version"]}"'})
    assert patched.status_code == 200


async def test_concurrent_patches_all_land(api: httpx.AsyncClient) -> None:
    await asyncio.gather(*(know(api, interests=[f"i{at}"], custom={f"k{at}": at}) for at in range(15)))
    profile = await send(api, "GET", f"{USER}/profile")
    assert sorted(profile["interests"]) == sorted(f"i{at}" for at in range(15))
    assert (profile["custom"], profile["version"]) == ({f"k{at}": at for at in range(15)}, 15)


async def test_a_profile_is_changed_on_condition(api: httpx.AsyncClient) -> None:
    path = f"{USER}/profile"
    problem(await api.patch(path, json={"name": "x"}, headers={"If-Match": "*"}), 412, "precondition_failed")
    await know(api, name="Ada")
    answers = await asyncio.gather(
        *(api.put(path, json={"name": f"n{at}"}, headers={"If-Match": '"1"'}) for at in range(10))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9


async def test_a_profile_has_a_limit_across_patches(api: httpx.AsyncClient) -> None:
    """Each patch is small; what they add up to is not."""
    for at in range(8):
        await know(api, custom={f"k{at}": "x" * 32_000})
    refused = problem(
        await api.patch(f"{USER}/profile", json={"preferences": {"more": "x" * 32_000}}), 422, "invalid", "/custom"
    )
    assert "at most 262144 are kept" in refused["detail"]
    assert (await send(api, "GET", f"{USER}/profile"))["preferences"] == {}
    await know(api, preferences={"more": "x" * 32_000}, custom={"k0": None})
    large = {"custom": {f"k{at}": "x" * 32_000 for at in range(9)}}
    problem(await api.put(f"{USER}/profile", json=large), 422, "invalid", "/custom")


async def test_the_last_fifty_interactions_are_kept(api: httpx.AsyncClient) -> None:
    problem(await api.get(f"{USER}/interactions"), 404, "not_found")
    for at in range(53):
        sent = {"summary": f"talk {at}", "outcome": "solved" if at % 2 else None}
        made = await send(api, "POST", f"{USER}/interactions", sent, 201)
        assert {name: made[name] for name in sent} == sent
    kept = (await send(api, "GET", f"{USER}/interactions"))["items"]
    assert [one["summary"] for one in kept] == [f"talk {at}" for at in range(52, 2, -1)]
    told = {"summary": "then", "timestamp": "2026-01-01T02:00:00+02:00"}
    made = await send(api, "POST", f"{USER}/interactions", told, 201)
    assert (made["timestamp"], made["outcome"]) == ("2026-01-01T00:00:00.000Z", None)
    problem(await api.post(f"{USER}/interactions", json={"summary": ""}), 422, "invalid", "/summary")


async def test_concurrent_interactions_all_land(api: httpx.AsyncClient) -> None:
    sent = [f"talk {at}" for at in range(15)]
    await asyncio.gather(*(send(api, "POST", f"{USER}/interactions", {"summary": one}, 201) for one in sent))
    kept = (await send(api, "GET", f"{USER}/interactions"))["items"]
    assert sorted(one["summary"] for one in kept) == sorted(sent)


async def test_an_issue_is_a_memory_that_is_found_again(api: httpx.AsyncClient) -> None:
    issue = await send(api, "POST", f"{USER}/issues", {"description": "The invoice cannot be downloaded"}, 201)
    assert (issue["status"], issue["user_id"], issue["agent_id"]) == ("open", "ada", None)
    fix = {"problem": "The printer is offline", "fix": "Restart the spooler"}
    solution = await send(api, "POST", f"{USER}/solutions", fix, 201)
    assert {name: solution[name] for name in fix} == fix
    owner: Json = {"agent_id": "any", "user_id": "ada"}
    assert await found(api, "same billing document problem as last month", **owner, memory_types=["issue"]) == [
        "The invoice cannot be downloaded"
    ]
    assert "spooler" in (await found(api, "how was the printer fixed", **owner, memory_types=["solution"]))[0]
    memory = await send(api, "GET", f"/v1/memories/{issue['issue_id']}")
    assert (memory["memory_type"], memory["user_id"]) == ("issue", "ada")
    assert (await send(api, "GET", f"{USER}/issues"))["items"] == [issue]
    assert (await send(api, "GET", f"{USER}/solutions"))["items"] == [solution]
    assert (await send(api, "GET", "/v1/users/eve/issues"))["items"] == []


@pytest.mark.parametrize(
    ("kind", "body"), [("issues", {"description": "It is slow"}), ("solutions", {"problem": "slow", "fix": "an index"})]
)
async def test_an_issue_and_a_solution_take_the_time_when_it_happened(
    api: httpx.AsyncClient, kind: str, body: Json
) -> None:
    path = f"{USER}/{kind}"
    when = "2020-02-03T04:05:06.000Z"
    dated = await send(api, "POST", path, {**body, "timestamp": "2020-02-03T05:05:06+01:00"}, 201)
    assert dated["timestamp"] == when
    memory = await send(api, "GET", f"/v1/memories/{dated[f'{kind[:-1]}_id']}")
    assert memory["event_at"] == when
    assert (await send(api, "GET", path))["items"] == [dated]
    elsewhere = await send(api, "POST", f"/v1/users/eve/{kind}", body, 201)
    assert elsewhere["timestamp"] is None
    problem(await api.post(path, json={**body, "timestamp": "yesterday"}), 422, "invalid", "/timestamp")


async def test_the_status_of_an_issue_moves(api: httpx.AsyncClient) -> None:
    issue = await send(api, "POST", f"{USER}/issues", {"description": "It is slow", "agent_id": "a"}, 201)
    path = f"{USER}/issues/{issue['issue_id']}"
    moved: Json = {}
    for status in ("in_progress", "resolved", "closed", "open"):
        moved = await send(api, "PATCH", path, {"status": status})
        assert (moved["status"], moved["description"], moved["agent_id"]) == (status, "It is slow", "a")
    assert (await send(api, "GET", f"{USER}/issues"))["items"] == [moved]
    problem(await api.patch(path, json={"status": "gone"}), 422, "invalid", "/status")
    stale = await api.patch(path, json={"status": "closed"}, headers={"If-Match": '"1"'})
    problem(stale, 412, "precondition_failed")
    other = await send(api, "POST", "/v1/memories", {"user_id": "ada", "content": "no issue"}, 201)
    for wrong in (
        f"/v1/users/eve/issues/{issue['issue_id']}",
        f"{USER}/issues/{other['memory_id']}",
        f"{USER}/issues/x",
    ):
        problem(await api.patch(wrong, json={"status": "closed"}), 404, "not_found")


async def test_the_status_of_an_issue_is_no_write_over_other_metadata(api: httpx.AsyncClient) -> None:
    issue = await send(api, "POST", f"{USER}/issues", {"description": "It is slow"}, 201)
    await send(api, "PATCH", f"/v1/memories/{issue['issue_id']}", {"metadata": {"status": "open", "ticket": 7}})
    await send(api, "PATCH", f"{USER}/issues/{issue['issue_id']}", {"status": "closed"})
    memory = await send(api, "GET", f"/v1/memories/{issue['issue_id']}")
    assert memory["metadata"] == {"status": "closed", "ticket": 7}


async def test_the_status_of_an_issue_is_no_write_over_what_another_process_writes(service: Service) -> None:
    api, held = service.client, service.resources
    issue = await send(api, "POST", f"{USER}/issues", {"description": "It is slow"}, 201)
    path = f"/v1/memories/{issue['issue_id']}"
    meddled = Meddled(held.store, lambda: api.patch(path, json={"metadata": {"status": "open", "ticket": 7}}))
    scope = Scope("default")
    memories = MemoryService(MemoryRepository(meddled, scope), Embeddings(held.embedder), held.clock)
    lookup = Retriever(meddled, scope, held.embedder, FACTS)
    facts = FactService(FactRepository(meddled, scope), Embeddings(held.embedder), lookup, held.clock)
    users = UserService(Repository(meddled, scope, USERS), facts, memories, held.clock)
    answer = await run_write(
        held.store, held.clock, None, lambda: users.set_issue("ada", issue["issue_id"], "closed", Precondition(None))
    )
    assert answer.body["status"] == "closed"
    assert (await send(api, "GET", path))["metadata"] == {"status": "closed", "ticket": 7}


class Meddled:
    """A store where, as soon as somebody has read a document, another changes it; once."""

    def __init__(self, inner: Store, meddle: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._meddle: Callable[[], Awaitable[object]] | None = meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, collection: Collection[R], tenant: str, doc_id: str) -> R | None:
        record = await self._inner.get(collection, tenant, doc_id)
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            await meddle()
        return record


async def test_a_problem_that_comes_back_is_an_issue_of_its_own(api: httpx.AsyncClient) -> None:
    first = await send(api, "POST", f"{USER}/issues", {"description": "It is slow"}, 201)
    await send(api, "PATCH", f"{USER}/issues/{first['issue_id']}", {"status": "closed"})
    again = await send(api, "POST", f"{USER}/issues", {"description": "It is slow"}, 201)
    assert (again["status"], again["issue_id"] == first["issue_id"]) == ("open", False)


async def test_the_longest_problem_and_fix_are_kept(api: httpx.AsyncClient) -> None:
    longest = {"problem": "p" * 32_000, "fix": "f" * 32_000}
    made = await send(api, "POST", f"{USER}/solutions", longest, 201)
    assert {name: made[name] for name in longest} == longest


async def test_users_are_listed_page_by_page(api: httpx.AsyncClient) -> None:
    for at in range(3):
        await send(api, "PATCH", f"/v1/users/u{at}/profile", {"name": f"n{at}"})
    page = await send(api, "GET", "/v1/users?limit=2")
    assert [one["user_id"] for one in page["items"]] == ["u2", "u1"]
    rest = await send(api, "GET", f"/v1/users?limit=2&cursor={page['next_cursor']}")
    assert ([one["user_id"] for one in rest["items"]], rest["next_cursor"]) == (["u0"], None)


CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/profile", None),
    ("GET", "/interactions", None),
    ("GET", "/issues", None),
    ("GET", "/solutions", None),
]


@pytest.mark.parametrize("binding", [{"tenant": "other"}, {"users": ["eve"]}])
async def test_what_is_not_yours_does_not_exist(service: Service, binding: Json) -> None:
    api, owner, stranger = service.client, await service.key(), await service.key(**binding)
    await api.patch(f"{USER}/profile", json={"name": "Ada"}, headers=owner)
    await api.post(f"{USER}/interactions", json={"summary": "secret"}, headers=owner)
    issue = (await api.post(f"{USER}/issues", json={"description": "secret"}, headers=owner)).json()
    await api.post(f"{USER}/solutions", json={"problem": "secret", "fix": "x"}, headers=owner)
    before = (await api.get(f"{USER}/profile", headers=owner)).json()
    for method, path, body in CALLS:
        seen = await api.request(method, USER + path, json=body, headers=stranger)
        absent = await api.request(method, f"/v1/users/nobody{path}", json=body, headers=stranger)
        assert seen.status_code == absent.status_code
        assert "secret" not in seen.text
        assert "Ada" not in seen.text
    closed = await api.patch(f"{USER}/issues/{issue['issue_id']}", json={"status": "closed"}, headers=stranger)
    problem(closed, 404, "not_found")
    assert (await api.get("/v1/users", headers=stranger)).json()["items"] == []
    assert (await api.get(f"{USER}/profile", headers=owner)).json() == before


async def test_a_bound_key_writes_about_its_users_only(service: Service) -> None:
    api = service.client
    for bound in (await service.key(users=["eve"]), await service.key(agents=["a"])):
        for method, path, body in (
            ("PUT", "/profile", {"name": "x"}),
            ("PATCH", "/profile", {"name": "x"}),
            ("POST", "/interactions", {"summary": "x"}),
            ("POST", "/issues", {"description": "x"}),
            ("POST", "/solutions", {"problem": "x", "fix": "y"}),
        ):
            problem(await api.request(method, USER + path, json=body, headers=bound), 403, "forbidden")
    owner = await service.key()
    problem(await api.get(f"{USER}/profile", headers=owner), 404, "not_found")
    bound = await service.key(users=["ada"])
    assert (await api.patch(f"{USER}/profile", json={"name": "x"}, headers=bound)).status_code == 200
