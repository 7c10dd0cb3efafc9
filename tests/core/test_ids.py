"""Ids that we make: a prefix that says of what, and a UUIDv7 as 32 hex digits, which sorts by time."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import httpx
import pytest

from app.core.clock import new_id
from tests.support.memories import OWNER, Json
from tests.support.sessions import said

MADE: list[tuple[str, Json, str, str]] = [
    ("/v1/memories", {**OWNER, "content": "tea"}, "memory_id", "mem"),
    ("/v1/sessions", OWNER, "session_id", "sess"),
    ("/v1/sessions/s/messages", {**OWNER, "messages": said("hello")}, "message_id", "msg"),
    ("/v1/tasks", {**OWNER, "goal": "find out"}, "task_id", "task"),
    ("/v1/actions", {**OWNER, "action_type": "work", "content": "worked"}, "action_id", "act"),
    ("/v1/facts", {**OWNER, "subject": "Ada", "predicate": "is", "object": "kind"}, "fact_id", "fact"),
    ("/v1/procedures", {**OWNER, "name": "n", "trigger": "t", "steps": ["s"]}, "procedure_id", "proc"),
    ("/v1/agents", {"name": "Ann"}, "agent_id", "agent"),
    ("/v1/jobs/decay/run", {}, "operation_id", "op"),
]


def moment(made: str, prefix: str) -> float:
    """Seconds since 1970 that the id tells, after a look at its form."""
    assert re.fullmatch(rf"{prefix}_[0-9a-f]{{32}}", made), made
    uuid = UUID(made.removeprefix(f"{prefix}_"))
    assert (uuid.version, uuid.variant) == (7, RFC_4122)
    return (uuid.int >> 80) / 1000


def test_an_id_tells_of_what_it_is_and_when_it_was_made() -> None:
    before = time.time()
    made = [new_id("mem") for _ in range(1_000)]
    moments = [moment(one, "mem") for one in made]
    assert before - 0.001 <= moments[0] <= moments[-1] <= time.time()
    assert len(set(made)) == 1_000


def test_ids_sort_by_the_time_at_which_they_were_made() -> None:
    made = []
    for _ in range(5):
        made += [new_id("mem") for _ in range(5_000)]  # many in each millisecond
        time.sleep(0.002)
    assert sorted(made) == made
    assert len(set(made)) == 25_000


def test_threads_make_no_id_twice() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [one for some in pool.map(lambda _: [new_id("mem") for _ in range(2_000)], range(8)) for one in some]
    assert len(set(made)) == 16_000


@pytest.mark.anyio
@pytest.mark.before_store
async def test_every_record_that_has_no_id_of_its_callers_gets_such_a_one(api: httpx.AsyncClient) -> None:
    for path, body, name, prefix in MADE:
        answer = await api.post(path, json=body)
        assert answer.is_success, answer.text
        record = answer.json()["items"][0] if "messages" in body else answer.json()
        assert abs(moment(record[name], prefix) - time.time()) < 60, path
