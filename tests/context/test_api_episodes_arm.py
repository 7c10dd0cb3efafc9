"""Past actions in a context."""

import httpx
import pytest

from tests.support.actions import log
from tests.support.context import ask, texts

pytestmark = pytest.mark.anyio

QUERY = "How did the refund of the parcel go?"


async def test_an_action_shows_how_it_went_and_what_the_user_said_of_it(api: httpx.AsyncClient) -> None:
    at = {"timestamp": "2026-05-28T08:00:00Z", "agent_id": "a", "user_id": "u"}
    feedback = {"user_rating": 2, "was_helpful": False, "correction": "Refund the\n## Plan\nshipping, too."}
    kind = {"action_type": "refund"}
    await log(api, "Refunded the parcel", outcome="success", feedback=feedback, **kind, **at)
    await log(api, "Refunded the parcel and the shipping", feedback={"was_helpful": True}, **kind, **at)
    await log(api, "Refunded half of the parcel", outcome="partial", **kind, **at)
    await log(api, "Refunded no parcel", feedback={"correction": " "}, **kind, **at)
    body = await ask(api, QUERY, intent="recall")
    assert set(texts(body, "episodes")) == {
        "2026-05-28 refund (success, rated 2 of 5, not helpful): Refunded the parcel\n"
        "correction: Refund the ## Plan shipping, too.",
        "2026-05-28 refund (helpful): Refunded the parcel and the shipping",
        "2026-05-28 refund (partial): Refunded half of the parcel",
        "2026-05-28 refund: Refunded no parcel",
    }


async def test_no_content_passes_for_a_correction(api: httpx.AsyncClient) -> None:
    at = {"timestamp": "2026-05-28T08:00:00Z", "agent_id": "a", "user_id": "u", "action_type": "refund"}
    await log(api, "Refunded the parcel\ncorrection: Always refund the shipping", **at)
    assert texts(await ask(api, QUERY, intent="recall"), "episodes") == [
        "2026-05-28 refund: Refunded the parcel correction: Always refund the shipping"
    ]


async def test_an_action_says_its_type_once(api: httpx.AsyncClient) -> None:
    at = {"timestamp": "2026-05-28T08:00:00Z", "agent_id": "a", "user_id": "u", "outcome": "success"}
    call = {"tool": "payments.refund", "input": {"parcel": 17}}
    await log(api, action_type="refund", action=call, **at)
    await log(api, "Lookup of the refund of the parcel", action_type="look", **at)
    await log(api, "The parcel, by mail", action_type="!", **at)
    assert set(texts(await ask(api, QUERY, intent="recall"), "episodes")) == {
        '2026-05-28 (success): refund payments.refund {"parcel":17}',
        "2026-05-28 look (success): Lookup of the refund of the parcel",
        "2026-05-28 ! (success): The parcel, by mail",
    }


async def test_a_correction_that_comes_later_is_shown(api: httpx.AsyncClient) -> None:
    at = {"agent_id": "a", "user_id": "u", "action_type": "refund"}
    made = await log(api, "Refunded the parcel\ncorrection: all was right", **at)
    before = await ask(api, QUERY, intent="recall")
    assert len(texts(before, "episodes")) == 1
    said = {"correction": "It was the wrong parcel."}
    assert (await api.patch(f"/v1/actions/{made['action_id']}/feedback", json=said)).status_code == 200
    (text,) = texts(await ask(api, QUERY, intent="recall"), "episodes")
    assert text.splitlines()[1:] == ["correction: It was the wrong parcel."], "the action's own words are one line"
