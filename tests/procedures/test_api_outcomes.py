"""Outcomes: counted one by one, whoever tells them; remembered within bounds."""

import asyncio

import httpx
import pytest

from app.procedures.schemas import MAX_NOTES, OutcomeIn, ProcedureRecord
from app.procedures.service import KEPT_OUTCOMES, outcome
from app.settings import Settings
from tests.conftest import Starter, TurnedClock
from tests.support.memories import Json, problem
from tests.support.procedures import got, learn, path, report

pytestmark = pytest.mark.anyio


async def test_an_outcome_is_counted_noted_and_leaves_the_version_alone(api: httpx.AsyncClient) -> None:
    made = await learn(api, notes=["Be kind"])
    told = await report(api, made, False, note="The site was down", action_id="act-1", task_id="t-1")
    after = told["procedure"]
    (entry,) = after["recent_outcomes"]
    assert entry == {
        "success": False,
        "note": "The site was down",
        "action_id": "act-1",
        "task_id": "t-1",
        "at": after["last_used"],
        "version": 1,
        "variant": "current",
    }
    assert after == {
        **made,
        "failure_count": 1,
        "success_rate": 1 / 3,
        "notes": ["Be kind", "The site was down"],
        "recent_outcomes": [entry],
        "last_used": after["last_used"],
    }
    assert told["dropped_notes"] == []
    assert await got(api, made) == after
    again = await report(api, made, True, True)
    assert (again["procedure"]["success_count"], again["procedure"]["success_rate"]) == (2, 0.6)
    assert again["procedure"]["notes"] == after["notes"]


async def test_the_oldest_notes_and_outcomes_leave(api: httpx.AsyncClient) -> None:
    made = await learn(api, notes=[f"note {at}" for at in range(MAX_NOTES)])
    same = await report(api, made, True, note="NOTE 0")  # said last, and said once
    assert same["dropped_notes"] == []
    assert same["procedure"]["notes"][-1] == "NOTE 0"
    assert len(same["procedure"]["notes"]) == MAX_NOTES
    more = await report(api, made, False, note="new")
    assert more["dropped_notes"] == ["note 1"]
    assert more["procedure"]["notes"][-2:] == ["NOTE 0", "new"]


def test_the_last_outcomes_are_kept_and_all_are_counted() -> None:
    doc: ProcedureRecord = {
        "success_count": 0,
        "failure_count": 0,
        "recent_outcomes": [],
        "last_used": None,
        "notes": [],
        "version": 3,
    }
    for at in range(KEPT_OUTCOMES + 5):
        doc |= outcome(doc, OutcomeIn(success=at % 2 == 0), f"2026-06-01T00:00:{at:02}.000Z")[0]
    assert (doc["success_count"], doc["failure_count"]) == (13, 12)
    assert [one["at"][17:19] for one in doc["recent_outcomes"]] == [f"{at:02}" for at in range(5, KEPT_OUTCOMES + 5)]


async def test_an_outcome_says_which_version_was_used(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await report(api, made, False)
    await api.patch(path(made), json={"steps": ["another way"]})
    after = (await report(api, made, True))["procedure"]
    assert [(one["success"], one["version"]) for one in after["recent_outcomes"]] == [(False, 1), (True, 2)]


REFUSED: list[tuple[Json, str]] = [
    ({}, "/success"),
    ({"success": None}, "/success"),
    ({"success": "yes"}, "/success"),
    ({"success": 1}, "/success"),
    ({"success": True, "note": " "}, "/note"),
    ({"success": True, "note": "x" * 2001}, "/note"),
    ({"success": True, "at": "2026-01-01T00:00:00Z"}, "/at"),
]


@pytest.mark.before_store
async def test_a_bad_outcome_is_refused(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    for body, pointer in REFUSED:
        problem(await api.post(f"{path(made)}/outcomes", json=body), 422, "invalid", pointer)
    assert await got(api, made) == made


async def test_told_twice_under_one_key_it_is_counted_once(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    once = {"Idempotency-Key": "k"}
    for replayed in (False, True):
        told = await api.post(f"{path(made)}/outcomes", json={"success": True}, headers=once)
        assert told.status_code == 201
        assert ("idempotency-replayed" in told.headers) == replayed
        assert told.json()["procedure"]["success_count"] == 1
    problem(await api.post(f"{path(made)}/outcomes", json={"success": False}, headers=once), 422)
    assert (await got(api, made))["success_count"] == 1


async def test_of_outcomes_told_at_once_to_several_processes_none_is_lost(start: Starter, settings: Settings) -> None:
    """And none is told twice: each answer shows the counts right after its own."""
    async with start(settings) as one, start(settings) as two:
        made = await learn(one.client)
        told = await asyncio.gather(
            *(
                service.client.post(f"{path(made)}/outcomes", json={"success": at % 3 > 0, "note": f"{name} {at}"})
                for at in range(8)
                for name, service in (("one", one), ("two", two))
            )
        )
        assert [answer.status_code for answer in told] == [201] * 16
        totals = [body["success_count"] + body["failure_count"] for a in told if (body := a.json()["procedure"])]
        assert sorted(totals) == list(range(1, 17))
        after = await got(two.client, made)
        assert (after["success_count"], after["failure_count"], after["version"]) == (10, 6, 1)
        assert len(after["notes"]) == 16


async def test_outcomes_and_changes_at_once_lose_nothing_of_each_other(api: httpx.AsyncClient) -> None:
    made = await learn(api, tags=["0"])
    answers = await asyncio.gather(
        *(api.post(f"{path(made)}/outcomes", json={"success": True, "note": f"note {at}"}) for at in range(6)),
        *(api.patch(path(made), json={"tags": [f"{at + 1}"]}) for at in range(4)),
    )
    assert {answer.status_code for answer in answers} == {200, 201}
    after = await got(api, made)
    assert (after["success_count"], after["version"], len(after["notes"])) == (6, 5, 6)
    kept = (await api.get(f"{path(made)}/history")).json()["items"]
    assert [one["version"] for one in kept] == [4, 3, 2, 1]


async def test_the_last_use_never_moves_back(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    made = await learn(api)
    first = (await report(api, made, True))["procedure"]["last_used"]
    clock.move(hours=-1)
    assert (await report(api, made, True))["procedure"]["last_used"] == first
