"""What becomes of secrets in the texts that come in: by the policy of the tenant, before anything else sees them."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ValidationError

from app.core.schemas import Json
from app.metrics import SECRETS
from app.settings import SecretPolicy, SecretSettings, Settings
from app.storage.schema import Collection
from tests.conftest import Service, Starter

pytestmark = pytest.mark.anyio

CARD = "4242 4242 4242 4242"
KEY = "AKIA" + "IOSFODNN7EXAMPLE"
TEXT = f"My card is {CARD}, my key {KEY}."
OWNER = {"agent_id": "clerk", "user_id": "ada"}
With = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def with_policy(start: Starter, settings: Settings) -> With:
    def started(policy: SecretPolicy = "flag", **more: Any) -> AbstractAsyncContextManager[Service]:
        return start(settings.model_copy(update={"secrets": SecretSettings(policy=policy, **more)}))

    return started


@pytest.fixture
async def redacting(with_policy: With) -> AsyncIterator[Service]:
    async with with_policy("redact") as service:
        yield service


async def stored(service: Service) -> bytes:
    """Everything that the store holds, of all collections."""
    collections: list[Collection] = [*service.resources.collections]
    docs = [doc for one in collections for doc in await service.resources.store.find(one, None)]
    return orjson.dumps(docs, default=str)


async def test_by_default_it_is_stored_and_the_answer_says_what_and_where(api: httpx.AsyncClient) -> None:
    before = SECRETS.labels("card", "flag")._value.get()
    answer = await api.post("/v1/memories", json={**OWNER, "content": TEXT})
    assert answer.status_code == 201
    assert answer.json()["content"] == TEXT
    warnings = answer.json()["warnings"]
    places = [(w["code"], w["pointer"], w["kind"], TEXT[w["start"] : w["end"]]) for w in warnings]
    assert places == [
        ("secret_found", "/content", "card", CARD),
        ("secret_found", "/content", "aws_key_id", KEY),
    ]
    assert not [value for value in (CARD, KEY) if value in str(warnings)]
    assert SECRETS.labels("card", "flag")._value.get() == before + 1


async def test_a_text_without_one_has_no_warnings(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/memories", json={**OWNER, "content": "The password is on the router, thanks"})
    assert "warnings" not in answer.json()


async def test_a_message_names_its_place_beside_other_warnings(api: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "text", "text": TEXT}]}]
    messages.append({"role": "user", "content": "long " * 8_000})
    answer = (await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": messages})).json()
    assert [(w["code"], w["pointer"]) for w in answer["warnings"]] == [
        ("text_shortened", "/messages/2/content"),
        ("secret_found", "/messages/1/content/0/text"),
        ("secret_found", "/messages/1/content/0/text"),
    ]


CALL = {"id": "c", "function": {"name": "pay", "arguments": orjson.dumps({"a": TEXT}).decode()}}
MESSAGES = [
    {"role": "user", "content": TEXT},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": TEXT, "result": {"paid": TEXT}},
]
DEEP = {f"a {CARD}": {"deep": [TEXT]}, "n": 4242424242424242}
CALLED = {"action_type": "tool_call", "action": {"tool": "pay", "input": {"x": TEXT}, "output": TEXT}}
WRITES: list[tuple[str, str, Json]] = [
    ("POST", "/v1/memories", {**OWNER, "content": TEXT, "metadata": DEEP}),
    ("POST", "/v1/memories/batch", {"items": [{**OWNER, "content": TEXT}]}),
    ("POST", "/v1/sessions", {**OWNER, "session_id": "s1", "metadata": {"note": TEXT}}),
    ("PATCH", "/v1/sessions/s1", {"summary": TEXT}),
    ("POST", "/v1/sessions/s/messages", {**OWNER, "messages": MESSAGES}),
    ("PATCH", "/v1/sessions/s/messages/1", {"content": TEXT}),
    ("POST", "/v1/facts", {**OWNER, "subject": "ada", "predicate": "has", "object": TEXT}),
    ("POST", "/v1/facts/batch", {"items": [{**OWNER, "subject": "ada", "predicate": "owns", "object": TEXT}]}),
    ("POST", "/v1/actions", {**OWNER, **CALLED}),
    ("POST", "/v1/tasks", {**OWNER, "task_id": "t1", "goal": TEXT}),
    ("PATCH", "/v1/tasks/t1/context", {"note": TEXT}),
    ("POST", "/v1/tasks/t1/scratchpad", {"content": TEXT}),
    ("POST", "/v1/procedures", {"agent_id": "clerk", "name": "pay", "trigger": TEXT, "steps": [TEXT]}),
    ("PUT", "/v1/users/ada/profile", {"preferences": {"pays_with": TEXT}}),
    ("POST", "/v1/users/ada/interactions", {"agent_id": "clerk", "summary": TEXT}),
    ("POST", "/v1/users/ada/issues", {"description": TEXT}),
    ("POST", "/v1/agents", {"agent_id": "clerk2", "name": "Clerk", "description": TEXT}),
]


async def test_redacted_before_anything_is_kept(redacting: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for number, (method, path, body) in enumerate(WRITES):
        headers = {"Idempotency-Key": f"key-{number}"} if method == "POST" else {}
        answer = await redacting.client.request(method, path, json=body, headers=headers)
        assert answer.status_code in (200, 201), (path, answer.text)
        assert "[secret: card]" in answer.text or path.endswith("scratchpad"), (path, answer.text)
        assert {w["code"] for w in answer.json()["warnings"]} == {"secret_replaced"}, path
        assert not [value for value in (CARD, KEY) if value in answer.text], path
    everything = await stored(redacting)
    assert b"[secret: aws_key_id]" in everything
    assert not [value for value in (CARD, KEY, "4242424242424242") if value.encode() in everything]
    assert not [value for value in (CARD, KEY) if value in caplog.text]


async def test_a_repeat_under_its_key_is_known_by_what_is_kept(redacting: Service) -> None:
    sent = {"json": {**OWNER, "content": TEXT}, "headers": {"Idempotency-Key": "k"}}
    first = await redacting.client.post("/v1/memories", **sent)  # type: ignore[arg-type]
    again = await redacting.client.post("/v1/memories", **sent)  # type: ignore[arg-type]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()


async def test_ids_and_keys_name_records_and_are_left_alone(redacting: Service) -> None:
    body = {"agent_id": "clerk", "user_id": "4242424242424242", "key": "AKIA" + "IOSFODNN7EXAMPLE", "content": "tea"}
    made = (await redacting.client.post("/v1/memories", json=body)).json()
    assert (made["user_id"], made["key"], made.get("warnings")) == (body["user_id"], body["key"], None)


async def test_a_search_finds_what_was_redacted_by_the_same_words(redacting: Service) -> None:
    await redacting.client.post("/v1/memories", json={**OWNER, "content": TEXT, "metadata": {"pays": CARD}})
    body = {**OWNER, "query": TEXT, "metadata": {"pays": CARD}}
    found = (await redacting.client.post("/v1/memories/search", json=body)).json()
    assert [hit["memory"]["metadata"] for hit in found["items"]] == [{"pays": "[secret: card]"}]


async def test_a_filter_names_owners_as_they_are(redacting: Service) -> None:
    numbered = {"agent_id": "clerk", "user_id": "4242424242424242"}
    await redacting.client.post("/v1/memories", json={**numbered, "content": "Drinks tea"})
    body = {"query": "tea", "filters": {"AND": [{"user_id": numbered["user_id"]}]}}
    found = (await redacting.client.post("/v1/memories/search", json=body)).json()
    assert [hit["memory"]["content"] for hit in found["items"]] == ["Drinks tea"]


@pytest.mark.parametrize("policy", ["redact", "block"])
async def test_what_is_private_is_left_out_and_counted(with_policy: With, policy: SecretPolicy) -> None:
    text = f"I like tea. <private>And {CARD}.</private>"
    async with with_policy(policy) as service:
        made = (await service.client.post("/v1/memories", json={**OWNER, "content": text})).json()
        assert made["content"] == "I like tea. "
        (warning,) = made["warnings"]
        size = len(text) - len("I like tea. ")
        assert (warning["code"], warning["detail"]) == (
            "private_left_out",
            f"{size} characters are not stored, characters 12 to {len(text)}.",
        )
        alone = await service.client.post("/v1/memories", json={**OWNER, "content": f"<private>{TEXT}</private>"})
        assert alone.status_code == 422


async def test_blocked_with_the_field_and_the_kind(with_policy: With) -> None:
    async with with_policy("block") as service:
        answer = await service.client.post("/v1/memories/batch", json={"items": [{**OWNER, "content": TEXT}]})
        assert answer.status_code == 422
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/items/0/content"] * 2
        assert "card, characters 11 to 30" in answer.text
        assert CARD not in answer.text
        search = await service.client.post("/v1/memories/search", json={**OWNER, "query": TEXT})
        assert search.status_code == 200


async def test_off_nobody_looks(with_policy: With) -> None:
    async with with_policy("off") as service:
        made = (await service.client.post("/v1/memories", json={**OWNER, "content": TEXT})).json()
        assert (made["content"], made.get("warnings")) == (TEXT, None)


async def test_each_tenant_has_its_own_policy(with_policy: With) -> None:
    async with with_policy("redact", tenants="acme=off beta=block") as service:
        kept: dict[str, Any] = {}
        for tenant in ("acme", "beta", "other"):
            headers = await service.key(tenant)
            answer = await service.client.post("/v1/memories", json={**OWNER, "content": CARD}, headers=headers)
            kept[tenant] = answer.json().get("content", answer.status_code)
        assert kept == {"acme": CARD, "beta": 422, "other": "[secret: card]"}


async def test_own_patterns_are_kinds(with_policy: With) -> None:
    async with with_policy("redact", patterns=r"badge=EMP-\d{6} order=[A-Z]{3}\d{5,8}") as service:
        made = (await service.client.post("/v1/memories", json={**OWNER, "content": "EMP-123456 has ABC12345"})).json()
        assert made["content"] == "[secret: badge] has [secret: order]"


@pytest.mark.parametrize(
    "patterns",
    [
        r"x=(a+)+$",
        r"x=a{1,200}a{1,200}bbbbbbbb",
        "x=.*secret",
        r"x=\d{3}",
        "x=a|bbbbbbbb",
        "nothing",
        r"x=[z-a]{9}",
        "x=\\d+abcdefgh",
    ],
)
def test_a_pattern_that_could_hang_or_match_all_is_refused(patterns: str) -> None:
    with pytest.raises(ValidationError):
        SecretSettings(patterns=patterns)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError):
        SecretSettings(tenants="acme=refuse")
