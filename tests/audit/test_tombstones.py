"""Tombstones: the key of their hashes is sealed by a key that is not in the store."""

import asyncio
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.audit.tombstones import FILE_NAME, KEY, ErasureKey, Tombstones
from app.cli import retention
from app.errors import ErasureKeyUnavailable
from app.lifespan import COLLECTIONS
from app.settings import Settings
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING
from tests.conftest import Starter
from tests.support.memories import problem, remember

pytestmark = pytest.mark.anyio
SETTING = "k" * 32
USERS = ("ada@example.com", "bob@example.com")


@pytest.fixture
def key(settings: Settings) -> ErasureKey:
    return ErasureKey.of(settings)


async def stored(store: Store) -> list[Any]:
    return [doc for one in COLLECTIONS for doc in await store.find(one, None, EVERYTHING, order="asc", limit=10_000)]


def texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        yield from tree
        for value in tree.values():
            yield from texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from texts(value)


def keys_of(text: str) -> Iterator[bytes]:
    """The bytes that an attacker could take a stored text for."""
    yield text.encode()
    try:
        yield bytes.fromhex(text)
    except ValueError:
        return


async def test_the_file_is_its_owners_alone_whatever_the_umask(store: Store, key: ErasureKey) -> None:
    before = os.umask(0)
    try:
        await Tombstones(store, "default", key).hashed("ada")
    finally:
        os.umask(before)
    assert stat.S_IMODE(key.file.stat().st_mode) == 0o600
    assert len(bytes.fromhex(key.file.read_text())) == 32
    assert [one.name for one in key.directory.iterdir() if FILE_NAME in one.name] == [FILE_NAME]


async def test_no_key_is_made_by_looking(store: Store, key: ErasureKey) -> None:
    stones = Tombstones(store, "default", key)
    assert await stones.known("ada") is None
    assert not await stones.erased_since("ada", "")
    assert not key.file.exists()
    assert await stored(store) == []


def test_two_processes_make_one_key(tmp_path: Path) -> None:
    made = [ErasureKey("", tmp_path / "data") for _ in range(2)]
    for one in made:
        one.directory.mkdir(exist_ok=True)
        one._make()
    assert made[0].read() == made[1].read()


def test_the_text_of_the_file_serves_as_the_setting(tmp_path: Path) -> None:
    key = ErasureKey("", tmp_path).read_or_make()
    assert ErasureKey((tmp_path / FILE_NAME).read_text().strip(), tmp_path / "other").read() == key


def test_a_file_that_holds_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("short\n")
    with pytest.raises(ErasureKeyUnavailable, match="shorter than 32"):
        ErasureKey("", tmp_path).read_or_make()


async def test_two_at_once_agree_on_the_tenants_key(store: Store, key: ErasureKey) -> None:
    hashes = await asyncio.gather(*(Tombstones(store, "default", key).hashed("ada") for _ in range(8)))
    assert len(set(hashes)) == 1
    assert await Tombstones(store, "other", key).hashed("ada") != hashes[0]


async def test_a_list_of_addresses_finds_nobody_by_the_store_alone(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        receipts = [(await service.client.delete(f"/v1/users/{user}")).json() for user in USERS]
        everything = await stored(service.resources.store)
    hashes = {receipt["tombstone"] for receipt in receipts}
    found = set(texts(everything))
    assert hashes <= found
    candidates = {one for text in found for one in keys_of(text)} | {b"", b"default"}
    for user in USERS:
        guesses = {sha256(one + user.encode()).hexdigest() for one in candidates}
        guesses |= {hmac.new(one, user.encode(), sha256).hexdigest() for one in candidates}
        sealed = [one for one in candidates if len(one) == 32]
        for first in sealed:
            for second in sealed:
                mixed = bytes(a ^ b for a, b in zip(first, second, strict=True))
                guesses.add(hmac.new(mixed, user.encode(), sha256).hexdigest())
                masked = bytes(a ^ b for a, b in zip(first, _mask(second), strict=True))
                guesses.add(hmac.new(masked, user.encode(), sha256).hexdigest())
        assert not guesses & hashes
    key = ErasureKey.of(settings).read()
    assert key is not None, "with it the same attack finds them"
    (doc,) = [one for one in everything if one.get("erased_id") == KEY]
    opened = bytes(a ^ b for a, b in zip(bytes.fromhex(doc["sealed"]), _mask(key), strict=True))
    assert {hmac.new(opened, user.encode(), sha256).hexdigest() for user in USERS} == hashes


def _mask(key: bytes) -> bytes:
    return hmac.new(key, b"recalld tombstone" + b"default", sha256).digest()


async def test_a_wrong_key_is_refused_and_nothing_changes(start: Starter, settings: Settings) -> None:
    quiet = settings.model_copy(update={"jobs": settings.jobs.model_copy(update={"enabled": False})})
    async with start(quiet) as service:
        await service.client.delete("/v1/users/bob")
        await remember(service.client, "tea", user_id="ada")
    wrong = quiet.model_copy(update={"erasure_key": SecretStr(SETTING)})
    async with start(wrong) as service:
        store, api = service.resources.store, service.client
        before = await stored(store)
        for answer in (
            await api.delete("/v1/users/ada"),
            await api.get("/v1/users/ada/export"),
            await api.get("/v1/audit", params={"user_id": "ada"}),
        ):
            told = problem(answer, 503, "erasure_key_unavailable")
            assert "RECALLD_ERASURE_KEY" in told["detail"]
        assert await stored(store) == before
        elsewhere = await service.key("elsewhere")
        problem(await api.delete("/v1/users/ada", headers=elsewhere), 503, "erasure_key_unavailable")
    async with start(quiet) as service:
        assert (await service.client.delete("/v1/users/ada", headers=await service.key())).status_code == 200


@pytest.mark.parametrize("damage", ["lost", "another"])
async def test_a_lost_file_is_not_made_anew(start: Starter, settings: Settings, damage: str) -> None:
    file = settings.data_dir / FILE_NAME
    async with start(settings) as service:
        await service.client.delete("/v1/users/bob")
        kept = file.read_text()
        file.unlink()
        if damage == "another":
            file.write_text(secrets.token_hex(32))
        told = problem(await service.client.delete("/v1/users/ada"), 503, "erasure_key_unavailable")
        assert FILE_NAME in told["detail"]
        assert file.exists() == (damage == "another")
        await retention._forget(service.resources.store, "other")
        problem(await service.client.delete("/v1/users/ada"), 503, "erasure_key_unavailable")
        if damage == "another":
            assert await retention._forget(service.resources.store, "default") == 2, "the sealed key, and bob"
        else:
            file.write_text(kept)
        assert (await service.client.delete("/v1/users/ada")).status_code == 200
