"""An MCP client gets its token from the issuer that the service names, and REST accepts the same one. All of it over
real HTTP: the service is a process of its own, and the client is the official SDK's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from app.settings import OidcSettings, Settings
from tests.conftest import Starter
from tests.mcp.conftest import call
from tests.support.issuer import AUDIENCE, SECRET, Issuer, issuing
from tests.support.memories import problem
from tests.support.server import Server, serving

pytestmark = pytest.mark.anyio
CALLBACK = AnyUrl("http://127.0.0.1:9/callback")
METADATA = "/.well-known/oauth-protected-resource"


class Kept:
    """What the client keeps. It was registered with the issuer before."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull(
            client_id="app",
            redirect_uris=[CALLBACK],
            token_endpoint_auth_method="none",
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("it is registered")


class Browser:
    """Opens the issuer's page, where the user consents at once."""

    def __init__(self) -> None:
        self.opened, self._came = "", ""

    async def open(self, address: str) -> None:
        self.opened = address
        async with httpx.AsyncClient() as client:
            self._came = (await client.get(address)).headers["location"]

    async def callback(self) -> AuthorizationCodeResult:
        given = parse_qs(urlsplit(self._came).query)
        return AuthorizationCodeResult(code=given["code"][0], state=given["state"][0])


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with issuing() as found:
        yield found


@pytest.fixture
def server(data: Path, issuer: Issuer) -> Iterator[Server]:
    named = {"RECALLD_OIDC_ISSUER": issuer.url, "RECALLD_OIDC_AUDIENCE": AUDIENCE, "RECALLD_OIDC_TENANT": "acme"}
    with serving(data, **named) as found:
        yield found


async def remembered(server: Server, auth: Any, content: str) -> str:
    """What a recall finds after `content` was remembered."""
    url = f"{str(server.client.base_url).rstrip('/')}/mcp?agent_id=a"
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await call(client, "remember", content=content)
        found: str = (await call(client, "recall", query=content))["items"][0]["content"]
        return found


async def test_a_client_gets_a_token_for_its_user_from_the_issuer(server: Server, issuer: Issuer) -> None:
    kept, browser = Kept(), Browser()
    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], token_endpoint_auth_method="none")
    base = str(server.client.base_url).rstrip("/")
    auth = OAuthClientProvider(f"{base}/mcp", metadata, kept, browser.open, browser.callback)
    assert await remembered(server, auth, "Ada prefers tea") == "Ada prefers tea"
    asked = parse_qs(urlsplit(browser.opened).query)
    assert asked["scope"] == ["recalld:read recalld:write"]
    assert asked["resource"] == [f"{base}/mcp"]
    assert kept.tokens is not None
    token = {"Authorization": f"Bearer {kept.tokens.access_token}"}
    (memory,) = server.client.get("/v1/memories", headers=token).json()["items"]
    assert (memory["user_id"], memory["content"]) == (issuer.subject, "Ada prefers tea")
    bobs = {"agent_id": "a", "user_id": "bob", "content": "x"}
    problem(server.client.post("/v1/memories", json=bobs, headers=token), 403, "forbidden")
    assert kept.tokens.access_token not in server.log_text()


async def test_a_program_gets_a_token_for_itself(server: Server, issuer: Issuer) -> None:
    base = str(server.client.base_url).rstrip("/")
    auth = ClientCredentialsOAuthProvider(f"{base}/mcp", Kept(), "service", SECRET, issuer=issuer.url)
    assert await remembered(server, auth, "the build is green") == "the build is green"


async def test_the_service_names_its_issuer(start: Starter, settings: Settings) -> None:
    oidc = OidcSettings(issuer="https://id.example/realms/x", audience="a", scopes="r=read w=write boss=admin")
    async with start(settings.model_copy(update={"oidc": oidc})) as service:
        api, key = service.client, await service.key()
        for path in ("", "/mcp"):
            answer = await api.get(METADATA + path)
            found = ProtectedResourceMetadata.model_validate_json(answer.content)
            assert answer.json()["resource"] == f"http://127.0.0.1{path}"
            assert [str(server) for server in found.authorization_servers] == ["https://id.example/realms/x"]
            assert (found.scopes_supported, found.bearer_methods_supported) == (["r", "w"], ["header"])
        refused = await api.post("/mcp", json={})
        assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="http://127.0.0.1{METADATA}/mcp"'
        problem(await api.get(f"{METADATA}/v1", headers=key), 404, "not_found")
        problem(await api.post(METADATA, headers=key), 405, "method_not_allowed")
        for host in ('x", error="', "a b", "[", "a/b", "a@b", ""):
            refused = await api.get("/v1/memories", headers={"Host": host})
            assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="http://localhost{METADATA}"'


async def test_the_address_that_clients_are_told_can_be_set(start: Starter, settings: Settings) -> None:
    oidc = OidcSettings(issuer="https://id.example", audience="a")
    named = settings.model_copy(update={"oidc": oidc, "public_url": "https://memory.example"})
    async with start(named) as service:
        for host in ("10.0.0.7:8000", "evil.example"):
            answer = await service.client.get(f"{METADATA}/mcp", headers={"Host": host})
            assert answer.json()["resource"] == "https://memory.example/mcp"
            refused = await service.client.get("/v1/memories", headers={"Host": host})
            assert f'"https://memory.example{METADATA}"' in refused.headers["www-authenticate"]


async def test_without_an_issuer_there_is_no_metadata(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        for path in ("", "/mcp"):
            problem(await service.client.get(METADATA + path), 404, "not_found")
        await service.key()
        assert (await service.client.get("/v1/memories")).headers["www-authenticate"] == "Bearer"
