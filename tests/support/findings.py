"""Short words for what the tests of findings and reflection do."""

from typing import Any

from app.core.clock import rfc3339
from app.findings.service import EvidenceReader, FindingRepository, new_finding
from app.reflection.judge import JUDGED_PAIRS
from app.storage.changes import Insert
from app.storage.search import Scope
from tests.conftest import Service
from tests.support.learning import operation, work
from tests.support.memories import PAIR, Json


async def memory(service: Service, content: str, said_at: str | None = None, **more: Any) -> str:
    """The id of a new memory of (a, u)."""
    body = {**PAIR, "content": content, "memory_type": "fact", "event_at": said_at, **more}
    made = await service.client.post("/v1/memories", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["memory_id"])


async def found(
    service: Service, *memory_ids: str, kind: str = "contradiction", action: str = "supersede", owner: Json = PAIR
) -> str:
    """The id of a finding that proposes to keep the last memory."""
    held, now = service.resources, rfc3339(service.clock.now())
    scope = Scope("default")
    records = await EvidenceReader(held.store, scope, now).read(("memory", each) for each in memory_ids)
    *retire, keep = ({"kind": "memory", "id": each} for each in memory_ids)
    if action == "end":
        retire, keep = [*retire, keep], {}
    proposal = {"action": action, "keep": keep or None, "retire": retire, "details": {}}
    doc = new_finding(
        owner.get("agent_id"), owner.get("user_id"), kind, "They differ.", list(records.values()), proposal, 0.9, now
    )
    await held.store.commit([FindingRepository(held.store, scope).insert(doc)])
    return str(doc["finding_id"])


async def judged(service: Service, owner: Json = PAIR) -> None:
    """Stores what a model said of a pair of this owner."""
    fields = {"tenant_id": "default", "agent_id": owner["agent_id"], "user_id": owner["user_id"]}
    doc = {"judged_id": "jdg_1", **fields, "verdict": "both_hold", "created_at": rfc3339(service.clock.now())}
    await service.resources.store.commit([Insert(JUDGED_PAIRS, doc)])


async def findings(service: Service, **params: Any) -> list[Json]:
    """The findings of (a, u) that are open."""
    page = await service.client.get("/v1/findings", params={**PAIR, **params})
    assert page.status_code == 200, page.text
    items: list[Json] = page.json()["items"]
    return items


async def reflect(service: Service, **body: Any) -> Json:
    """The operation, once it is over."""
    answer = await service.client.post("/v1/reflect", json={**PAIR, **body})
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"])
