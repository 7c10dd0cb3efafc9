"""What one entry of a context says no other repeats."""

from datetime import UTC
from typing import Any

import httpx
import pytest

from app.context.candidates import Candidate, Comparison
from app.context.packing import Packer, Section
from app.context.repetition import same_text, sentences_said
from app.context.sources.searched import fact_item, newest_of_equal
from app.facts.models import FactRecord
from app.facts.outdated import Utterance
from app.storage.text import content_hash
from tests.support.context import ask, dropped, entries, items, texts
from tests.support.memories import PAIR, remember
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

LIVES = "I live in Boston, near the harbour."
QUERY = "Where near the harbour of Boston do I live?"


async def say(api: httpx.AsyncClient, day: int, *contents: str, **fields: Any) -> None:
    await append(api, said(*contents, timestamp=f"2026-05-{day:02}T08:00:00Z", **fields), f"s{day}")


async def test_what_was_said_in_several_sessions_stands_once_as_of_the_last(api: httpx.AsyncClient) -> None:
    for day in (1, 9, 5):
        await say(api, day, LIVES if day != 5 else LIVES.upper())
    body = await ask(api, QUERY)
    assert [(one.heading, one.text) for one in entries(body, "memories")] == [
        ("2026-05-09, conversation 1", f"user: {LIVES}")
    ]
    assert list(dropped(body).values()) == ["duplicate", "duplicate"]
    (kept,) = items(body, "memories")
    assert [entry["repeats"] for entry in body["dropped"]] == [[kept["id"]], [kept["id"]]]
    past = await ask(api, QUERY, now="2026-05-06T00:00:00Z")
    assert [one.heading for one in entries(past, "memories")] == ["2026-05-05, conversation 1"]


async def test_a_text_that_says_more_stands_beside_what_it_repeats(api: httpx.AsyncClient) -> None:
    await say(api, 1, f"{LIVES} The cat of my sister lives in Boston, too.")
    await say(api, 2, LIVES)
    shown = texts(await ask(api, QUERY), "memories")
    assert f"user: {LIVES} The cat of my sister lives in Boston, too." in shown


async def test_what_is_said_again_after_a_change_is_no_repetition(api: httpx.AsyncClient) -> None:
    await say(api, 1, LIVES)
    await say(api, 5, "I live in Bergen now, no more in Boston near the harbour.")
    await say(api, 9, LIVES)
    found = {
        one.heading[:10]
        for one in entries(await ask(api, QUERY), "memories")
        if one.heading and "Bergen" not in one.text
    }
    assert found == {"2026-05-09"}


async def test_a_turn_of_the_session_is_not_repeated_by_a_memory_and_never_left_out(api: httpx.AsyncClient) -> None:
    await say(api, 1, LIVES)
    await append(api, said(LIVES, "And now?", LIVES), "now", memorize="none")
    body = await ask(api, QUERY, session_id="now")
    assert texts(body, "messages") == [f"user: {LIVES}", "user: And now?", f"user: {LIVES}"]
    assert items(body, "memories") == []


async def test_events_of_two_days_and_words_of_two_speakers_are_two(api: httpx.AsyncClient) -> None:
    for day in (1, 2):
        await remember(api, "Walked from Boston to the harbour", event_at=f"2026-05-{day:02}T08:00:00Z")
    await say(api, 5, LIVES, name="Ann")
    await say(api, 6, LIVES, name="Ben")
    shown = texts(await ask(api, QUERY), "memories")
    said = [f'user "{name}": {LIVES}' for name in ("Ann", "Ben")]
    assert sorted(shown) == [*["Walked from Boston to the harbour"] * 2, *said]


async def test_a_fact_with_its_time_is_compared_without_it(api: httpx.AsyncClient) -> None:
    await say(api, 1, "Ada lives in Boston.")
    fact = {"subject": "Ada", "predicate": "lives_in", "object": "Boston", "valid_from": "2026-05-01T00:00:00Z"}
    assert (await api.post("/v1/facts", json={**PAIR, **fact})).status_code == 201
    assert (await ask(api, "Where does Ada live?"))["text"].count("lives in Boston") == 1


def test_sentences_are_compared_without_case_space_and_closing_marks() -> None:
    assert sentences_said("I live in  BOSTON. Yes!") == sentences_said("yes. I live in Boston!")
    assert sentences_said("Do I live in Boston?") != sentences_said("Do I live in Boston.")
    assert sentences_said("Yes. I do.") == frozenset(), "it means something else each time"


