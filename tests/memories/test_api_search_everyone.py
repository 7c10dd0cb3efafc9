"""A search over everyone's memory: for keys that administer."""

import pytest

from app.storage import repository
from tests.conftest import Service
from tests.support.memories import Json, problem

pytestmark = pytest.mark.anyio
ASKED: Json = {"query": "Who keeps bees?", "everyone": True}


async def test_an_admin_key_finds_the_memories_of_all_people_and_agents(service: Service) -> None:
    api, admin = service.client, await service.key(verbs="read,write,admin")
    assert (await api.post("/v1/memories/search", json=ASKED, headers=admin)).json()["items"] == []
    for owner in ({"user_id": "ada"}, {"user_id": "ben", "agent_id": "a"}, {"agent_id": "b"}):
        body = {**owner, "content": f"{' '.join(owner.values())} keeps bees"}
        assert (await api.post("/v1/memories", json=body, headers=admin)).status_code == 201
    other = await service.key(tenant="other")
    await api.post("/v1/memories", json={"user_id": "eve", "content": "Eve keeps bees"}, headers=other)
    found = (await api.post("/v1/memories/search", json=ASKED, headers=admin)).json()["items"]
    owners = {(hit["memory"]["agent_id"], hit["memory"]["user_id"]) for hit in found}
    assert owners == {(None, "ada"), ("a", "ben"), ("b", None)}


async def test_other_keys_are_refused_and_nobody_searches_everyone_by_leaving_an_id_out(service: Service) -> None:
    api, admin = service.client, await service.key(verbs="read,write,admin")
    for key in (
        await service.key(verbs="read,write"),
        await service.key(verbs="read,write,admin", users=["ada"]),
        await service.key(verbs="read,write,admin", agents=["a"]),
    ):
        problem(await api.post("/v1/memories/search", json=ASKED, headers=key), 403, "forbidden")
    for body in ({"query": "bees"}, {**ASKED, "user_id": "ada"}):
        problem(await api.post("/v1/memories/search", json=body, headers=admin), 422, "invalid")


async def test_a_tenant_that_is_too_large_for_one_search_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, admin = service.client, await service.key(verbs="read,write,admin")
    for user in ("ada", "ben"):
        await api.post("/v1/memories", json={"user_id": user, "content": f"{user} keeps bees"}, headers=admin)
    monkeypatch.setattr(repository, "MOST_PARTITIONS", 1)
    answer = await api.post("/v1/memories/search", json=ASKED, headers=admin)
    (error,) = problem(answer, 422, "invalid", "/everyone")["errors"]
    assert "there are 2 and 2: name a user_id or an agent_id" in error["detail"]
