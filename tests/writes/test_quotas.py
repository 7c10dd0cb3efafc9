"""Quotas of records and bytes for each tenant, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.metrics import QUOTA_REFUSALS
from app.settings import QuotaSettings, Settings
from app.storage.changes import Usage, total
from tests.conftest import Service, TestParts, TurnedClock, running

pytestmark = pytest.mark.anyio

RECORDS = 3
BYTES = 40_000


@pytest.fixture
async def limited(settings: Settings, model: OnnxModel, clock: TurnedClock) -> AsyncIterator[Service]:
    quotas = QuotaSettings(records=RECORDS, bytes=BYTES)
    async with running(settings.model_copy(update={"quotas": quotas}), TestParts(model, clock)) as service:
        yield service


async def remember(service: Service, content: str, **headers: str) -> httpx.Response:
    body = {"agent_id": "a", "user_id": "ada", "content": content}
    return await service.client.post("/v1/memories", json=body, headers=headers)


async def usage(service: Service, tenant: str = "default") -> Usage:
    return total((await service.resources.store.accounting.stored()).get(tenant, {}))


def refused(answer: httpx.Response, *figures: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (507, "quota_exceeded"), answer.text
    for figure in figures:
        assert figure in problem["detail"]
    return problem


async def test_a_write_beyond_the_records_is_507_with_the_figures(limited: Service) -> None:
    before = QUOTA_REFUSALS._value.get()
    made = [(await remember(limited, f"The cat number {n} is grey")).json()["memory_id"] for n in range(RECORDS)]
    refused(await remember(limited, "One cat more"), "is 3 records", "3 are used", "make it 4")
    assert QUOTA_REFUSALS._value.get() == before + 1
    assert (await usage(limited)).records == RECORDS
    assert (await limited.client.get(f"/v1/memories/{made[0]}")).status_code == 200
    assert (await limited.client.delete(f"/v1/memories/{made[0]}")).status_code == 204


async def test_a_write_beyond_the_bytes_is_507_with_the_figures(limited: Service) -> None:
    assert (await remember(limited, "tea " * 6_000)).status_code == 201
    used = (await usage(limited)).bytes
    assert 24_000 < used < BYTES
    refused(await remember(limited, "tea with milk " * 2_000), f"is {BYTES} bytes", f"{used} are used")
    assert (await usage(limited)).bytes == used


async def test_a_batch_is_refused_whole_and_its_idempotency_key_is_free_again(limited: Service) -> None:
    items = [{"agent_id": "a", "user_id": "ada", "content": f"Note {n} of the batch"} for n in range(RECORDS + 1)]
    headers = {"Idempotency-Key": "batch"}
    answer = await limited.client.post("/v1/memories/batch", json={"items": items}, headers=headers)
    refused(answer, "0 are used", "make it 4")
    assert await usage(limited) == Usage()
    fitting = {"items": items[:RECORDS]}
    answer = await limited.client.post("/v1/memories/batch", json=fitting, headers=headers)
    assert answer.status_code == 201, answer.text


async def test_a_quota_is_of_one_tenant(limited: Service) -> None:
    first, second = await limited.key("first"), await limited.key("second")
    for n in range(RECORDS):
        assert (await remember(limited, f"Note {n}", **first)).status_code == 201
    refused(await remember(limited, "Another note", **first))
    assert (await remember(limited, "Another note", **second)).status_code == 201
    assert ((await usage(limited, "first")).records, (await usage(limited, "second")).records) == (RECORDS, 1)


async def test_at_the_quota_deletion_and_erasure_go_on(limited: Service) -> None:
    for n in range(RECORDS):
        assert (await remember(limited, f"Note {n}")).status_code == 201
    refused(await remember(limited, "Another note"))
    erased = await limited.client.delete("/v1/users/ada")
    assert (erased.status_code, erased.json()["erased"]["agent_memories"]) == (200, RECORDS), erased.text
    assert await usage(limited) == Usage()
    assert await limited.resources.store.accounting.recount() == []


async def test_stored_answers_count_by_their_bytes(limited: Service) -> None:
    """The same memory again and again under new idempotency keys stores no record, and each answer."""
    text = "tea " * 1_500
    statuses = [
        (await remember(limited, text, **{"Idempotency-Key": f"k{n}"})).status_code for n in range(BYTES // len(text))
    ]
    assert statuses[0] == 201
    assert statuses[-1] == 507
    assert (await usage(limited)).records == 1
    assert (await remember(limited, text)).status_code == 200  # stores nothing
    assert (await limited.client.delete("/v1/users/ada")).status_code == 200
    assert (await usage(limited)).bytes < 6_000
    assert await limited.resources.store.accounting.recount() == []


async def test_the_bindings_of_keys_count_towards_the_tenant_of_the_key(limited: Service) -> None:
    admin = await limited.key("acme", "read,write,admin")
    agents = [f"{n:03}" + "a" * 250 for n in range(100)]
    key = {"name": "bound", "verbs": ["read"], "agents": agents}
    made = await limited.client.post("/v1/keys", json=key, headers=admin)
    assert made.status_code == 201, made.text
    refused(await limited.client.post("/v1/keys", json=key, headers=admin), f"is {BYTES} bytes")
    assert len((await limited.client.get("/v1/keys", headers=admin)).json()["items"]) == 2
    assert (await usage(limited, "acme")).bytes > 25_000
    assert (await usage(limited, "acme")).records == 0
    assert await limited.resources.store.accounting.recount() == []


async def test_at_the_quota_a_key_is_revoked(limited: Service) -> None:
    admin = await limited.key("acme", "read,write,admin")
    made = await limited.client.post("/v1/keys", json={"name": "lost", "verbs": ["read"]}, headers=admin)
    for agents in (140, 16, 2, 1):
        key = {"name": "full", "verbs": ["read"], "agents": [f"{n:03}" + "a" * 250 for n in range(agents)]}
        while (await limited.client.post("/v1/keys", json=key, headers=admin)).status_code == 201:
            continue
    headers = {**admin, "Idempotency-Key": "revoke"}
    revoked = await limited.client.post(f"/v1/keys/{made.json()['id']}/revoke", headers=headers)
    assert revoked.status_code == 200, revoked.text
    assert await limited.resources.store.accounting.recount() == []


async def test_all_kinds_of_records_count_and_the_counts_are_the_truth(service: Service) -> None:
    await remember(service, "Ada likes tea")
    said = {"messages": [{"role": "user", "content": "I moved to Oslo"}], "agent_id": "a", "user_id": "ada"}
    assert (await service.client.post("/v1/sessions/s/messages", json=said)).status_code == 201
    task = {"agent_id": "a", "user_id": "ada", "task_id": "t", "goal": "Pack"}
    assert (await service.client.post("/v1/tasks", json=task)).status_code == 201
    kept = await service.resources.store.accounting.stored()
    named = {"agent_memories", "conversation_sessions", "messages", "task_states"}
    assert named <= kept["default"].keys() <= named | {"users", "agents"}
    assert await service.resources.store.accounting.recount() == []
