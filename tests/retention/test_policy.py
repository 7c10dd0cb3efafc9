"""Seed 002's retention and importance score, pure."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.actions.roll_ups import cells
from app.actions.schemas import ACTIONS, ActionRecord
from app.core.clock import rfc3339, to_ms
from app.memories.schemas import MEMORIES
from app.retention.service import Day, PolicyIn, by_day, counts, score, sentence
from app.storage.schema import matches

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def memory(days: float = 0, **fields: Any) -> dict[str, Any]:
    made = {
        "memory_type": "fact",
        "access_count": 0,
        "status": "active",
        "pinned": False,
        "expires_at": None,
        "tags": [],
    }
    return {**made, "created_at": rfc3339(NOW - timedelta(days=days)), **fields}


@pytest.mark.parametrize(
    ("given", "points"),
    [
        (memory(0), [100, 0, 0]),
        (memory(40), [60, 0, 0]),
        (memory(100), [0, 0, 0]),
        (memory(4_000), [0, 0, 0]),
        (memory(99.5, memory_type="issue"), [0.5, 50, 0]),
        (memory(200, memory_type="solution", access_count=11), [0, 50, 30]),
        (memory(200, access_count=10), [0, 0, 0]),
        (memory(10, memory_type="message", access_count=1_000), [90, 0, 30]),
    ],
)
def test_the_score_is_that_of_the_seed_with_its_reasons(given: dict[str, Any], points: list[float]) -> None:
    total, reasons = score(MEMORIES.as_record(given), to_ms(NOW))
    assert [reason["reason"] for reason in reasons] == ["recency", "type", "access"]
    assert [reason["points"] for reason in reasons] == pytest.approx(points)
    assert total == pytest.approx(sum(points))


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (memory(366), True),
        (memory(364), False),
        (memory(366, pinned=True), False),
        (memory(366, status="superseded"), False),
        (memory(366, status="archived"), False),
        (memory(366, expires_at=rfc3339(NOW)), False),
        (memory(366, expires_at=rfc3339(NOW + timedelta(1))), True),
    ],
)
def test_candidates(given: dict[str, Any], chosen: bool) -> None:
    policy = PolicyIn()
    before = rfc3339(NOW - timedelta(days=policy.older_than_days))
    assert matches(given, policy.candidates(rfc3339(NOW), before)) is chosen


def test_types_and_tags_narrow() -> None:
    policy = PolicyIn(types=["fact", "issue"], tags=["x", "y"])
    where = policy.candidates(rfc3339(NOW), rfc3339(NOW))
    assert matches(memory(1, tags=["y"]), where)
    assert not matches(memory(1, tags=["z"]), where)
    assert not matches(memory(1, tags=["x"], memory_type="summary"), where)


def test_limits_are_inclusive_and_all_of_them_hold() -> None:
    assert PolicyIn().forgets(1.0, 180)
    assert PolicyIn(max_importance=0.3, max_score=20).forgets(0.3, 20)
    assert not PolicyIn(max_importance=0.3, max_score=20).forgets(0.31, 20)
    assert not PolicyIn(max_importance=0.3, max_score=20).forgets(0.3, 21)


def action(**fields: Any) -> ActionRecord:
    owner = {"tenant_id": "t", "agent_id": "a", "user_id": "u"}
    made = {**owner, "outcome": "success", "action_type": "mail", "action": {}, "feedback": {}}
    return ACTIONS.as_record({**made, "timestamp": "2026-05-01T23:59:59.999Z", **fields})


def test_a_day_is_of_one_agent_with_one_user_in_utc() -> None:
    actions = [
        action(),
        action(user_id=None),
        action(agent_id="b"),
        action(tenant_id="s"),
        action(timestamp="2026-05-02T00:00:00.000Z"),
        action(timestamp="2026-05-01T00:00:00.000Z"),
    ]
    days = by_day(actions)
    assert len(days) == 5
    assert days[Day("t", "a", "u", "2026-05-01")] == [actions[0], actions[5]]


def test_counts_add_up_and_are_told() -> None:
    first = [action(), action(outcome=None), action(outcome="failure", action_type="call")]
    told = counts(cells(first), first, {})
    assert told == {"outcomes": {"failure": 1, "success": 1, "unknown": 1}, "types": {"call": 1, "mail": 2}}
    late = [action(), action()]
    more = counts(cells(late, cells(first)), late, {**told, "mine": "a note of the caller's", "outcomes": "many"})
    assert more["outcomes"] == {"failure": 1, "success": 3, "unknown": 1}
    assert more["mine"] == "a note of the caller's"
    assert sentence("2026-05-01", more) == (
        "On 2026-05-01: 5 actions (3 success, 1 failure, 1 unknown); 4 mail, 1 call."
    )


def test_the_tools_of_a_day_are_counted_and_told() -> None:
    refund = action(action={"tool": "payments.refund"})
    actions = [refund, refund, action(action={"tool": "crm.lookup"}), action(action={})]
    told = counts(cells(actions), actions, {})
    assert told["tools"] == {"crm.lookup": 1, "payments.refund": 2}
    more = counts(cells([refund], cells(actions)), [refund], told)
    assert sentence("2026-05-01", more) == (
        "On 2026-05-01: 5 actions (5 success); 5 mail. Tools: 3 payments.refund, 1 crm.lookup."
    )
