"""What a user's record keeps of a profile that changed."""

from datetime import UTC, datetime, timedelta
from typing import Unpack

from app.core.clock import rfc3339
from app.facts.keys import EMPTY_PROFILE, USERS, ProfileChange, UserProfile, UserRecord
from app.profiles.earlier import KEPT, MOST, profile_at, with_change

START = datetime(2026, 6, 1, tzinfo=UTC)


def at(minutes: float) -> str:
    return rfc3339(START + timedelta(minutes=minutes))


def earlier(record: UserRecord) -> list[ProfileChange]:
    changes = record["earlier"]
    assert changes is not None
    return changes


def changed(record: UserRecord, minutes: float, **fields: Unpack[UserProfile]) -> None:
    new: UserProfile = {**record["profile"], **fields}
    record["earlier"] = with_change(record, new, record["profile"], at(minutes))
    record["profile"] = new


def empty() -> UserRecord:
    return {"user_id": "u", "created_at": at(0), "profile": EMPTY_PROFILE.copy()}


def test_the_profile_of_each_time_is_read_from_the_changes() -> None:
    record, known = empty(), {0.0: EMPTY_PROFILE}
    for step in range(1, 9):
        changed(record, step, interests=[f"i{n}" for n in range(step % 3)], preferences={"tea": step // 2})
        known[step] = record["profile"]
    for then, profile in known.items():
        assert profile_at(record, record["profile"], at(then + 0.5)) == profile
    assert profile_at(record, record["profile"], at(-1)) == EMPTY_PROFILE, "nobody knew the user"


def test_fields_that_are_facts_and_unchanged_ones_are_not_kept() -> None:
    record = empty()
    changed(record, 1, home="Oslo", interests=["chess"])
    changed(record, 2, home="Bergen")
    assert record["earlier"] == [{"until": at(1), "fields": {"interests": []}}]


def test_what_cannot_be_read_is_passed_over() -> None:
    record = USERS.as_record({**empty(), "earlier": [5, {"until": 5, "fields": {}}, {"until": at(1)}]})
    assert profile_at(record, record["profile"], at(0.5)) == record["profile"]
    changed(record, 1, interests=["chess"])
    assert len(earlier(record)) == 1


def test_changes_are_forgotten() -> None:
    record = empty()
    for step in range(MOST + 5):
        changed(record, step + 1, interests=[f"i{step}"])
    assert len(earlier(record)) == MOST
    changed(record, MOST + 10 + KEPT / timedelta(minutes=1), interests=["go"])
    assert [change["fields"] for change in earlier(record)] == [{"interests": [f"i{MOST + 4}"]}]
