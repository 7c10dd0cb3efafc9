"""A store that has lost its keys stays shut: to whom it was served, and at the next start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import apsw
import httpx
import pytest

from app.auth.dependencies import FILE_NAME as MARKER
from app.auth.keys import API_KEYS, Keys, NewKey
from app.lifespan import StartRefused, keys_made
from app.settings import Settings
from app.storage.scope import SYSTEM
from app.storage.sqlite.store import FILE_NAME
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import problem, remember
from tests.support.mongodb import Deployment
from tests.support.stores import Open, Watched

pytestmark = pytest.mark.anyio

Lose = Callable[[], None]
LoseKeys = Callable[[], Awaitable[None]]


def _embedded_keys(settings: Settings) -> None:
    connection = apsw.Connection(str(settings.data_dir / FILE_NAME))
    connection.set_busy_timeout(30_000)
    connection.execute("DELETE FROM api_keys")
    connection.close()


def _mongodb_keys(settings: Settings, deployment: Deployment) -> None:
    with deployment.client() as client:
        client[settings.mongodb.database][API_KEYS.name].delete_many({})


@pytest.fixture
def lose_keys(settings: Settings, engine: str, request: pytest.FixtureRequest) -> LoseKeys:
    """Takes every key from the store, behind the service's back: in a thread, since the service looks for the writes of
    others once in each round of the event loop."""
    if engine == "embedded":
        return partial(asyncio.to_thread, _embedded_keys, settings)
    deployment: Deployment = request.getfixturevalue("mongodb")
    return partial(asyncio.to_thread, _mongodb_keys, settings, deployment)


@pytest.fixture
def lose_store(settings: Settings, engine: str, request: pytest.FixtureRequest) -> Lose:
    """The store's files, or its database, are gone. The data directory stays."""
    if engine == "embedded":

        def delete() -> None:
            for file in settings.data_dir.glob(f"{FILE_NAME}*"):
                file.unlink()

        return delete

    deployment: Deployment = request.getfixturevalue("mongodb")

    def drop() -> None:
        with deployment.client() as client:
            client.drop_database(settings.mongodb.database)

    return drop


async def refused(start: Starter, settings: Settings) -> str:
    with pytest.raises(StartRefused) as caught:
        async with start(settings):
            pass
    return caught.value.detail


async def made_over_http(api: httpx.AsyncClient) -> dict[str, str]:
    made = await api.post("/v1/keys", json={"name": "first", "verbs": ["read", "write", "admin"]})
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['key']}"}


# --- At the start -----------------------------------------------------------------------------------------------------


async def test_a_store_that_is_gone_is_refused_until_a_key_is_made_on_purpose(
    start: Starter, settings: Settings, lose_store: Lose, open_store: Open, engine: str, clock: TurnedClock
) -> None:
    async with start(settings) as service:
        await made_over_http(service.client)
    lose_store()
    for _ in range(2):  # an attempt that was refused changes nothing
        sentence = await refused(start, settings)
        assert all(way in sentence for way in ("Put it back", "recalld restore", "recalld keys create", MARKER))
    if engine == "embedded":
        assert not (settings.data_dir / FILE_NAME).exists()  # a backup can be restored here
    key, _ = await Keys(await open_store(), clock).create(NewKey("default", "again", ["read"]))
    async with start(settings) as service:
        problem(await service.client.get("/v1/memories"), 401, "unauthorized")
        headers = {"Authorization": f"Bearer {key}"}
        assert (await service.client.get("/v1/memories", headers=headers)).json()["items"] == []


async def test_a_store_that_was_emptied_is_refused(start: Starter, settings: Settings, lose_keys: LoseKeys) -> None:
    async with start(settings) as service:
        await made_over_http(service.client)
    await lose_keys()
    await refused(start, settings)


async def test_without_the_file_it_is_a_new_store(start: Starter, settings: Settings, lose_store: Lose) -> None:
    async with start(settings) as service:
        await made_over_http(service.client)
    lose_store()
    keys_made(settings).file.unlink()
    async with start(settings) as service:
        await remember(service.client, "begun anew")


