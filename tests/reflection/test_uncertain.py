"""A prompt says what is uncertain until somebody settles it, and shows no superseded value unmarked."""

import pytest

from app.setting_groups import JobSettings
from app.settings import Settings
from tests.conftest import Service
from tests.support.findings import findings, memory, reflect
from tests.support.memories import PAIR, Json

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def context(service: Service, query: str, **more: object) -> Json:
    answer = await service.client.post("/v1/context", json={**PAIR, "query": query, **more})
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def test_both_values_are_shown_with_their_dates_until_it_is_settled(service: Service) -> None:
    await memory(service, "I live in Rome.", "2026-01-05T00:00:00Z")
    await memory(service, "I now live in Oslo.", "2026-05-05T00:00:00Z")
    await reflect(service)
    asked = await context(service, "Which town is the user's home?")
    assert "uncertain: I live in Rome. (2026-01-05) or, later: I now live in Oslo. (2026-05-05)" in asked["text"]
    assert asked["text"].count("Rome") == 1
    (finding,) = await findings(service)
    await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    settled = (await context(service, "Which town is the user's home?"))["text"]
    assert "Rome" not in settled
    assert "uncertain" not in settled
    assert "Oslo" in settled


async def test_what_is_not_asked_about_is_not_shown(service: Service) -> None:
    await memory(service, "My favourite colour is blue.")
    await memory(service, "My favourite colour is green.")
    for at in range(12):
        await memory(service, f"The invoice number {at} was paid by the bank.")
    await reflect(service)
    assert "uncertain" not in (await context(service, "Which invoice was paid by the bank?"))["text"]
    assert "uncertain" in (await context(service, "What is my favourite colour?"))["text"]


async def test_it_stays_within_the_budget_and_can_be_excluded(service: Service) -> None:
    for topic in ("colour", "song", "book", "film", "dish"):
        await memory(service, f"My favourite {topic} is blue.")
        await memory(service, f"My favourite {topic} is green.")
    await reflect(service)
    small = await context(service, "What is my favourite colour?", token_budget=120)
    assert small["tokens"] <= 120
    without = await context(service, "What is my favourite colour?", exclude=["uncertain"])
    assert "uncertain" not in without["text"]


async def test_another_users_findings_are_not_shown(service: Service) -> None:
    await memory(service, "I live in Rome.")
    await memory(service, "I now live in Oslo.")
    await reflect(service)
    assert "uncertain" not in (await context(service, "Where do I live?", user_id="v"))["text"]
