"""Times in the query of POST /v1/context: every source is handed the same interval."""

import httpx
import pytest

from app.context.schemas import ContextRequest
from app.context.service import ContextService
from app.context.source import ContextSource, SourceRequest, SourceResult
from app.retrieval.time_expressions import TimeInterval
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.context import ask
from tests.support.memories import PAIR

pytestmark = pytest.mark.anyio


async def intervals(service: Service, query: str, **fields: str) -> list[TimeInterval | None]:
    """As two sources are handed them."""
    handed: list[TimeInterval | None] = []

    async def gather(request: SourceRequest) -> SourceResult:
        handed.append(request.interval)
        return SourceResult()

    sources = [
        ContextSource("memories", "Memories", gather, default_limit=5),
        ContextSource("facts", "Facts", gather, default_limit=5),
    ]
    body = ContextRequest.model_validate({**PAIR, "query": query, **fields})
    await ContextService(service.resources, Scope("default"), sources=sources).assemble(body)
    return handed


async def test_every_source_is_handed_the_time_of_the_query(service: Service) -> None:
    one, other = await intervals(service, "what did we do yesterday", now="2026-06-17T23:30:00Z")
    assert one == other == TimeInterval(1_781_568_000_000, 1_781_654_400_000, "yesterday")
    assert await intervals(service, "what does she like") == [None, None]


async def test_it_is_relative_to_the_zone_of_the_request(service: Service) -> None:
    now = "2026-06-17T23:30:00Z"
    utc, _ = await intervals(service, "yesterday", now=now)
    tokyo, _ = await intervals(service, "yesterday", now=now, timezone="Asia/Tokyo")
    assert utc is not None
    assert tokyo is not None
    assert tokyo.start - utc.start == 15 * 3_600_000


async def test_a_prompt_for_a_time_is_answered(api: httpx.AsyncClient) -> None:
    assert (await ask(api, "what did we do last month", timezone="Europe/Berlin"))["errors"] == []
