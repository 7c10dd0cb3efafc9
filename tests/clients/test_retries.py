"""How the Python client repeats requests, and what it says where the service does not answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from recalld_client import NO_RETRY, AsyncRecalld, Problem, Recalld, RecalldError, Retry, Unreachable

from tests.support.scripted import free_port

pytestmark = pytest.mark.before_store

Answer = int | type[httpx.TransportError] | dict[str, Any]
FAST = Retry(attempts=3, first=0)
PROBLEM = {"code": "unavailable", "detail": "Not now."}


class Wire:
    """Answers requests by a script, then with 200."""

    def __init__(self, *script: Answer) -> None:
        self.script, self.seen = list(script), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.script.pop(0) if self.script else 200
        if isinstance(answer, type):
            raise answer("gone")
        if isinstance(answer, dict):
            return httpx.Response(**answer)
        body = {"memory_id": "mem_1", "items": []} if answer == 200 else PROBLEM
        return httpx.Response(answer, json=body)

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.seen]


@contextmanager
def client(wire: Callable[[httpx.Request], httpx.Response], retry: Retry = FAST) -> Iterator[Recalld]:
    with httpx.Client(transport=httpx.MockTransport(wire), base_url="http://memory:8000") as http:
        yield Recalld(http=http, retry=retry)


@pytest.mark.parametrize(
    "fault", [503, 502, 504, 429, httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError]
)
def test_a_write_is_repeated_with_one_key(fault: Answer) -> None:
    wire = Wire(fault, fault)
    with client(wire) as memory:
        memory.user("ada").add("Ada drinks tea")
        memory.user("ada").add("Ada drinks tea")
    first, second, third, other = wire.keys
    assert first == second == third is not None
    assert other not in (first, None)


def test_the_callers_key_is_kept_and_searches_have_none() -> None:
    wire = Wire(503)
    with client(wire) as memory:
        memory.create_memory({"user_id": "u", "content": "x"}, idempotency_key="mine")
        memory.user("ada").search("tea")
    assert wire.keys == ["mine", "mine", None]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 422, 500])
def test_what_would_fail_again_is_not_repeated(status: int) -> None:
    wire = Wire(status)
    with client(wire) as memory, pytest.raises(Problem) as problem:
        memory.user("ada").add("x")
    assert (len(wire.seen), problem.value.status, problem.value.code) == (1, status, "unavailable")


def test_a_write_that_still_runs_is_asked_for_again() -> None:
    running = {"status_code": 409, "json": {"code": "idempotency_in_progress"}, "headers": {"retry-after": "0"}}
    wire = Wire(running, running)
    with client(wire) as memory:
        memory.user("ada").add("x")
    assert len(set(wire.keys)) == 1
    assert len(wire.seen) == 3


@pytest.mark.parametrize(("fault", "times"), [(httpx.ReadTimeout, 1), (503, 1), (httpx.ConnectError, 2), (429, 2)])
def test_a_patch_is_repeated_only_if_it_was_not_done(fault: Answer, times: int) -> None:
    wire = Wire(fault)
    with client(wire) as memory:
        if times == 1:
            with pytest.raises(RecalldError):
                memory.user("ada").profile.update(name="Ada")
        else:
            memory.user("ada").profile.update(name="Ada")
    assert len(wire.seen) == times


def test_in_the_end_the_error_is_raised() -> None:
    wire = Wire(*[503] * 9)
    with client(wire) as memory, pytest.raises(Problem, match="503 unavailable: Not now"):
        memory.user("ada").search("x")
    assert len(wire.seen) == 4
    wire = Wire(503)
    with client(wire) as memory, pytest.raises(Problem):
        memory.with_options(retry=NO_RETRY).user("ada").search("x")
    assert len(wire.seen) == 1


def test_waits_double_with_jitter_and_keep_what_the_service_asks() -> None:
    retry = Retry(attempts=4, first=1, longest=3, patience=30)
    drawn = [[retry.wait(attempt) for _ in range(200)] for attempt in range(4)]
    for waits, most in zip(drawn, (1, 2, 3, 3), strict=True):
        assert all(wait is not None and most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 100
    assert retry.wait(4) is None
    asked = retry.wait(0, retry_after=20)
    assert asked is not None
    assert 20.5 <= asked <= 21
    assert retry.wait(0, retry_after=31) is None


def test_where_nobody_answers_the_error_names_the_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Recalld(url, retry=FAST) as memory, pytest.raises(Unreachable, match="RECALLD_URL") as error:
        memory.user("ada").search("x")
    assert url in str(error.value)
    assert error.value.url == url
    assert isinstance(error.value.__cause__, httpx.ConnectError)


@pytest.mark.anyio
async def test_async_too() -> None:
    wire = Wire(503, httpx.ReadTimeout)
    async with httpx.AsyncClient(transport=httpx.MockTransport(wire), base_url="http://memory:8000") as http:
        await AsyncRecalld(http=http, retry=FAST).user("ada").add("x")
    assert len(set(wire.keys)) == 1
    assert len(wire.seen) == 3
    url = f"http://127.0.0.1:{free_port()}"
    async with AsyncRecalld(url, retry=FAST) as memory:
        with pytest.raises(Unreachable, match=url):
            await memory.user("ada").search("x")


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with http:// or https://, not 'localhost:8000'"):
        Recalld("localhost:8000")


def test_something_else_than_recalld_is_named() -> None:
    page = {"status_code": 200, "html": "<h1>It works</h1>"}
    with client(Wire(page)) as memory, pytest.raises(RecalldError, match="text/html, which is not Recalld"):
        memory.user("ada").search("x")
    with client(Wire({"status_code": 401, "html": "<h1>No</h1>"})) as memory, pytest.raises(Problem, match="401 : The"):
        memory.user("ada").search("x")


def test_a_copy_shares_connections_and_leaves_them_open() -> None:
    with client(Wire()) as memory:
        with memory.with_options(timeout=1) as quick:
            quick.user("ada").search("x")
        memory.user("ada").search("x")
