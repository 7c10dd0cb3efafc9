"""What one entry of a context says no other repeats."""

from typing import Any

import httpx
import pytest

from tests.support.context import ask, dropped, entries, items, texts
from tests.support.memories import remember
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


async def test_a_turn_of_the_session_is_not_repeated_by_its_memory_and_never_left_out(api: httpx.AsyncClient) -> None:
    await append(api, said(LIVES, "And now?", LIVES), "now")
    body = await ask(api, QUERY, session_id="now")
    assert texts(body, "messages") == [f"user: {LIVES}", "user: And now?", f"user: {LIVES}"]
    assert items(body, "memories") == []


async def test_events_of_two_days_and_words_of_two_speakers_are_two(api: httpx.AsyncClient) -> None:
    for day in (1, 2):
        await remember(api, "Walked from Boston to the harbour", event_at=f"2026-05-{day:02}T08:00:00Z")
    await say(api, 5, LIVES, name="Ann")
    await say(api, 6, LIVES, name="Ben")
    shown = texts(await ask(api, QUERY), "memories")
    assert sorted(shown) == [*["Walked from Boston to the harbour"] * 2, f'user "Ann": {LIVES}', f'user "Ben": {LIVES}']