def a_memory(name: str, day: int, text: str, score: float) -> Candidate:
    said_at = Utterance(f"2026-05-{day:02}T08:00:00Z", None)
    comparison = Comparison(content=(content_hash(text), None))
    return Candidate(name, "message", text, score, utterance=said_at, comparison=comparison)


def test_of_equal_texts_the_newest_has_the_best_score_and_place() -> None:
    found = [a_memory("a", 1, LIVES, 0.9), a_memory("b", 3, "Another sentence.", 0.5), a_memory("c", 2, LIVES, 0.1)]
    ordered = newest_of_equal(found)
    assert [(one.id, one.score) for one in ordered] == [("c", 0.9), ("b", 0.5), ("a", 0.1)]


def a_fact(subject: str, predicate: str, value: str) -> FactRecord:
    return {
        "fact_id": f"{subject}-{value}",
        "subject": subject,
        "subject_key": subject.lower(),
        "predicate": predicate,
        "object": value,
        "object_key": value.lower(),
        "object_type": "entity",
        "valid_from": None,
        "valid_until": None,
        "supersedes": [],
        "known_from": "2026-05-01T08:00:00Z",
    }


CHAIN = [a_fact("Emil", "attends", "Fernhill Primary"), a_fact("Fernhill Primary", "opens_at", "08:20")]
FIRST, LAST = "Emil attends Fernhill Primary", "Fernhill Primary opens at 08:20"


@pytest.mark.parametrize(
    ("memory", "score", "shown"),
    [
        (FIRST, 0.9, [FIRST, LAST]),
        (LAST, 0.9, [LAST, FIRST]),
        (FIRST, 0.1, [f"{FIRST} → opens at 08:20"]),
        (LAST, 0.1, [f"{FIRST} → opens at 08:20"]),
    ],
)
def test_of_a_chain_and_a_memory_that_says_a_link_the_later_one_adds_what_is_new(
    memory: str, score: float, shown: list[str]
) -> None:
    found = [a_memory("m", 1, f"{memory}.", score), fact_item(CHAIN, 0.5, UTC)]
    section = Section("facts", found, lambda item: 10, lambda item: 0, 0, 10, compared=True)
    packed = Packer([section], 1000, 0, 0.0).pack(lambda item: 10)
    assert [item.text.rstrip(".") for item in packed.chosen["facts"]] == shown
    assert {item.id for item, _ in packed.dropped}.isdisjoint(item.id for item in packed.chosen["facts"])
    assert all(reason == "duplicate" for _, reason in packed.dropped)


def test_of_a_chain_no_fact_stands_that_the_profile_has() -> None:
    name = Candidate(
        "profile:school", "profile", "school: Fernhill", comparison=Comparison(frozenset({same_text(FIRST)}))
    )
    profile = Section("profile", [name], lambda item: 10, lambda item: 0, 0, 10, always=True, compared=True)
    facts = Section("facts", [fact_item(CHAIN, 0.5, UTC)], lambda item: 10, lambda item: 0, 0, 10, compared=True)
    packed = Packer([profile, facts], 1000, 0, 0.0).pack(lambda item: 10)
    assert [item.text for item in packed.chosen["facts"]] == [LAST]
    assert [(item.text, reason) for item, reason in packed.dropped] == [(FIRST, "duplicate")]


@pytest.mark.parametrize("budget", [50, 1000])
def test_of_a_chain_that_was_cut_each_fact_is_packed_or_dropped_once(budget: int) -> None:
    """The profile says the first, and for the rest there may be no room."""
    name = Candidate("profile:x", "profile", "school: F", comparison=Comparison(frozenset({same_text(FIRST)})))
    profile = Section("profile", [name], lambda item: 10, lambda item: 0, 0, 10, always=True, compared=True)
    facts = Section("facts", [fact_item(CHAIN, 0.5, UTC)], lambda item: 45, lambda item: 0, 0, 10, compared=True)
    packed = Packer([profile, facts], budget, 0, 0.0).pack(lambda item: 10)
    reasons = {item.text: reason for item, reason in packed.dropped}
    assert reasons == ({FIRST: "duplicate"} if budget == 1000 else {FIRST: "duplicate", LAST: "budget"})
    assert packed.misfits == ({} if budget == 1000 else {CHAIN[1]["fact_id"]: (45, 40, 0)})
