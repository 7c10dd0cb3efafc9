"""Keys over HTTP: made, listed, rotated and revoked by admin keys of their tenant; the secret is shown once."""

import asyncio
import json
import logging
from datetime import timedelta

import httpx
import pytest

from app.auth.keys import Keys
from app.lifespan import COLLECTIONS
from app.settings import Settings
from app.storage.schema import EVERYTHING
from tests.conftest import Service, Starter
from tests.support.memories import Json, problem

pytestmark = pytest.mark.anyio
ALL = "read,write,admin"


async def make(api: httpx.AsyncClient, headers: dict[str, str], expect: int = 201, **fields: object) -> Json:
    body = {"name": "bot", "verbs": ["read"], **fields}
    answer = await api.post("/v1/keys", json=body, headers=headers)
    assert answer.status_code == expect, answer.text
    found: Json = answer.json()
    return found


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def opens(api: httpx.AsyncClient, key: str) -> bool:
    return (await api.get("/v1/memories", headers=bearer(key))).status_code == 200


async def test_a_key_lives_until_it_is_revoked_or_expires(service: Service) -> None:
    api, admin = service.client, await service.key(verbs=ALL)
    kept = await make(api, admin)
    short = await make(api, admin, expires_in=60)
    assert await opens(api, kept["key"])
    assert await opens(api, short["key"])
    service.clock.move(seconds=61)
    assert not await opens(api, short["key"])
    revoked = (await api.post(f"/v1/keys/{kept['id']}/revoke", headers=admin)).json()
    assert revoked["revoked_at"] is not None
    assert not await opens(api, kept["key"])
    again = await api.post(f"/v1/keys/{kept['id']}/revoke", headers=admin)
    assert again.json() == revoked
    listed = (await api.get("/v1/keys", headers=admin)).json()["items"]
    assert [key["id"] for key in listed][:2] == [short["id"], kept["id"]]


async def test_rotation_overlaps(service: Service) -> None:
    api, admin = service.client, await service.key(verbs=ALL)
    old = await make(api, admin, verbs=["read", "write"], users=["ada"], expires_in=3_600, requests_per_second=9.0)
    asked = {"json": {"overlap_seconds": 60}, "headers": admin}
    new = (await api.post(f"/v1/keys/{old['id']}/rotate", **asked)).json()  # type: ignore[arg-type]
    same = ("tenant", "name", "verbs", "agents", "users", "requests_per_second")
    assert [new[name] for name in same] == [old[name] for name in same]
    assert new["replaces"] == old["id"]
    assert await opens(api, old["key"])
    assert await opens(api, new["key"])
    problem(await api.post(f"/v1/keys/{old['id']}/rotate", **asked), 409, "conflict")  # type: ignore[arg-type]
    service.clock.move(seconds=61)
    assert not await opens(api, old["key"])
    assert await opens(api, new["key"])
    service.clock.move(seconds=3_600)
    assert not await opens(api, new["key"])


async def test_an_overlap_never_lengthens_a_life(service: Service) -> None:
    api, admin = service.client, await service.key(verbs=ALL)
    old = await make(api, admin, expires_in=60)
    await api.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_seconds": 3_600}, headers=admin)
    assert (await api.get(f"/v1/keys/{old['id']}", headers=admin)).json()["expires_at"] == old["expires_at"]


async def test_no_key_makes_one_that_may_do_more(service: Service) -> None:
    api, admin = service.client, await service.key(verbs="admin,read")
    await make(api, admin, verbs=["read", "admin"])
    await make(api, admin, 403, verbs=["write"])
    strong = await Keys(service.resources.store, service.clock).list()
    for bound in (await service.key(verbs=ALL, users=["ada"]), await service.key(verbs=ALL, agents=["a"])):
        await make(api, bound, 403)
        problem(await api.get("/v1/keys", headers=bound), 403)
        problem(await api.get("/v1/audit", headers=bound), 403)
    writer = await service.key(verbs="write")
    writer_id = writer["Authorization"].split("_")[1]
    problem(await api.post(f"/v1/keys/{writer_id}/rotate", json={}, headers=admin), 403)
    assert len(strong) == 2


async def test_keys_of_another_tenant_are_as_none(service: Service) -> None:
    api, admin, other = service.client, await service.key(verbs=ALL), await service.key("other", verbs=ALL)
    theirs = other["Authorization"].split("_")[1]
    for method, path in (("GET", ""), ("POST", "/rotate"), ("POST", "/revoke")):
        body: Json | None = {} if path == "/rotate" else None
        answers = [
            (await api.request(method, f"/v1/keys/{key_id}{path}", json=body, headers=admin))
            for key_id in (theirs, "0" * 16)
        ]
        bodies = [problem(answer, 404, "not_found") | {"request_id": ""} for answer in answers]
        assert bodies[0] == bodies[1]
    assert {key["tenant"] for key in (await api.get("/v1/keys", headers=admin)).json()["items"]} == {"default"}


def id_of(headers: dict[str, str]) -> str:
    return headers["Authorization"].split("_")[1]


async def revoke(api: httpx.AsyncClient, headers: dict[str, str], which: str, **body: object) -> httpx.Response:
    return await api.post(f"/v1/keys/{which}/revoke", headers=headers, json=body or None)


