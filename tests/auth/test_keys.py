"""Who is let in: keys, their verbs, and the open door of a service that has no key yet."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import httpx
import pytest

from app.auth.keys import API_KEYS, Keys, NewKey
from app.errors import Invalid, NotFound
from app.lifespan import StartRefused
from app.settings import JobSettings, Settings
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, problem
from tests.support.stores import Watched

pytestmark = pytest.mark.anyio

FACT = {**OWNER, "content": "x"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def elsewhere(service: Service, peer: str, base_url: str = "http://127.0.0.1") -> httpx.AsyncClient:
    """A client that calls from another address."""
    app = service.client._transport.app  # type: ignore[attr-defined]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(peer, 1)), base_url=base_url)


async def test_this_machine_needs_no_key_until_one_is_made(service: Service) -> None:
    api = service.client
    assert (await api.get("/v1/memories")).status_code == 200
    headers = await service.key()
    body = problem(await api.get("/v1/memories"), 401, "unauthorized")
    assert body["detail"]
    assert (await api.get("/v1/memories")).headers["www-authenticate"] == "Bearer"
    assert (await api.get("/v1/memories", headers=headers)).status_code == 200


async def test_a_revoked_key_leaves_the_door_closed(service: Service) -> None:
    headers = await service.key()
    keys = Keys(service.resources.store, service.clock)
    await keys.revoke(headers["Authorization"].split("_")[1])
    for sent in ({}, headers):
        problem(await service.client.get("/v1/memories", headers=sent), 401, "unauthorized")


async def test_what_was_stored_without_a_key_belongs_to_tenant_default(service: Service) -> None:
    await service.client.post("/v1/memories", json=FACT)
    default, other = await service.key("default"), await service.key("other")
    assert len((await service.client.get("/v1/memories", headers=default)).json()["items"]) == 1
    assert (await service.client.get("/v1/memories", headers=other)).json()["items"] == []


async def test_both_headers_take_a_key(service: Service) -> None:
    key = (await service.key())["Authorization"].removeprefix("Bearer ")
    for headers in (bearer(key), {"Authorization": f"bearer  {key}"}, {"X-API-Key": key}):
        assert (await service.client.get("/v1/memories", headers=headers)).status_code == 200


async def test_an_empty_key_is_none(service: Service) -> None:
    """Clients that openapi-generator makes for Ruby send the header without a key, and shells an unset variable."""
    empty = ({"Authorization": "Bearer "}, {"Authorization": "Bearer"}, {"X-API-Key": ""})
    for headers in empty:
        assert (await service.client.get("/v1/memories", headers=headers)).status_code == 200
    key = (await service.key())["Authorization"].removeprefix("Bearer ")
    for headers in empty:
        told = problem(await service.client.get("/v1/memories", headers=headers), 401, "unauthorized")
        assert told["detail"].startswith("Send your API key")
    both = {"Authorization": "Bearer", "X-API-Key": key}
    assert (await service.client.get("/v1/memories", headers=both)).status_code == 200


async def test_a_key_that_is_not_one_is_refused_always_alike(service: Service) -> None:
    key = (await service.key())["Authorization"].removeprefix("Bearer ")
    keys = Keys(service.resources.store, service.clock)
    brief, _ = await keys.create(NewKey("default", "brief", ["read"], lifetime=timedelta(hours=1)))
    revoked, record = await keys.create(NewKey("default", "revoked", ["read"]))
    await keys.revoke(record["id"])
    service.clock.move(hours=2)
    prefix, key_id, secret = key.split("_", 2)
    wrong_secret = f"{prefix}_{key_id}_{'A' if secret[0] != 'A' else 'B'}{secret[1:]}"
    unknown_id = f"{prefix}_{'0' * 16}_{secret}"
    answers: list[dict[str, Any]] = []
    for bad in (wrong_secret, unknown_id, brief, revoked, key[:-1], f"{key}x", key.upper(), "rk_", "x", "rk_%_'--"):
        response = await service.client.get("/v1/memories", headers=bearer(bad))
        answers.append(problem(response, 401, "unauthorized") | {"request_id": ""})
    assert all(answer == answers[0] for answer in answers)


async def test_a_key_is_looked_up_by_its_id_and_no_other_is_read(
    start: Starter, settings: Settings, watched: list[Watched]
) -> None:
    """However many there are, it takes one look; of what is no key, none."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        right, *_ = [(await service.key())["Authorization"].removeprefix("Bearer ") for _ in range(5)]
        unknown = f"rk_{'0' * 16}_{right.split('_', 2)[2]}"
        for key, status, looks in ((right, 200, 1), (unknown, 401, 1), (right[:-1], 401, 0)):
            watched[0].watch()
            assert (await service.client.get("/v1/memories", headers=bearer(key))).status_code == status
            asked = [(one.method, one.given) for one in watched[0].asked if one.collection is API_KEYS]
            assert asked == [("get", (SYSTEM, key.split("_")[1]))] * looks


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Basic dTpw"}, {"Authorization": "Bearer"}, {"X-API-Key": ""}, {"X-API-Key": "ключ".encode()}],
)
async def test_garbled_credentials_are_refused(service: Service, headers: Any) -> None:
    await service.key()
    problem(await service.client.get("/v1/memories", headers=headers), 401, "unauthorized")


