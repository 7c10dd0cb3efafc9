"""The signing keys of an OpenID Connect issuer: discovered, cached, and fetched anew when the issuer rotates them."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from app.errors import IssuerUnavailable
from app.setting_groups import safe_address

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""The signatures that are accepted. Others are refused, `none` and those with a shared secret (HS256) among them."""
FRESH_SECONDS = 3600.0
"""Keys that are older are fetched anew, beside the request."""
KEPT_SECONDS = 86_400.0
"""How long keys are used while the issuer cannot be reached."""
BETWEEN_SECONDS = 10.0
"""The shortest time between two attempts to fetch keys, whatever tokens come in."""
TIMEOUT_SECONDS = 5.0
"""For both documents together."""
MAX_BYTES = 512 << 10
MAX_KEYS = 100
_PUBLIC = frozenset({"RSA", "EC", "OKP"})

log = logging.getLogger(__name__)


class Unusable(Exception):
    """The issuer's answer cannot be used. The message says why."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one answer, and when it came."""

    keys: tuple[PyJWK, ...]
    fetched: float

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Returns the key of that id, or the only key of the algorithm for a token that names none."""
        fit = [key for key in self.keys if key.algorithm_name == algorithm and kid in (None, key.key_id)]
        return fit[0] if len(fit) == 1 or (fit and kid is not None) else None


class IssuerKeys:
    """The keys of one issuer. `clock` returns seconds that never go back."""

    def __init__(
        self, issuer: str, client: httpx2.AsyncClient | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuer, self._clock = issuer, clock
        self._client = client or httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False)
        self._known: KeySet | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._next_try, self._failed = -math.inf, False

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Returns the key, or None if the issuer has none of that id. An unknown id fetches the keys, at most once in
        BETWEEN_SECONDS. Raises IssuerUnavailable if the key is not known and the keys cannot be fetched."""
        known = self._usable()
        key = known.find(kid, algorithm) if known else None
        if key is not None and known is not None:
            if self._clock() - known.fetched > FRESH_SECONDS:
                self._fetch()
            return key
        fetching = self._fetch()
        if fetching is not None:
            await asyncio.wait([fetching])
            known = self._usable()
            key = known.find(kid, algorithm) if known else None
        if key is None and (known is None or self._failed):
            wait = max(1, math.ceil(self._next_try - self._clock()))
            raise IssuerUnavailable("The keys of this token's issuer cannot be fetched.", retry_after=wait)
        return key

    async def close(self) -> None:
        """Ends a fetch under way and closes the connections."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        await self._client.aclose()

    def _usable(self) -> KeySet | None:
        known = self._known
        return known if known is not None and self._clock() - known.fetched <= KEPT_SECONDS else None

    def _fetch(self) -> asyncio.Task[None] | None:
        """Returns the fetch under way, which all requests share, or begins one. Returns None if it is too early."""
        if self._fetching is None:
            if self._clock() < self._next_try:
                return None
            self._next_try = self._clock() + BETWEEN_SECONDS
            self._fetching = asyncio.create_task(self._load(), context=Context())
        return self._fetching

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                self._known = KeySet(await self._keys(), self._clock())
            self._failed = False
        except (Unusable, httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            self._failed = True
            reason = str(error) if isinstance(error, Unusable) else type(error).__name__
            log.warning("the keys of the token issuer cannot be fetched", extra={"reason": reason})
        finally:
            self._fetching = None

    async def _keys(self) -> tuple[PyJWK, ...]:
        document = await self._document(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer:
            raise Unusable("the discovery document names another issuer")
        address = document.get("jwks_uri")
        if not isinstance(address, str) or not safe_address(address):
            raise Unusable("the discovery document has no jwks_uri with https")
        listed = (await self._document(address)).get("keys")
        if not isinstance(listed, list):
            raise Unusable("the key set has no list of keys")
        keys = tuple(key for key in map(_public_key, listed[:MAX_KEYS]) if key is not None)
        if not keys:
            raise Unusable("the key set has no key for signatures with " + ", ".join(ALGORITHMS))
        return keys

    async def _document(self, address: str) -> dict[str, Any]:
        body = bytearray()
        async with self._client.stream("GET", address, headers={"accept": "application/json"}) as response:
            if response.status_code != httpx2.codes.OK:
                raise Unusable(f"the issuer answered {response.status_code}")
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_BYTES:
                    raise Unusable(f"the issuer gave an answer of more than {MAX_BYTES} bytes")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise Unusable("the issuer's answer is not JSON") from None
        if not isinstance(document, dict):
            raise Unusable("the issuer's answer is not a JSON object")
        return document


def _public_key(jwk: Any) -> PyJWK | None:
    """Returns a key for signatures with one of ALGORITHMS, or None for any other, such as one for encryption."""
    if not isinstance(jwk, dict) or jwk.get("kty") not in _PUBLIC or jwk.get("use") not in (None, "sig"):
        return None
    try:
        key = PyJWK(jwk)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None
