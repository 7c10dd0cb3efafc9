"""Bearer tokens of an OpenID Connect issuer: a JWT is checked, and its claims are mapped to a principal.

The issuer's signing keys are discovered, cached, and fetched anew when the issuer rotates them.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx2
import jwt
import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from app.auth.keys import VERBS, Principal
from app.core import work
from app.core.clock import Clock
from app.core.schemas import TENANT, JsonObject, identifier
from app.errors import Forbidden, IssuerUnavailable, TokenExpired, Unauthorized
from app.settings import OidcSettings, safe_address
from app.storage.scope import Scope

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
LEEWAY_SECONDS = 30.0
"""How far the clocks of issuer and service may differ."""
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
        await work.end(self._fetching)
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
            self._fetching = work.begin(self._load(), "keys of the token issuer")
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

    async def _document(self, address: str) -> JsonObject:
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


MAX_CHARS = 16_384
ALL_USERS = "all_users"
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Values of the header `typ`, if it is there. An issuer signs other things with the same keys, such as notices of a
logout."""
_REQUIRED = ["exp", "iss", "aud", "sub"]
_REASONS = {
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "it is of another issuer",
    "InvalidKeyError": "its key is too short",
    "InvalidSignatureError": "its signature is wrong",
    "InvalidAlgorithmError": "its signature is of a kind that is not accepted",
    "MissingRequiredClaimError": "it lacks one of the claims " + ", ".join(_REQUIRED),
}
_MALFORMED = "it is no JSON Web Token"


class TokenVerifier:
    """Makes principals of the tokens of one issuer. Times are compared with `clock`."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys, clock: Clock) -> None:
        self._settings, self._keys, self._clock = settings, keys, clock
        self._audience = settings.audience.split()

    async def principal(self, token: str) -> Principal:
        """Returns the principal of a token. Raises Unauthorized for a token that is not valid here, Forbidden for one
        whose claims name no tenant or owner, and IssuerUnavailable if the issuer's keys cannot be fetched."""
        kid, algorithm = _header(token)
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise refused("its key is not one of its issuer")
        claims = self._claims(token, key)
        now = self._clock.now().timestamp()
        expires, begins, issued = (_seconds(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is None or now >= expires + LEEWAY_SECONDS:
            raise refused("it has expired", TokenExpired)
        if any(since is not None and now < since - LEEWAY_SECONDS for since in (begins, issued)):
            raise refused("it is not valid yet")
        return principal_of(claims, self._settings)

    async def close(self) -> None:
        await self._keys.close()

    def _claims(self, token: str, key: PyJWK) -> JsonObject:
        # the library reads the system's clock, and this service has its own
        options: Any = dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat"), False)
        options |= {"require": _REQUIRED, "enforce_minimum_key_length": True}
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._settings.issuer,
                options=options,
            )
        except PyJWTError as error:
            raise refused(_REASONS.get(type(error).__name__, _MALFORMED)) from None
        except (ValueError, TypeError, RecursionError):
            raise refused(_MALFORMED) from None
        if "cnf" in claims:
            raise refused("it is bound to a key of its client, of which no proof is asked here")
        return claims


def open_tokens(settings: OidcSettings, clock: Clock) -> TokenVerifier:
    """Returns the verifier of the issuer in the settings. The issuer is asked when the first token comes."""
    return TokenVerifier(settings, IssuerKeys(settings.issuer), clock)


def refused(reason: str, kind: type[Unauthorized] = Unauthorized) -> Unauthorized:
    """Returns the error for a token, and logs the reason for the operator who sets up an issuer."""
    log.info("a token was refused", extra={"reason": reason})
    return kind(f"The token is not valid here: {reason}.")


def _header(token: str) -> tuple[str | None, str]:
    """Returns key id and algorithm, which only say which key to try. Raises Unauthorized."""
    if len(token) > MAX_CHARS:
        raise refused(_MALFORMED)
    try:
        header = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise refused(_MALFORMED) from None
    kid, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ")
    if algorithm not in ALGORITHMS:
        raise refused(_REASONS["InvalidAlgorithmError"])
    if not isinstance(kid, str | None) or not isinstance(kind, str | None) or (kind or "JWT").lower() not in _TYPES:
        raise refused("it is not an access token")
    return kid, algorithm


def _seconds(claims: JsonObject, name: str) -> float | None:
    """Returns a time in seconds, or None if the claim is absent. Raises Unauthorized if it is not a time."""
    value = claims.get(name)
    if value is None:
        return None
    try:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise refused(f"its claim {name} is not a time")
    return seconds


def principal_of(claims: JsonObject, settings: OidcSettings) -> Principal:
    """Maps the claims of a valid token. Raises Forbidden if a claim that the settings name is absent or unusable: a
    token without its user must not become one for all users."""
    meanings = rights_of(settings.scopes)
    rights = {right for scope in _texts(claims, settings.scope_claim) for right in meanings.get(scope, ())}
    tenant = settings.tenant
    if settings.tenant_claim:
        named = _names(claims, settings.tenant_claim)
        if len(named) != 1:
            raise Forbidden(f"The token's claim {settings.tenant_claim} names several tenants.")
        (tenant,) = named
        if not TENANT.fullmatch(tenant):
            raise Forbidden(f"The token's claim {settings.tenant_claim} cannot be a tenant of this service.")
    users = _names(claims, settings.user_claim) if settings.user_claim and ALL_USERS not in rights else None
    agents = _names(claims, settings.agent_claim) if settings.agent_claim else None
    key_id = caller_id(str(claims["iss"]), str(claims["sub"]))
    return Principal(key_id, key_id, frozenset(rights & set(VERBS)), Scope(tenant, agents, users, key_id))


def rights_of(scopes: str) -> dict[str, set[str]]:
    """Returns the rights that each scope of the setting stands for."""
    rights: dict[str, set[str]] = {}
    for pair in scopes.split():
        scope, _, right = pair.rpartition("=")
        rights.setdefault(scope, set()).add(right)
    return rights


def caller_id(issuer: str, subject: str) -> str:
    """Returns what stands for the id of an API key in records and in the audit trail: the same for all tokens of one
    subject. It does not hold the subject itself, which may be a name or an address."""
    return "oidc:" + sha256(f"{issuer}\n{subject}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _names(claims: JsonObject, claim: str) -> frozenset[str]:
    given = _texts(claims, claim, split=False)
    try:
        names = frozenset(map(identifier, given))
    except ValueError:
        names = frozenset()
    if not names:
        raise Forbidden(f"The token's claim {claim} is absent, or it cannot be an id of this service.")
    return names


def _texts(claims: JsonObject, claim: str, *, split: bool = True) -> list[str]:
    """Returns the texts of a claim, which is a text or a list of texts; absent or of another kind: none. A text of
    scopes is split at spaces. A claim within another is named with dots, if none has the whole name."""
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for step in claim.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split(" ") if split else [value]
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []
