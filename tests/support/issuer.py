"""An OpenID Connect issuer over real HTTP, made with Authlib's authorization server: discovery, keys, client
credentials, and the authorization code flow with PKCE, whose user consents at once."""

import json
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Thread
from typing import Any

import httpx
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, Response, jsonify
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey, import_key
from werkzeug.serving import WSGIRequestHandler, make_server

AUDIENCE = "https://memory.example"
SECRET = "s3cret"
KINDS: dict[str, Callable[[], Any]] = {
    "RS256": lambda: RSAKey.generate_key(2048),
    "ES256": lambda: ECKey.generate_key("P-256"),
    "EdDSA": lambda: OKPKey.generate_key("Ed25519"),
}


@cache
def _first_key() -> Key:
    """That of each issuer until it rotates, under an id of its own: to make one takes a tenth of a second."""
    return RSAKey.generate_key(2048)


class Client(ClientMixin):  # type: ignore[misc]
    """`service` has a secret and works for itself; `app` is public and works for its user."""

    def __init__(self, name: str) -> None:
        self.client_id = name

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.startswith("http://127.0.0.1")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == ("none" if self.client_id == "app" else "client_secret_basic")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == ("authorization_code" if self.client_id == "app" else "client_credentials")


@dataclass
class Code:
    """An authorization code that waits for its token."""

    client_id: str
    redirect_uri: str
    scope: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class User:
    name: str

    def get_user_id(self) -> str:
        return self.name


@dataclass
class Issuer:
    """`claims` go into every token that it issues, over those of the standard."""

    url: str = ""
    algorithm: str = "RS256"
    audience: str | list[str] = AUDIENCE
    subject: str = "ada"
    claims: dict[str, Any] = field(default_factory=dict)
    keys: list[tuple[str, Key]] = field(default_factory=list)
    """What it signs with, the latest last, each with its algorithm."""
    published: Any = None
    """In place of its key set."""
    discovery: Any = None
    """In place of its discovery document."""
    fetched: int = 0
    """How often its keys were asked for."""
    codes: dict[str, Code] = field(default_factory=dict)

    def rotate(self, algorithm: str = "RS256", *, keep: bool = False) -> Key:
        """Signs with a new key from now on, the first time with RSA. The old ones are forgotten, or kept in the
        published set."""
        key: Key = KINDS[algorithm]() if self.keys else _first_key()
        named = {**key.as_dict(private=True), "kid": secrets.token_hex(4), "use": "sig", "alg": algorithm}
        key = import_key(named)
        self.algorithm, self.keys = algorithm, [*(self.keys if keep else []), (algorithm, key)]
        return key

    def key_set(self) -> Any:
        listed = {"keys": [key.as_dict(private=False) for _, key in self.keys]}
        return listed if self.published is None else self.published

    def document(self) -> Any:
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(KINDS),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        }
        return found if self.discovery is None else self.discovery

    def issue(self, scope: str = "recalld:read recalld:write", **claims: Any) -> str:
        """A token of the token endpoint, by client credentials."""
        self.claims, before = {**self.claims, **claims}, self.claims
        try:
            form = {"grant_type": "client_credentials", "scope": scope}
            answer = httpx.post(f"{self.url}/token", data=form, auth=("service", SECRET))
            assert answer.status_code == 200, answer.text
            token: str = answer.json()["access_token"]
            return token
        finally:
            self.claims = before

    def sign(
        self, claims: dict[str, Any] | bytes | None = None, *, header: dict[str, Any] | None = None, key: Any = None
    ) -> str:
        """A token that no token endpoint would issue. Without `claims` those of a valid one."""
        own = self.keys[-1][1]
        head: dict[str, Any] = {"alg": self.algorithm, "typ": "at+jwt", "kid": own.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        body = claims if isinstance(claims, bytes) else json.dumps(self.valid() if claims is None else claims).encode()
        allowed = [*KINDS, "HS256", "RS384", "RS512", "PS256", "ES384"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # EdDSA has a newer name, and issuers use both
            return jws.serialize_compact(head, body, own if key is None else key, algorithms=allowed)

    def valid(self, **claims: Any) -> dict[str, Any]:
        """The claims of a valid token, with some of them changed; None leaves one out."""
        now = int(time.time())
        found: dict[str, Any] = {"iss": self.url, "aud": self.audience, "sub": self.subject}
        found |= {"iat": now, "exp": now + 600}
        found = {**found, "scope": "recalld:read recalld:write", **claims}
        return {name: value for name, value in found.items() if value is not None}


class _Tokens(JWTBearerTokenGenerator):  # type: ignore[misc]
    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer.url, expires_generator=lambda client, grant_type: 600)
        self._issuer = issuer

    def access_token_generator(self, client: Any, grant_type: Any, user: Any, scope: Any) -> Any:
        self.alg = self._issuer.algorithm
        return super().access_token_generator(client, grant_type, user, scope)

    def get_jwks(self) -> KeySet:
        return KeySet([self._issuer.keys[-1][1]])

    def get_audiences(self, client: Any, user: Any, scope: Any) -> Any:
        return self._issuer.audience

    def get_extra_claims(self, client: Any, grant_type: Any, user: Any, scope: Any) -> dict[str, Any]:
        return self._issuer.claims


class _CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)
    issuer: Issuer

    def save_authorization_code(self, code: str, request: Any) -> None:
        asked = request.payload.data
        self.issuer.codes[code] = Code(
            request.client.client_id,
            asked["redirect_uri"],
            asked.get("scope", ""),
            asked["code_challenge"],
            asked["code_challenge_method"],
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        return self.issuer.codes.get(code)

    def delete_authorization_code(self, authorization_code: Code) -> None:
        self.issuer.codes = {code: one for code, one in self.issuer.codes.items() if one is not authorization_code}

    def authenticate_user(self, authorization_code: Code) -> User:
        return User(self.issuer.subject)


def _app(issuer: Issuer) -> Flask:
    app = Flask(__name__)
    server = AuthorizationServer(app, query_client=Client, save_token=lambda *_: None)
    server.register_token_generator("default", _Tokens(issuer))
    server.register_grant(grants.ClientCredentialsGrant)
    server.register_grant(type("CodeGrant", (_CodeGrant,), {"issuer": issuer}), [CodeChallenge(required=True)])

    @app.get("/.well-known/openid-configuration")
    def discovery() -> Any:
        found = issuer.document()
        return found if isinstance(found, Response) else jsonify(found)

    @app.get("/keys")
    def keys() -> Any:
        issuer.fetched += 1
        found = issuer.key_set()
        return found if isinstance(found, Response) else jsonify(found)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.get("/authorize")
    def authorize() -> Any:
        user = User(issuer.subject)
        return server.create_authorization_response(grant_user=user, grant=server.get_consent_grant(end_user=user))

    return app


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def issuing() -> Iterator[Issuer]:
    """A running issuer."""
    server = make_server("127.0.0.1", 0, Flask("none"), threaded=True, request_handler=_Silent)
    found = Issuer(f"http://127.0.0.1:{server.port}")
    found.rotate()
    server.app = _app(found)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
