"""A prompt says what is uncertain until somebody settles it, and shows no superseded value unmarked."""

import pytest

from app.settings import JobSettings, Settings
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


async def test_a_text_that_repeats_what_is_doubted_is_marked_until_it_is_settled(service: Service) -> None:
    await memory(service, "I live in Rome, near the river.", "2026-01-05T00:00:00Z")
    await memory(service, "I now live in Oslo, on a hill.", "2026-05-05T00:00:00Z")
    summary = "The user told about the weekend. I live in Rome, near the river. They asked for a dentist."
    await memory(service, summary, "2026-01-06T00:00:00Z", memory_type="learned")
    await reflect(service)
    asked = (await context(service, "Which dentist is near the user's home?"))["text"]
    assert "dentist. (uncertain; later, 2026-05-05: I now live in Oslo, on a hill.)" in asked
    (finding,) = await findings(service)
    await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    settled = (await context(service, "Which dentist is near the user's home?"))["text"]
    assert "dentist. (earlier; since 2026-05-05: I now live in Oslo, on a hill.)" in settled
    assert "uncertain" not in settled


async def test_a_dismissed_finding_marks_nothing(service: Service) -> None:
    await memory(service, "I live in Rome.", "2026-01-05T00:00:00Z")
    await memory(service, "I now live in Oslo.", "2026-05-05T00:00:00Z")
    await reflect(service)
    (finding,) = await findings(service)
    await service.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    assert "uncertain" not in (await context(service, "Where is the user's home?"))["text"]


async def test_a_memory_that_has_no_room_under_uncertain_is_marked_in_its_place(service: Service) -> None:
    for town, year in (("Rome", 2021), ("Oslo", 2022), ("Graz", 2023), ("Bern", 2024)):
        await memory(service, f"I now live in {town}.", f"{year}-05-05T00:00:00Z")
    await reflect(service)
    text = (await context(service, "Where does the user live?", sections={"uncertain": {"limit": 1}}))["text"]
    shown = [line for line in text.splitlines() if "I now live in" in line]
    assert len(shown) >= 3
    assert all("uncertain" in line for line in shown)
