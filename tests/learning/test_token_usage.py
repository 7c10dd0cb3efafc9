"""Tokens of a tenant by day: counted in the store, and work waits for the next day once they are spent."""

import asyncio

import pytest

from app.core.clock import parse_rfc3339
from app.errors import LLMBudgetSpent
from app.jobs.queue import JOBS
from app.learning.dependencies import LLM_DAYS, USAGE_ID, LLMDayRecord, TenantAllowance
from app.metrics import LLM_USAGE
from app.settings import Settings
from app.storage.scope import SYSTEM
from tests.conftest import Service
from tests.support.learning import end, kept, learned, operation, said, talk, work
from tests.support.memories import OWNER, problem
from tests.support.model import Model

pytestmark = pytest.mark.anyio

LIMIT = 10_000
DAY = 24 * 60


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"llm": settings.llm.model_copy(update={"tokens_per_day": LIMIT})})


def allowance(service: Service, tenant: str = "default", limit: int = LIMIT) -> TenantAllowance:
    return TenantAllowance(service.resources.store, service.clock, tenant, limit)


async def counted(service: Service, tenant: str = "default") -> LLMDayRecord | None:
    return await service.resources.store.get(LLM_DAYS, tenant, USAGE_ID)


async def test_a_call_counts_what_it_spent(service: Service, llm: Model) -> None:
    before = LLM_USAGE.labels("default", "tokens")._value.get()
    llm.says["memories"] = {"memories": [learned("The user prefers tea.", 1)]}
    await talk(service, "I prefer tea.")
    done = await end(service)
    assert done["result"]["llm"] == {"calls": 2, "tokens": 100, "cached_tokens": 0}
    day = await counted(service)
    assert day is not None
    assert (day["calls"], day["tokens"], day["day"]) == (2, 100, service.clock.now().date().isoformat())
    assert LLM_USAGE.labels("default", "tokens")._value.get() - before == 100


async def test_a_run_past_the_limit_goes_on_on_the_next_day(service: Service, llm: Model) -> None:
    llm.says["memories"] = {"memories": [learned("The user prefers tea.", 1)]}
    await allowance(service).reserve(LIMIT - 100)
    await talk(service, "I prefer tea.")
    waits = await end(service)
    assert llm.calls == 0
    assert waits["status"] == "queued"
    assert f"may spend {LIMIT} tokens" in waits["error"]
    assert f"has spent {LIMIT - 100} today" in waits["error"]
    (job,) = await service.resources.store.find(JOBS, SYSTEM)
    assert job["attempts"] == 0
    until = parse_rfc3339(job["run_at"])
    assert (until.hour, until.minute, (until.date() - service.clock.now().date()).days) == (0, 0, 1)
    await work(service, minutes=1)
    assert llm.calls == 0
    await work(service, minutes=DAY)
    done = await operation(service, waits["operation_id"])
    assert (done["status"], llm.calls) == ("succeeded", 2)
    assert [memory["content"] for memory in await kept(service)] == ["The user prefers tea."]
    day = await counted(service)
    assert day is not None
    assert day["tokens"] == 100


async def test_a_summary_that_was_asked_for_waits_too(service: Service, llm: Model) -> None:
    await allowance(service).reserve(LIMIT)
    await talk(service, "I prefer tea.")
    llm.says["memories"] = {"memories": [learned("The user prefers tea.", 1)]}
    asked = await service.client.post("/v1/sessions/s/summarize")
    await work(service)
    waits = await operation(service, asked.json()["operation_id"])
    assert (waits["status"], llm.calls) == ("queued", 0)
    await work(service, minutes=DAY)
    done = await operation(service, asked.json()["operation_id"])
    assert (done["status"], llm.calls) == ("succeeded", 2)


async def test_extraction_past_the_limit_says_when_it_goes_on(service: Service, llm: Model) -> None:
    await allowance(service).reserve(LIMIT)
    answer = await service.client.post("/v1/memories/extract", json={**OWNER, "messages": said("I prefer tea.")})
    fault = problem(answer, 503, "llm_budget_spent")
    assert f"has spent {LIMIT} today" in fault["detail"]
    assert 0 < int(answer.headers["retry-after"]) <= DAY * 60
    assert llm.calls == 0


async def test_calls_at_the_same_time_do_not_pass_the_limit(service: Service) -> None:
    tries = [allowance(service, limit=1000).reserve(100) for _ in range(20)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 10
    assert sum(isinstance(outcome, LLMBudgetSpent) for outcome in outcomes) == 10
    await allowance(service, "other", limit=1000).reserve(1000)
    day = await counted(service)
    assert day is not None
    assert (day["calls"], day["tokens"]) == (10, 1000)
