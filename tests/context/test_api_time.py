"""Times in the query of POST /v1/context: every source is handed the same interval."""

import re

import httpx
import pytest

from app.context.schemas import ContextRequest
from app.context.service import assemble
from app.context.source import ContextSource, SourceRequest, SourceResult
from app.retrieval.time_expressions import TimeInterval
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.actions import log
from tests.support.context import ask
from tests.support.memories import OWNER, batch, problem, remember
from tests.support.profiles import register
from tests.support.sessions import append, said

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
    body = ContextRequest.model_validate({**OWNER, "query": query, **fields})
    await assemble(service.resources, Scope("default"), body, sources)
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


EVENING = "2026-05-20T20:00:00Z"
"""The 21st in Shanghai."""


async def moved(api: httpx.AsyncClient) -> None:
    """What a user said of a home, and that they moved to another one in the evening."""
    await remember(api, "I live in Rome, under a fig tree.", event_at="2026-01-05T00:00:00Z")
    for home, since in (("Rome", None), ("Oslo", EVENING)):
        fact = {"user_id": "u", "subject": "@user", "predicate": "lives_in", "object": home, "valid_from": since}
        assert (await api.post("/v1/facts", json=fact)).status_code == 201


async def test_the_days_of_a_prompt_are_those_of_the_callers_zone(api: httpx.AsyncClient) -> None:
    await moved(api)
    await append(api, said("I planted the quince at the gate", timestamp=EVENING), "talk")
    await api.patch("/v1/sessions/talk", json={"summary": "They spoke of fig trees."})
    await batch(
        api,
        {"content": "Planted the fig tree behind the shed", "event_at": EVENING},
        {"content": "The first day of all had no fig tree", "event_at": "0001-01-01T00:00:00Z"},
    )
    fact = {**OWNER, "subject": "the fig tree", "predicate": "belongs_to", "object": "Ben", "valid_from": EVENING}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    await log(api, "Watered the fig tree", action_type="garden", timestamp=EVENING, agent_id="a", user_id="u")
    interaction = {"summary": "Asked about the fig tree", "timestamp": EVENING, "agent_id": "a"}
    assert (await api.post("/v1/users/u/interactions", json=interaction)).status_code == 201
    for zone, day in (("Asia/Shanghai", "2026-05-21"), (None, "2026-05-20"), ("America/New_York", "2026-05-20")):
        asked = await ask(api, "Where do I plant the fig tree and the quince?", timezone=zone, session_id="new")
        text = asked["text"]
        assert f"### {day}\n" in text, text
        assert f"### {day}, conversation" in text
        assert f"belongs to Ben (since {day})" in text
        assert f"I live in Rome (home since {day}: Oslo), under a fig tree." in text
        assert f"{day} garden: Watered" in text
        assert f"{day} interaction: Asked" in text
        assert f"session of {day}: They spoke" in text
        assert set(re.findall(r"2026-05-\d\d", text)) == {day}


async def test_the_days_of_an_experience_prompt_are_those_of_the_callers_zone(api: httpx.AsyncClient) -> None:
    await register(api)
    await moved(api)
    path = "/v1/agents/a/experience-prompt"
    for zone, day in (({"timezone": "Asia/Shanghai"}, "2026-05-21"), ({}, "2026-05-20")):
        told = await api.get(path, params={"user_id": "u", **zone})
        assert f"(home since {day}: Oslo)" in told.json()["text"]
    problem(await api.get(path, params={"timezone": "Mars/Olympus"}), 422)
