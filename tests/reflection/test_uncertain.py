"""A prompt says what is uncertain until somebody settles it, and shows no superseded value unmarked."""

import pytest

from tests.conftest import Service
from tests.support.findings import findings, memory, reflect, verdict
from tests.support.memories import OWNER, Json
from tests.support.model import Model
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def two_values(llm: Model) -> None:
    """The model knows that each two memories of these give two values of one thing."""

    def judge(data: Json) -> Json:
        def differ(pair: Json) -> bool:
            texts = [pair[side]["text"] for side in ("earlier", "later")]
            return all(text.startswith(("I live in", "I now live in")) for text in texts) or (
                all(text.startswith("My favourite") for text in texts) and texts[0].split()[2] == texts[1].split()[2]
            )

        return {"pairs": [verdict(pair, "contradicts" if differ(pair) else "unrelated") for pair in data["pairs"]]}

    llm.says["JudgedPairs"] = judge


ROME, OSLO = "I live in Rome, near the river.", "I now live in Oslo, on a hill."


async def two_homes(service: Service) -> None:
    await memory(service, ROME, "2026-01-05T00:00:00Z")
    await memory(service, OSLO, "2026-05-05T00:00:00Z")


async def summarised(service: Service, session: str, summary: str) -> None:
    """A session that ended with this summary."""
    api = service.client
    await append(api, said("hello"), session)
    assert (await api.patch(f"/v1/sessions/{session}", json={"summary": summary})).status_code == 200
    assert (await api.post(f"/v1/sessions/{session}/end")).status_code in (200, 202)


async def context(service: Service, query: str, **more: object) -> Json:
    answer = await service.client.post("/v1/context", json={**OWNER, "query": query, **more})
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def test_both_values_are_shown_with_their_dates_until_it_is_settled(judged: Service) -> None:
    await memory(judged, "I live in Rome.", "2026-01-05T00:00:00Z")
    await memory(judged, "I now live in Oslo.", "2026-05-05T00:00:00Z")
    await reflect(judged)
    asked = await context(judged, "Which town is the user's home?")
    assert "uncertain: I live in Rome. (2026-01-05) or, later: I now live in Oslo. (2026-05-05)" in asked["text"]
    assert asked["text"].count("Rome") == 1
    west = await context(judged, "Which town is the user's home?", timezone="America/New_York")
    assert "uncertain: I live in Rome. (2026-01-04) or, later: I now live in Oslo. (2026-05-04)" in west["text"]
    (finding,) = await findings(judged)
    await judged.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    settled = (await context(judged, "Which town is the user's home?"))["text"]
    assert "Rome" not in settled
    assert "uncertain" not in settled
    assert "Oslo" in settled


async def test_what_is_not_asked_about_is_not_shown(judged: Service) -> None:
    await memory(judged, "My favourite colour is blue.")
    await memory(judged, "My favourite colour is green.")
    for at in range(12):
        await memory(judged, f"The invoice number {at} was paid by the bank.")
    await reflect(judged)
    assert "uncertain: " not in (await context(judged, "Which invoice was paid by the bank?"))["text"]
    assert "uncertain: " in (await context(judged, "What is my favourite colour?"))["text"]


async def test_it_stays_within_the_budget_and_can_be_excluded(judged: Service) -> None:
    for topic in ("colour", "song", "book", "film", "dish"):
        await memory(judged, f"My favourite {topic} is blue.")
        await memory(judged, f"My favourite {topic} is green.")
    await reflect(judged)
    small = await context(judged, "What is my favourite colour?", token_budget=120)
    assert small["tokens"] <= 120
    without = await context(judged, "What is my favourite colour?", exclude=["uncertain"])
    assert "uncertain" not in without["text"]


async def test_another_users_findings_are_not_shown(judged: Service) -> None:
    await memory(judged, "I live in Rome.")
    await memory(judged, "I now live in Oslo.")
    await reflect(judged)
    assert "uncertain" not in (await context(judged, "Where do I live?", user_id="v"))["text"]


async def test_a_text_that_repeats_what_is_doubted_is_marked_until_it_is_settled(judged: Service) -> None:
    await memory(judged, "I live in Rome, near the river.", "2026-01-05T00:00:00Z")
    await memory(judged, "I now live in Oslo, on a hill.", "2026-05-05T00:00:00Z")
    summary = "The user told about the weekend. I live in Rome, near the river. They asked for a dentist."
    await memory(judged, summary, "2026-01-06T00:00:00Z", memory_type="learned")
    await reflect(judged)
    asked = (await context(judged, "Which dentist is near the user's home?"))["text"]
    assert (
        "I live in Rome, near the river (uncertain; later, 2026-05-05: I now live in Oslo, on a hill.). They asked"
        in asked
    )
    (finding,) = await findings(judged)
    await judged.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    settled = (await context(judged, "Which dentist is near the user's home?"))["text"]
    assert "near the river (until 2026-05-05: I now live in Oslo, on a hill.). They asked" in settled
    assert "uncertain" not in settled


async def test_a_dismissed_finding_marks_nothing(judged: Service) -> None:
    await memory(judged, "I live in Rome.", "2026-01-05T00:00:00Z")
    await memory(judged, "I now live in Oslo.", "2026-05-05T00:00:00Z")
    await reflect(judged)
    (finding,) = await findings(judged)
    await judged.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    assert "uncertain" not in (await context(judged, "Where is the user's home?"))["text"]


async def test_a_memory_that_has_no_room_under_uncertain_is_marked_in_its_place(judged: Service) -> None:
    for town, year in (("Rome", 2021), ("Oslo", 2022), ("Graz", 2023), ("Bern", 2024)):
        await memory(judged, f"I now live in {town}.", f"{year}-05-05T00:00:00Z")
    await reflect(judged)
    text = (await context(judged, "Where does the user live?", sections={"uncertain": {"limit": 1}}))["text"]
    shown = [line for line in text.splitlines() if "I now live in" in line]
    assert len(shown) >= 3
    assert all("uncertain" in line for line in shown)


async def test_what_is_stored_is_counted_once(judged: Service) -> None:
    """Of fewer than eight documents nothing is left out, whether a finding is open or not."""
    for at in range(3):
        await memory(judged, f"The invoice number {at} was paid by the bank.")
    await two_homes(judged)
    before = await context(judged, "thanks!")
    assert "enough" not in {one["reason"] for one in before["dropped"]}
    await reflect(judged)
    after = await context(judged, "thanks!")
    assert "enough" not in {one["reason"] for one in after["dropped"]}