async def test_a_store_that_had_keys_before_there_was_such_a_file_is_noted_at_its_start(
    start: Starter, settings: Settings, lose_keys: LoseKeys
) -> None:
    async with start(settings) as service:
        await service.key()
    with suppress(FileNotFoundError):
        keys_made(settings).file.unlink()
    async with start(settings):
        assert keys_made(settings).names_store()
    await lose_keys()
    await refused(start, settings)


async def test_with_authentication_off_it_starts_and_warns(
    start: Starter, settings: Settings, lose_keys: LoseKeys, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(settings) as service:
        await made_over_http(service.client)
    await lose_keys()
    with caplog.at_level(logging.WARNING):
        async with start(settings.model_copy(update={"auth": "off"})) as service:
            await remember(service.client, "for everybody")
    assert "API keys were made for this store, but it holds none" in caplog.text


async def test_a_store_for_which_no_key_was_made_starts_beside_one_that_has_keys(
    start: Starter, settings: Settings
) -> None:
    """One data directory, used with two stores."""
    settings.data_dir.mkdir(exist_ok=True)
    (settings.data_dir / MARKER).write_text('{"stores": ["mongodb:another"]}')
    async with start(settings) as service:
        await remember(service.client, "Ada prefers tea")


# --- While it runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen_by", ["a request with it", "a request without it", "the start"])
async def test_a_store_that_loses_its_keys_does_not_open_the_door(
    start: Starter, settings: Settings, lose_keys: LoseKeys, seen_by: str
) -> None:
    async with start(settings) as service:
        headers = await service.key()
        if seen_by == "a request with it":
            assert (await service.client.get("/v1/memories", headers=headers)).status_code == 200
        elif seen_by == "a request without it":
            problem(await service.client.get("/v1/memories"), 401, "unauthorized")
        else:
            async with start(settings) as second:
                await lose_keys()
                problem(await second.client.get("/v1/memories"), 401, "unauthorized")
        await lose_keys()
        problem(await service.client.get("/v1/memories"), 401, "unauthorized")
        problem(await service.client.get("/v1/memories", headers=headers), 401, "unauthorized")


async def test_a_key_of_another_process_that_was_never_seen_here_shuts_the_door_too(
    service: Service, settings: Settings
) -> None:
    """The command line made one, and the store lost it before the next request."""
    await remember(service.client, "Ada prefers tea")
    keys_made(settings).note()
    problem(await service.client.get("/v1/memories"), 401, "unauthorized")


async def test_once_the_door_is_shut_a_request_without_a_key_asks_the_store_nothing(
    start: Starter, settings: Settings, watched: list[Watched]
) -> None:
    async with start(settings) as service:
        headers = await service.key()
        await service.client.get("/v1/memories", headers=headers)
        watched[0].watch()
        problem(await service.client.get("/v1/memories"), 401, "unauthorized")
        assert [one for one in watched[0].asked if one.collection is API_KEYS] == []


async def test_a_key_that_was_made_over_http_is_noted_before_the_answer(service: Service, settings: Settings) -> None:
    headers = await made_over_http(service.client)
    assert keys_made(settings).names_store()
    assert await service.resources.store.find(API_KEYS, SYSTEM)
    problem(await service.client.get("/v1/memories"), 401, "unauthorized")
    assert (await service.client.get("/v1/memories", headers=headers)).status_code == 200


async def test_a_first_key_over_http_must_administer_unless_none_shall(api: httpx.AsyncClient) -> None:
    for rights in ({"verbs": ["read", "write"]}, {"verbs": ["read", "write", "admin"], "agents": ["a"]}):
        (error,) = problem(await api.post("/v1/keys", json={"name": "first", **rights}), 422)["errors"]
        assert error["pointer"] == "/verbs"
        assert "--verbs read,write,admin" in error["detail"]
        assert "no_admin" in error["detail"]
    assert (await api.get("/v1/keys")).json()["items"] == []  # and the door is still open
    made = await api.post("/v1/keys", json={"name": "first", "verbs": ["read"], "no_admin": True})
    assert made.status_code == 201
