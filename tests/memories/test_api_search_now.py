"""`now`: a search as of then finds nothing that happened later."""

import httpx
import pytest

from tests.conftest import TurnedClock
from tests.support.context import ask
from tests.support.memories import OWNER, batch, found, remember
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

TEXTS = ("tea in April", "tea in May", "tea in July")
BY = {"said_at": "2026-06-10T00:00:00Z"}


async def stocked(api: httpx.AsyncClient) -> None:
    """What happened in April and May, what is planned for July, and what was only written down, on 1 June; and what a
    message of 10 June says of May and of August."""
    days = ("2026-04-10", "2026-05-10", "2026-07-10")
    dated = zip(TEXTS, days, strict=True)
    await batch(api, *({"content": text, "event_at": f"{day}T12:00:00Z"} for text, day in dated))
    await remember(api, "tea, written down")
    for text, day in {"told of tea in May": "2026-05-01", "told of tea in August": "2026-08-01"}.items():
        await remember(api, text, event_at=f"{day}T00:00:00Z", source=BY)


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
async def test_what_was_told_later_is_hidden(api: httpx.AsyncClient, mode: str) -> None:
    await stocked(api)

    async def at(moment: str) -> set[str]:
        return set(await found(api, "tea", now=moment, mode=mode))

    told = {*TEXTS, "tea, written down"}
    assert await at("2026-05-01T00:00:00Z") == {"tea in April"}, "of what was stored later, what had happened"
    assert await at("2026-05-10T11:59:59.999Z") == {"tea in April"}
    assert await at("2026-05-10T12:00:00Z") == {"tea in April", "tea in May"}, "that moment is no later one"
    assert await at("2026-06-02T00:00:00Z") == told, "a plan is known from when it was told"
    told |= {"told of tea in May", "told of tea in August"}
    for moment in ("2026-06-10T00:00:00Z", "2026-07-10T12:00:00Z", "2026-09-01T00:00:00Z"):
        assert await at(moment) == told, "before, on and after its day"


async def test_without_it_what_lies_ahead_is_found(api: httpx.AsyncClient) -> None:
    """An appointment is remembered before it comes."""
    await stocked(api)
    assert {*TEXTS, "tea, written down"} < set(await found(api, "tea"))


async def test_a_message_moves_with_its_time(api: httpx.AsyncClient) -> None:
    """A message that is corrected to another time was told then."""
    (made,) = (await append(api, said("tea at noon", timestamp="2026-05-01T00:00:00Z")))["items"]
    changed = {"timestamp": "2026-05-20T00:00:00Z"}
    answer = await api.patch(f"/v1/sessions/s/messages/{made['seq']}", json=changed)
    assert answer.status_code == 200, answer.text
    assert await found(api, "tea", now="2026-05-19T00:00:00Z") == []
    assert await found(api, "tea", now="2026-05-20T00:00:00Z") == ["tea at noon"]


async def test_as_many_come_as_match(api: httpx.AsyncClient) -> None:
    for number in range(12):
        when = f"2026-0{5 + number % 2 * 2}-01T00:00:00Z"
        await remember(api, f"tea number {number}", source={"said_at": when})
    assert len(await found(api, "tea", now="2026-06-15T00:00:00Z", top_k=6)) == 6


async def test_a_context_as_of_then_knows_nothing_of_later(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await stocked(api)
    await remember(api, "Speak French from July on", pinned=True, source={"said_at": "2026-07-01T00:00:00Z"})
    early = said("Is there tea?", timestamp="2026-05-20T10:00:00Z")
    late = said(*(f"We had tea in week {week}" for week in range(30)), timestamp="2026-07-20T10:00:00Z")
    await append(api, [*early, *late])
    text = (await ask(api, "tea?", session_id="s", now="2026-06-02T00:00:00Z"))["text"]
    assert "tea in May" in text
    assert "Is there tea?" in text
    for later in ("tea in August", "French", "We had tea"):
        assert later not in text
    assert "tea in August" in (await ask(api, "tea in August?", now="2026-08-01T00:00:00Z"))["text"]


async def test_actions_that_came_later_are_hidden(api: httpx.AsyncClient) -> None:
    for month in ("04", "07"):
        body = {
            **OWNER,
            "action_type": "mail",
            "content": f"mail of {month}",
            "timestamp": f"2026-{month}-01T00:00:00Z",
        }
        assert (await api.post("/v1/actions", json=body)).status_code == 201
    asked = {**OWNER, "query": "mail", "now": "2026-06-01T00:00:00Z"}
    items = (await api.post("/v1/actions/search", json=asked)).json()["items"]
    assert [item["action"]["content"] for item in items] == ["mail of 04"]
