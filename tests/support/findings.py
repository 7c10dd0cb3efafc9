"""Short words for what the tests of findings and reflection do."""

from collections.abc import Callable
from typing import Any

from app.core.clock import rfc3339
from app.findings.schemas import FindingKind, Proposal, ProposalDetails, ProposedAction, RecordName
from app.findings.service import EvidenceReader, FindingRepository, MemoryEvidence, new_finding, of_memory
from app.memories.repository import new_memory
from app.memories.schemas import MemoryRecord
from app.reflection.judge import JUDGED_PAIRS, JudgedPairRecord
from app.settings import LLMSettings, ReflectionSettings, Settings
from app.storage.changes import Insert
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.learning import operation, work
from tests.support.memories import OWNER, Json
from tests.support.model import Model


async def memory(service: Service, content: str, said_at: str | None = None, **more: Any) -> str:
    """The id of a new memory of (a, u)."""
    body = {**OWNER, "content": content, "memory_type": "fact", "event_at": said_at, **more}
    made = await service.client.post("/v1/memories", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["memory_id"])


async def found(
    service: Service,
    *memory_ids: str,
    kind: FindingKind = "contradiction",
    action: ProposedAction = "supersede",
    owner: Json = OWNER,
    sure: float = 0.9,
    details: ProposalDetails | None = None,
) -> str:
    """The id of a finding that proposes to keep the last memory."""
    held, now = service.resources, rfc3339(service.clock.now())
    scope = Scope("default")
    records = await EvidenceReader(held.store, scope, now).read(("memory", memory_id) for memory_id in memory_ids)
    names: list[RecordName] = [{"kind": "memory", "id": memory_id} for memory_id in memory_ids]
    keep = None if action == "end" else names.pop()
    proposal: Proposal = {"action": action, "keep": keep, "retire": names, "details": details or {}}
    evidence, of = list(records.values()), (owner.get("agent_id"), owner.get("user_id"))
    finding = new_finding(*of, kind, "They differ.", evidence, proposal, sure, now)
    await held.store.commit([FindingRepository(held.store, scope).insert(finding)])
    return finding["finding_id"]


async def judged(service: Service, owner: Json = OWNER) -> None:
    """Stores what a model said of a pair of this owner."""
    judged_pair: JudgedPairRecord = {
        "judged_id": "jdg_1",
        "tenant_id": "default",
        "agent_id": owner["agent_id"],
        "user_id": owner["user_id"],
        "verdict": "unrelated",
        "created_at": rfc3339(service.clock.now()),
    }
    await service.resources.store.commit([Insert(JUDGED_PAIRS, judged_pair)])


def record(text: str, day: int = 1, trust: float = 1.0) -> MemoryEvidence:
    """A memory as evidence, said on a day of January 2026."""
    fields: MemoryRecord = {
        "agent_id": "a",
        "user_id": "u",
        "content": text,
        "memory_type": "fact",
        "importance": 0.5,
        "trust": trust,
    }
    return of_memory(new_memory(fields, {}, f"2026-01-{day:02d}T00:00:00.000Z", unique=False))


def verdict(
    pair: Json, said: str = "contradicts", reason: str = "Only one of them can be true.", **quotes: str
) -> Json:
    """What a judge answers of a pair that it was shown. `quotes`: the words of each text, all of them by default, and
    what is left of it, nothing by default."""
    if said not in ("contradicts", "replaces"):
        return {"id": pair["id"], "verdict": said, "earlier_words": "", "later_words": "", "reason": ""}
    words = {f"{side}_words": quotes.get(side, pair[side]["text"]) for side in ("earlier", "later")}
    left = {f"{side}_left": quotes[f"{side}_left"] for side in ("earlier", "later") if f"{side}_left" in quotes}
    return {"id": pair["id"], "verdict": said, **words, **left, "reason": reason}


def knows(*texts: str, said: str = "contradicts", **quotes: str) -> Callable[[Json], Json]:
    """A judge that says this of pairs of these texts, and that all others are unrelated."""

    def judge(data: Json) -> Json:
        known = [(one, {one["earlier"]["text"], one["later"]["text"]} <= set(texts)) for one in data["pairs"]]
        return {"pairs": [verdict(one, said, **quotes) if of else verdict(one, "unrelated") for one, of in known]}

    return judge


def judging(settings: Settings, llm: Model, tokens_per_day: int = 0, **reflection: Any) -> Settings:
    """Settings with a scripted model as the judge."""
    asked = LLMSettings(
        base_url=llm.server.url,
        model="scripted",
        timeout_seconds=5,
        context_tokens=8192,
        tokens_per_day=tokens_per_day,
    )
    return settings.model_copy(update={"llm": asked, "reflection": ReflectionSettings(**reflection)})


async def findings(service: Service, **params: Any) -> list[Json]:
    """The findings of (a, u) that are open."""
    page = await service.client.get("/v1/findings", params={**OWNER, **params})
    assert page.status_code == 200, page.text
    items: list[Json] = page.json()["items"]
    return items


async def reflect(service: Service, **body: Any) -> Json:
    """The operation, once it is over."""
    answer = await service.client.post("/v1/reflect", json={**OWNER, **body})
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"])