async def test_a_key_lives_until_its_time(service: Service, clock: TurnedClock) -> None:
    headers = await service.key(lifetime=timedelta(days=1))
    clock.move(hours=23, minutes=59)
    assert (await service.client.get("/v1/memories", headers=headers)).status_code == 200
    clock.move(minutes=2)
    problem(await service.client.get("/v1/memories", headers=headers), 401)


async def test_verbs_are_kept_apart(service: Service) -> None:
    read, write, admin = [await service.key(verbs=verb) for verb in ("read", "write", "admin")]
    api = service.client
    search = {**OWNER, "query": "x"}
    assert (await api.post("/v1/memories", json=FACT, headers=write)).status_code == 201
    assert (await api.post("/v1/memories/search", json=search, headers=read)).status_code == 200
    for headers in (read, admin):
        problem(await api.post("/v1/memories", json=FACT, headers=headers), 403, "forbidden")
        problem(await api.delete("/v1/memories", params={"user_id": "u"}, headers=headers), 403, "forbidden")
    for headers in (write, admin):
        problem(await api.get("/v1/memories", headers=headers), 403, "forbidden")
        problem(await api.post("/v1/memories/search", json=search, headers=headers), 403, "forbidden")


async def test_authorisation_comes_before_everything_else_in_a_request(service: Service) -> None:
    read = await service.key(verbs="read")
    for body in (b"{", b"\xff", b'{"x": 1}'):
        problem(await service.client.post("/v1/memories", content=body, headers=read), 403, "forbidden")
        problem(await service.client.post("/v1/memories", content=body), 401, "unauthorized")


# --- Keys themselves --------------------------------------------------------------------------------------------------


async def test_a_secret_is_long_shown_once_and_stored_as_a_hash(service: Service) -> None:
    keys = Keys(service.resources.store, service.clock)
    key, record = await keys.create(NewKey("t", "n", ["read"]))
    secret = key.split("_", 2)[2]
    assert len(secret) * 6 >= 256
    stored = await service.resources.store.get(API_KEYS, SYSTEM, record["id"])
    assert stored is not None
    assert secret not in str(stored)
    assert stored["secret_sha256"] == sha256(secret.encode()).hexdigest()
    assert "secret_sha256" not in record
    assert [listed["id"] for listed in await keys.list("t")] == [record["id"]]
    assert await keys.list("other") == []


@pytest.mark.parametrize(
    "bad",
    [
        NewKey("", "n", ["read"]),
        NewKey("t", " ", ["read"]),
        NewKey("t", "n", []),
        NewKey("t", "n", ["read", "fly"]),
        NewKey("t", "n", ["read"], agents=["a/b"]),
        NewKey("t", "n", ["read"], lifetime=timedelta(0)),
    ],
)
async def test_a_key_that_makes_no_sense_is_not_made(service: Service, bad: NewKey) -> None:
    keys = Keys(service.resources.store, service.clock)
    with pytest.raises(Invalid):
        await keys.create(bad)
    assert not await keys.any_made()


async def test_revoking_is_final_and_an_unknown_key_is_not_found(service: Service, clock: TurnedClock) -> None:
    keys = Keys(service.resources.store, service.clock)
    _, record = await keys.create(NewKey("t", "n", ["read"]))
    first = await keys.revoke(record["id"])
    clock.move(days=1)
    assert (await keys.revoke(record["id"]))["revoked_at"] == first["revoked_at"]
    with pytest.raises(NotFound):
        await keys.revoke("0" * 16)


# --- The open door ----------------------------------------------------------------------------------------------------


async def test_without_a_key_strangers_are_refused(service: Service) -> None:
    async with elsewhere(service, "10.0.0.9") as stranger:
        problem(await stranger.get("/v1/memories"), 403, "forbidden")
        headers = await service.key()
        problem(await stranger.get("/v1/memories"), 401, "unauthorized")
        assert (await stranger.get("/v1/memories", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.9", "e_vil.example", "[", "[::1", "a b", ""]
)
async def test_a_name_that_was_pointed_at_this_machine_is_a_stranger(api: httpx.AsyncClient, host: str) -> None:
    problem(await api.get("/v1/memories", headers={"Host": host}), 403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000"])
async def test_this_machine_has_many_names(api: httpx.AsyncClient, host: str) -> None:
    assert (await api.get("/v1/memories", headers={"Host": host})).status_code == 200


async def test_a_strange_host_does_no_harm_to_writes(service: Service) -> None:
    headers = {**(await service.key()), "Host": "[", "Idempotency-Key": "k"}
    assert (await service.client.post("/v1/memories", json=FACT, headers=headers)).status_code == 201


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.9", "example.org"])
async def test_an_open_address_is_not_served_without_a_key(start: Starter, settings: Settings, host: str) -> None:
    open_door = settings.model_copy(update={"host": host})
    with pytest.raises(StartRefused):
        async with start(open_door):
            pass
    async with start(settings) as service:
        await service.key()
    async with start(open_door) as service:
        problem(await service.client.get("/v1/memories"), 401, "unauthorized")


async def test_authentication_can_be_switched_off_on_purpose(start: Starter, settings: Settings) -> None:
    open_to_all = {"host": "0.0.0.0", "auth": "off", "allowed_hosts": "memory.example"}
    async with (
        start(settings.model_copy(update=open_to_all)) as service,
        elsewhere(service, "10.0.0.9", "http://memory.example") as stranger,
    ):
        assert (await stranger.post("/v1/memories", json=FACT)).status_code == 201