async def test_the_last_admin_key_is_revoked_by_force_only(service: Service) -> None:
    api, admin = service.client, await service.key(verbs=ALL)
    await service.key("other", verbs=ALL)  # the following keys are not admins of this tenant, or not for long
    await service.key(verbs="read,write")
    await service.key(verbs=ALL, users=["ada"])
    await service.key(verbs=ALL, agents=["a"])
    gone = await service.key(verbs=ALL)
    await service.key(verbs=ALL, lifetime=timedelta(seconds=60))
    assert (await revoke(api, admin, id_of(gone))).status_code == 200
    service.clock.move(seconds=61)
    problem(await revoke(api, admin, id_of(admin)), 409, "last_admin_key")
    problem(await revoke(api, admin, id_of(admin), force=False), 409, "last_admin_key")
    problem(await revoke(api, admin, id_of(admin), force="yes"), 422, "invalid", "/force")
    assert await opens(api, admin["Authorization"].removeprefix("Bearer "))
    assert (await revoke(api, admin, id_of(admin), force=True)).json()["revoked_at"] is not None
    problem(await revoke(api, admin, id_of(admin)), 401, "unauthorized")


async def test_an_admin_key_is_revoked_while_another_is_valid(service: Service) -> None:
    api, first, second = service.client, await service.key(verbs=ALL), await service.key(verbs="admin")
    assert (await revoke(api, first, id_of(first))).status_code == 200
    problem(await revoke(api, second, id_of(second)), 409, "last_admin_key")
    trail = (await api.get("/v1/audit", params={"action": "revoke_key"}, headers=second)).json()["items"]
    assert [entry["records"] for entry in trail] == [[id_of(first)]]


async def test_of_two_admins_that_revoke_each_other_at_once_one_stays(service: Service) -> None:
    api, admins = service.client, [await service.key(verbs=ALL) for _ in range(4)]
    pairs = [(admin, other) for admin in admins for other in admins]
    answers = await asyncio.gather(*(revoke(api, admin, id_of(other)) for admin, other in pairs))
    assert {answer.status_code for answer in answers} <= {200, 401, 409}
    keys = await Keys(service.resources.store, service.clock).list("default")
    assert [key["revoked_at"] for key in keys].count(None) == 1


async def test_with_authentication_off_nobody_makes_keys(start: Starter, settings: Settings) -> None:
    async with start(settings.model_copy(update={"auth": "off"})) as service:
        await make(service.client, {}, 403)
        problem(await service.client.post(f"/v1/keys/{'0' * 16}/revoke"), 403)


async def test_the_secret_is_shown_once_and_is_nowhere(
    service: Service, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in the stored answer, the store, its files, the logs, the metrics, nor in any error."""
    api, admin = service.client, await service.key(verbs=ALL)
    caplog.set_level(logging.DEBUG)
    sent = {**admin, "Idempotency-Key": "once"}
    made = await make(api, sent)
    replayed = await api.post("/v1/keys", json={"name": "bot", "verbs": ["read"]}, headers=sent)
    assert replayed.headers["idempotency-replayed"] == "true"
    assert replayed.json() == made | {"key": None}
    rotated = await api.post(f"/v1/keys/{made['id']}/rotate", json={}, headers=sent | {"Idempotency-Key": "again"})
    secrets = [key.split("_", 2)[2] for key in (made["key"], rotated.json()["key"], admin["Authorization"])]
    said = [(await api.get(path, headers=admin)).text for path in ("/v1/keys", "/v1/audit", f"/v1/keys/{made['id']}")]
    said.append((await api.get("/metrics")).text)
    for wrong in (f"rk_{'0' * 16}_{secrets[0]}", f"rk_{made['id']}_{secrets[0]}x"):
        said.append((await api.get("/v1/memories", headers=bearer(wrong))).text)
        said.append(
            (await api.get(f"/v1/memories?tag={wrong}%00", headers=bearer(made["key"]))).headers.get("etag", "")
        )
    for collection in COLLECTIONS:
        docs = await service.resources.store.find(collection, None, EVERYTHING, limit=1_000)
        said.append(json.dumps(docs))
    ours = [record for record in caplog.records if not record.name.startswith("httpx")]  # the client of this test
    said.extend(str(vars(record)) for record in ours)
    assert len(ours) > 5
    files = [file.read_bytes() for file in settings.data_dir.rglob("*.*")]
    for secret in secrets:
        assert not any(secret in text for text in said)
        assert not any(secret.encode() in content for content in files)


async def test_a_key_has_a_rate_of_its_own(service: Service) -> None:
    api, admin = service.client, await service.key(verbs=ALL)
    slow, free = await make(api, admin, requests_per_second=0.5), await make(api, admin)
    assert await opens(api, slow["key"])
    refused = await api.get("/v1/memories", headers=bearer(slow["key"]))
    problem(refused, 429, "rate_limited")
    assert int(refused.headers["retry-after"]) in (1, 2)
    assert all([await opens(api, free["key"]) for _ in range(20)])


async def test_the_command_line_does_the_same(service: Service) -> None:
    keys = Keys(service.resources.store, service.clock)
    admin = await service.key(verbs=ALL)
    _, record = await keys.rotate(admin["Authorization"].split("_")[1], timedelta(hours=1))
    trail = (await service.client.get("/v1/audit", headers=admin)).json()["items"]
    assert [(entry["key_id"], entry["action"]) for entry in trail] == [("cli", "rotate_key"), ("cli", "create_key")]
    assert record["id"] in trail[0]["records"]
