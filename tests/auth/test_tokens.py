"""Tokens of an OpenID Connect issuer: who is let in by them, as whom, and which ones are refused."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as property_settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey
from pydantic import ValidationError

from app.auth.tokens import MAX_CHARS, caller_id, principal_of
from app.errors import Forbidden
from app.settings import OidcSettings, Settings
from tests.conftest import Service, Starter
from tests.support.issuer import KINDS, Issuer
from tests.support.memories import OWNER, Json, problem

pytestmark = pytest.mark.anyio

OWNED = {"tenant": "acme"}
MINE = {"agent_id": "a", "user_id": "service", "content": "likes tea"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def status(service: Service, token: str, path: str = "/v1/memories") -> int:
    return (await service.client.get(path, headers=bearer(token))).status_code


async def test_a_token_of_the_issuer_opens_its_tenant_for_its_user(guarded: Service, issuer: Issuer) -> None:
    api, token = guarded.client, bearer(issuer.issue(**OWNED))
    made = await api.post("/v1/memories", json=MINE, headers=token)
    assert made.status_code == 201
    assert made.json()["source"]["api_key_id"] == caller_id(issuer.url, "service")
    problem(await api.post("/v1/memories", json={**MINE, "user_id": "bob"}, headers=token), 403, "forbidden")
    acme, other = await guarded.key("acme"), await guarded.key("other")
    bobs = (await api.post("/v1/memories", json={**MINE, "user_id": "bob"}, headers=acme)).json()["memory_id"]
    seen = (await api.get("/v1/memories", headers=token)).json()["items"]
    assert [one["memory_id"] for one in seen] == [made.json()["memory_id"]]
    problem(await api.get(f"/v1/memories/{bobs}", headers=token), 404, "not_found")
    assert (await api.get("/v1/memories", headers=other)).json()["items"] == []
    elsewhere = bearer(issuer.issue(tenant="other"))
    problem(await api.get(f"/v1/memories/{made.json()['memory_id']}", headers=elsewhere), 404, "not_found")
    search = await api.post("/v1/memories/search", json={**OWNER, "user_id": "service", "query": "tea"}, headers=token)
    assert [item["memory"]["content"] for item in search.json()["items"]] == ["likes tea"]


@pytest.mark.parametrize("algorithm", KINDS)
async def test_signatures_of_each_accepted_kind(guarded: Service, issuer: Issuer, algorithm: str) -> None:
    issuer.rotate(algorithm)
    assert await status(guarded, issuer.sign(issuer.valid(tenant="acme"))) == 200
    unnamed = issuer.sign(issuer.valid(tenant="acme"), header={"kid": None, "typ": None})
    assert await status(guarded, unnamed) == 200, "the only key of its kind needs no name"


async def test_scopes_are_verbs(guarded: Service, issuer: Issuer) -> None:
    api = guarded.client
    reader, writer, none = [
        bearer(issuer.issue(scope, **OWNED)) for scope in ("openid recalld:read", "recalld:write", "openid write admin")
    ]
    assert (await api.get("/v1/memories", headers=reader)).status_code == 200
    problem(await api.post("/v1/memories", json=MINE, headers=reader), 403, "forbidden")
    assert (await api.post("/v1/memories", json=MINE, headers=writer)).status_code == 201
    for refused in (writer, none):
        problem(await api.get("/v1/memories", headers=refused), 403, "forbidden")


async def test_an_admin_of_all_users_makes_keys_and_is_named_in_the_audit_trail(
    guarded: Service, issuer: Issuer
) -> None:
    api = guarded.client
    bound = bearer(issuer.issue("recalld:admin", **OWNED))
    problem(await api.get("/v1/keys", headers=bound), 403, "forbidden")
    admin = bearer(issuer.issue("recalld:admin recalld:read recalld:all_users", **OWNED))
    made = (await api.post("/v1/keys", json={"name": "bot", "verbs": ["read"]}, headers=admin)).json()
    assert (await api.get("/v1/memories", headers=bearer(made["key"]))).status_code == 200
    mine = {"key_id": caller_id(issuer.url, "service")}
    trail = (await api.get("/v1/audit", params=mine, headers=admin)).json()["items"]
    assert [(entry["action"], entry["records"]) for entry in trail] == [("create_key", [made["id"]])]
    problem(await api.post("/v1/keys", json={"name": "b", "verbs": ["write"]}, headers=admin), 403, "forbidden")


async def test_a_retry_with_a_renewed_token_is_a_retry(guarded: Service, issuer: Issuer) -> None:
    api = guarded.client
    first, renewed, other = [bearer(issuer.issue(**OWNED, **claims)) for claims in ({}, {"n": 1}, {"sub": "bob"})]
    sent = {"Idempotency-Key": "once"}
    made = await api.post("/v1/memories", json=MINE, headers=first | sent)
    again = await api.post("/v1/memories", json=MINE, headers=renewed | sent)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == made.json()
    bobs = await api.post("/v1/memories", json={**MINE, "user_id": "bob"}, headers=other | sent)
    assert (bobs.status_code, "idempotency-replayed" in bobs.headers) == (201, False)


async def test_with_an_issuer_nobody_is_served_without_key_or_token(guarded: Service, issuer: Issuer) -> None:
    refused = await guarded.client.get("/v1/memories")
    problem(refused, 401, "unauthorized")
    where = "http://127.0.0.1/.well-known/oauth-protected-resource"
    assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{where}"'
    refused = await guarded.client.get("/v1/memories", headers=bearer("x.y.z"))
    assert refused.headers["www-authenticate"] == f'Bearer error="invalid_token", resource_metadata="{where}"'
    assert (await guarded.client.get("/v1/memories", headers=await guarded.key())).status_code == 200


async def test_an_open_address_is_served_if_there_is_an_issuer(start: Starter, accepting: Settings) -> None:
    async with start(accepting.model_copy(update={"host": "0.0.0.0"})) as service:
        problem(await service.client.get("/v1/memories"), 401, "unauthorized")


# --- Refused ----------------------------------------------------------------------------------------------------------


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).rstrip(b"=").decode()


def hostile(issuer: Issuer) -> Json:
    """Tokens that must not be let in, by what is wrong with them."""
    valid, own = issuer.valid(**OWNED), issuer.keys[-1][1]
    assert isinstance(own, RSAKey)
    theirs, now = RSAKey.generate_key(2048), time.time()
    head = {"alg": "RS256", "typ": "at+jwt", "kid": own.kid}
    right = issuer.sign(valid)
    signature = right.rpartition(".")[2]
    pem = own.as_pem(private=True)
    bare = RSAKey.import_key(pem)  # the same key without its algorithm
    critical = jwt.encode(valid, pem, "RS256", {**head, "crit": ["exp"], "exp": 1})
    confused = f"{part({**head, 'alg': 'HS256'})}.{part(valid)}"
    digest = hmac.digest(own.as_pem(private=False), confused.encode(), "sha256")
    found: Json = {
        "no algorithm": f"{part({**head, 'alg': 'none'})}.{part(valid)}.",
        "no algorithm, other spelling": f"{part({**head, 'alg': 'nOnE'})}.{part(valid)}.",
        "the public key as a secret": f"{confused}.{urlsafe_b64encode(digest).rstrip(b'=').decode()}",
        "another kind of signature": issuer.sign(valid, header={"alg": "RS512"}, key=bare),
        "padding of another kind": issuer.sign(valid, header={"alg": "PS256"}, key=bare),
        "another key of the same id": issuer.sign(valid, key=theirs),
        "an unknown key": issuer.sign(valid, key=theirs, header={"kid": "theirs"}),
        "a key of its own": issuer.sign(valid, key=theirs, header={"jwk": theirs.as_dict(private=False)}),
        "a place for keys": issuer.sign(valid, key=theirs, header={"jku": "http://127.0.0.1:9/keys", "kid": "x"}),
        "no signature": right.rpartition(".")[0] + ".",
        "claims changed": f"{part(head)}.{part({**valid, 'sub': 'root'})}.{signature}",
        "a header that must be understood": critical,
        "a notice of a logout": issuer.sign(valid, header={"typ": "logout+jwt"}),
        "a kind that is no text": f"{part({**head, 'typ': ['JWT']})}.{part(valid)}.{signature}",
        "a key id that is no text": f"{part({**head, 'kid': 7})}.{part(valid)}.{signature}",
        "claims that are a list": issuer.sign(b"[]"),
        "claims that are no JSON": issuer.sign(b"{"),
        "claims that are nested": issuer.sign(b'{"a":' + b"[" * 9_000 + b"]" * 9_000 + b"}"),
        "a header that is nested": f"{part(b'[' * 9_000)}.{part(valid)}.{signature}",
        "a header that is no object": f"{part([])}.{part(valid)}.{signature}",
        "too long": issuer.sign({**valid, "x": "x" * MAX_CHARS}),
        "empty parts": "..",
        "one part": "x",
        "five parts": f"{right}.x.y",
    }
    claims: Json = {
        "another issuer": {"iss": "https://evil.example"},
        "the issuer with a slash": {"iss": issuer.url + "/"},
        "issuers": {"iss": [issuer.url]},
        "another audience": {"aud": "https://evil.example"},
        "a part of the audience": {"aud": "https://memory"},
        "audiences of others": {"aud": ["a", "b"]},
        "an audience that is no text": {"aud": [{"https://memory.example": 1}]},
        "bound to a key": {"cnf": {"jkt": "x"}},
        "a subject that is no text": {"sub": 7},
        "expired": {"exp": now - 31},
        "not valid yet": {"nbf": now + 60},
        "of tomorrow": {"iat": now + 86_400},
    }
    claims |= {f"without {name}": {name: None} for name in ("iss", "aud", "sub", "exp")}
    times: list[Any] = ["soon", True, float("nan"), float("inf"), [], {}]
    claims |= {f"exp {value!r}": {"exp": value} for value in times}
    claims["exp of 400 digits"] = {"exp": 10**400}
    return found | {name: issuer.sign(issuer.valid(**{**OWNED, **changed})) for name, changed in claims.items()}


async def test_what_is_no_valid_token_of_the_issuer_is_refused(guarded: Service, issuer: Issuer) -> None:
    guarded.resources.wrong_keys._most = 0
    assert await status(guarded, issuer.sign(issuer.valid(**OWNED))) == 200
    for name, token in hostile(issuer).items():
        for method, path in (("GET", "/v1/memories"), ("POST", "/mcp")):
            refused = await guarded.client.request(method, path, headers=bearer(token))
            assert refused.status_code == 401, name
            body = problem(refused, 401, "unauthorized")
            assert issuer.url not in body["detail"]
            assert token not in refused.text or len(token) < 3


@pytest.mark.parametrize(
    "claims",
    [
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "a b"},
        {"tenant": ["acme", "other"]},
        {"tenant": {"acme": 1}},
        {"sub": "a/b"},
        {"sub": ""},
    ],
)
async def test_a_valid_token_without_a_usable_owner_is_forbidden(
    guarded: Service, issuer: Issuer, claims: Json
) -> None:
    token = issuer.sign(issuer.valid(**{**OWNED, **claims}))
    problem(await guarded.client.get("/v1/memories", headers=bearer(token)), 403, "forbidden")


async def test_a_token_lives_until_its_time_and_the_leeway(guarded: Service, issuer: Issuer) -> None:
    token = issuer.issue(**OWNED)
    guarded.clock.move(seconds=620)
    assert await status(guarded, token) == 200
    guarded.clock.move(seconds=20)
    refused = await guarded.client.get("/v1/memories", headers=bearer(token))
    assert "expired" in problem(refused, 401, "unauthorized")["detail"]


async def test_expired_tokens_do_not_count_as_wrong_keys_and_others_do(guarded: Service, issuer: Issuer) -> None:
    expired, wrong = issuer.sign(issuer.valid(exp=1, **OWNED)), issuer.sign(issuer.valid(aud="x", **OWNED))
    assert {await status(guarded, expired) for _ in range(30)} == {401}
    answers = [await status(guarded, wrong) for _ in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert await status(guarded, issuer.issue(**OWNED)) == 200


@property_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
async def test_a_token_that_is_garbled_anywhere_is_refused(
    guarded: Service, issuer: Issuer, data: st.DataObject
) -> None:
    guarded.resources.wrong_keys._most = 0
    token = issuer.sign(issuer.valid(**OWNED))
    place = data.draw(st.integers(0, len(token) - 2))  # the last character of a signature holds bits that say nothing
    letter = data.draw(st.sampled_from("ABCxyz019-_.=%é"))
    changed = token[:place] + letter + token[place + 1 :]
    if changed != token:
        answer = await guarded.client.get("/v1/memories", headers=[(b"authorization", f"Bearer {changed}".encode())])
        assert answer.status_code == 401


# --- The mapping ------------------------------------------------------------------------------------------------------

CLAIMS = {"iss": "https://id.example", "sub": "ada", "scope": "recalld:read"}


def mapped(claims: Json, **chosen: Any) -> tuple[str, Any, Any, list[str]]:
    """Tenant, agents, users and verbs of the principal."""
    given_settings = OidcSettings(issuer="https://id.example", audience="a", **chosen)
    principal = principal_of({**CLAIMS, **claims}, given_settings)
    scope = principal.scope
    names = [None if one is None else sorted(one) for one in (scope.agents, scope.users)]
    return scope.tenant, *names, sorted(principal.verbs)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("claims", "chosen", "expected"),
    [
        ({}, {}, ("default", None, ["ada"], ["read"])),
        ({}, {"tenant": "acme"}, ("acme", None, ["ada"], ["read"])),
        ({"org": "o1"}, {"tenant_claim": "org"}, ("o1", None, ["ada"], ["read"])),
        ({"app": {"org": ["o1"]}}, {"tenant_claim": "app.org"}, ("o1", None, ["ada"], ["read"])),
        ({"https://x.example/org": "o1"}, {"tenant_claim": "https://x.example/org"}, ("o1", None, ["ada"], ["read"])),
        ({"email": "a@x"}, {"user_claim": "email"}, ("default", None, ["a@x"], ["read"])),
        ({"may": ["ada", "bob"]}, {"user_claim": "may"}, ("default", None, ["ada", "bob"], ["read"])),
        ({}, {"user_claim": ""}, ("default", None, None, ["read"])),
        ({"azp": "support"}, {"agent_claim": "azp"}, ("default", ["support"], ["ada"], ["read"])),
        ({"scope": "recalld:all_users recalld:write"}, {}, ("default", None, None, ["write"])),
        ({"scp": ["recalld:read", "x"]}, {"scope_claim": "scp"}, ("default", None, ["ada"], ["read"])),
        ({"realm_access": {"roles": ["boss"]}}, {"scope_claim": "realm_access.roles", "scopes": "boss=admin boss=read"},
         ("default", None, ["ada"], ["admin", "read"])),
        ({"scope": "a=b"}, {"scopes": "a=b=write"}, ("default", None, ["ada"], ["write"])),
        ({"scope": 7}, {}, ("default", None, ["ada"], [])),
        ({"scope": [["recalld:read"]]}, {}, ("default", None, ["ada"], [])),
        ({"scope": None}, {}, ("default", None, ["ada"], [])),
    ],
)  # fmt: skip
def test_claims_become_tenant_owners_and_verbs(claims: Json, chosen: Json, expected: Any) -> None:
    assert mapped(claims, **chosen) == expected


@pytest.mark.parametrize("name", ["tenant_claim", "user_claim", "agent_claim"])
@pytest.mark.parametrize("value", [None, "", [], ["a", ""], 7, {"a": 1}, "a/b", "x" * 256, ["a", 7], "a\n"])
def test_a_claim_that_is_named_must_be_usable(name: str, value: Any) -> None:
    with pytest.raises(Forbidden):
        mapped({"who": value}, **{name: "who"})


def test_a_caller_is_the_same_for_all_its_tokens_and_is_not_named() -> None:
    one = caller_id("https://id.example", "ada")
    assert one == caller_id("https://id.example", "ada")
    assert "ada" not in one
    assert len({one, caller_id("https://id.example", "bob"), caller_id("https://id2.example", "ada")}) == 3


# --- Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "https://id.example"},
        {"issuer": "https://id.example", "audience": " "},
        {"issuer": "http://id.example", "audience": "a"},
        {"issuer": "id.example", "audience": "a"},
        {"issuer": "https://user:secret@id.example", "audience": "a"},
        {"issuer": "https://id.example/?x=1", "audience": "a"},
        {"scopes": "recalld:read"},
        {"scopes": "recalld:read=fly"},
        {"scopes": "=read"},
    ],
)
def test_settings_that_would_let_in_anybody_are_refused(wrong: Json) -> None:
    with pytest.raises(ValidationError):
        OidcSettings(**wrong)
    OidcSettings(issuer="https://id.example/realms/x", audience="a")
    OidcSettings(issuer="http://localhost:8080", audience="a")
