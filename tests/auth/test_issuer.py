"""The keys of an issuer: fetched when a token needs them, kept, rotated, and not there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from flask import Response
from joserfc.jwk import OctKey, RSAKey

from app.auth.tokens import BETWEEN_SECONDS, FRESH_SECONDS, KEPT_SECONDS, MAX_BYTES, IssuerKeys
from app.errors import IssuerUnavailable
from tests.conftest import Service
from tests.support.issuer import Issuer, issuing
from tests.support.memories import problem

pytestmark = pytest.mark.anyio


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
async def keys(issuer: Issuer, seconds: Seconds, anyio_backend: str) -> AsyncIterator[IssuerKeys]:
    found = IssuerKeys(issuer.url, clock=seconds)
    yield found
    await found.close()


async def known(keys: IssuerKeys, kid: str | None, algorithm: str = "RS256") -> bool:
    return await keys.find(kid, algorithm) is not None


def kid(issuer: Issuer) -> str:
    return str(issuer.keys[-1][1].kid)


async def test_keys_are_fetched_once_for_many(keys: IssuerKeys, issuer: Issuer) -> None:
    found = await asyncio.gather(*(keys.find(kid(issuer), "RS256") for _ in range(50)))
    assert all(key is not None for key in found)
    assert issuer.fetched == 1
    assert not await known(keys, kid(issuer), "ES256"), "a key signs with its own algorithm only"


async def test_a_rotation_is_noticed_by_its_first_token(keys: IssuerKeys, issuer: Issuer, seconds: Seconds) -> None:
    old = kid(issuer)
    assert await known(keys, old)
    issuer.rotate("ES256", keep=True)
    seconds.now += BETWEEN_SECONDS
    assert await known(keys, kid(issuer), "ES256")
    assert await known(keys, old)
    issuer.rotate("RS256")
    seconds.now += BETWEEN_SECONDS
    assert await known(keys, kid(issuer))
    assert not await known(keys, old), "what the issuer has withdrawn is not accepted"


async def test_unknown_keys_do_not_make_it_ask_all_the_time(keys: IssuerKeys, issuer: Issuer, seconds: Seconds) -> None:
    for number in range(200):
        assert not await known(keys, f"unknown{number}")
    assert issuer.fetched == 1
    seconds.now += BETWEEN_SECONDS
    await asyncio.gather(*(known(keys, f"unknown{number}") for number in range(200)))
    assert issuer.fetched == 2


async def test_old_keys_are_renewed_beside_the_request(keys: IssuerKeys, issuer: Issuer, seconds: Seconds) -> None:
    old = kid(issuer)
    assert await known(keys, old)
    issuer.rotate()
    seconds.now += FRESH_SECONDS + 1
    assert await known(keys, old), "the request does not wait"
    fetching = keys._fetching
    assert fetching is not None
    await fetching
    assert issuer.fetched == 2
    assert not await known(keys, old)


async def test_an_issuer_that_is_away_is_asked_seldom_and_its_keys_stay(
    keys: IssuerKeys, issuer: Issuer, seconds: Seconds
) -> None:
    right = kid(issuer)
    assert await known(keys, right)
    issuer.published = Response("busy", 503)
    seconds.now += BETWEEN_SECONDS
    for _ in range(3):
        seconds.now += BETWEEN_SECONDS / 4
        with pytest.raises(IssuerUnavailable) as caught:
            await known(keys, "of tomorrow")
        assert caught.value.retry_after in range(1, 11)
    assert issuer.fetched == 2
    seconds.now += KEPT_SECONDS - 100
    assert await known(keys, right)
    seconds.now += 200
    with pytest.raises(IssuerUnavailable):
        await known(keys, right)
    issuer.published = None
    seconds.now += BETWEEN_SECONDS
    assert await known(keys, right)


WRONG: dict[str, Any] = {
    "an error": Response("no", 404),
    "a redirect": Response("", 302, {"Location": "http://127.0.0.1:9/keys"}),
    "no JSON": Response("<html>"),
    "no object": [1],
    "no keys": {"keys": []},
    "keys of another kind": {"keys": "x"},
    "entries that are no keys": {"keys": [1, None, {}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256", "x": "?"}]},
    "a shared secret": {"keys": [OctKey.generate_key(256).as_dict(private=True)]},
    "a key for encryption": {"keys": [{**RSAKey.generate_key(2048).as_dict(private=False), "use": "enc"}]},
    "a key for another algorithm": {"keys": [{**RSAKey.generate_key(2048).as_dict(private=False), "alg": "RS512"}]},
    "too much": Response(b" " * (MAX_BYTES + 1) + b"{}"),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
async def test_an_answer_that_cannot_be_used_is_as_none(keys: IssuerKeys, issuer: Issuer, answer: Any) -> None:
    issuer.published = answer
    with pytest.raises(IssuerUnavailable):
        await known(keys, None)


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"jwks_uri": "http://evil.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
        {"jwks_uri": "http://[::1"},
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_not_followed(
    keys: IssuerKeys, issuer: Issuer, change: dict[str, Any]
) -> None:
    issuer.discovery = {**issuer.document(), **change}
    with pytest.raises(IssuerUnavailable):
        await known(keys, kid(issuer))
    assert issuer.fetched == 0


async def test_a_silent_issuer_is_not_waited_for_long(issuer: Issuer) -> None:
    async def never(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("silent", request=request)

    keys = IssuerKeys(issuer.url, httpx2.AsyncClient(transport=httpx2.MockTransport(never)))
    with pytest.raises(IssuerUnavailable):
        await known(keys, kid(issuer))
    await keys.close()


async def test_closing_ends_a_fetch_under_way(issuer: Issuer) -> None:
    asked = asyncio.Event()

    async def waits(request: httpx2.Request) -> httpx2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    keys = IssuerKeys(issuer.url, httpx2.AsyncClient(transport=httpx2.MockTransport(waits)))
    finding = asyncio.create_task(keys.find("x", "RS256"))
    await asked.wait()
    await keys.close()
    with pytest.raises(IssuerUnavailable):
        await finding


async def test_without_its_issuer_the_service_serves_api_keys(guarded: Service, issuer: Issuer) -> None:
    token = {"Authorization": f"Bearer {issuer.issue(tenant='acme')}"}
    issuer.published = Response("busy", 503)
    api, key = guarded.client, await guarded.key()
    for _ in range(2):
        refused = await api.get("/v1/memories", headers=token)
        problem(refused, 503, "issuer_unavailable")
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert (await api.get("/v1/memories", headers=key)).status_code == 200
    assert (await api.get("/readyz")).status_code == 200
    assert issuer.fetched == 1


async def test_an_issuer_that_nobody_serves_is_away(anyio_backend: str) -> None:
    with issuing() as gone:
        pass
    keys = IssuerKeys(gone.url)
    with pytest.raises(IssuerUnavailable):
        await known(keys, kid(gone))
    await keys.close()
