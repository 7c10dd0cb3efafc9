"""What workers share: pairs of numbers, changed by several processes at once, and the board."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import Gauge

from app import metrics
from app.auth.limits import CostLimiter, RateLimiter, WrongKeyLimiter
from app.core.workers import BODY_BYTES, GENERATION, LEAVING, READY, STATE, WAYS, OwnPairs, Pair, SharedMemory, _place
from app.errors import RateLimited
from app.settings import Settings, usable_cores

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    made = SharedMemory(4)
    yield made
    made.close()


def one_more(pair: Pair | None) -> Pair:
    count, other = pair or (0, 7)
    return count + 1, other


def in_processes(number: int, work: Callable[[SharedMemory], None], shared: SharedMemory) -> None:
    started = [FORK.Process(target=work, args=(shared,)) for _ in range(number)]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
        assert process.exitcode == 0


def count_up(shared: SharedMemory) -> None:
    for number in range(600):
        shared.tables["requests"].change(f"key {number % 3}", one_more)


def test_changes_of_several_processes_are_all_counted(shared: SharedMemory) -> None:
    in_processes(4, count_up, shared)
    assert [shared.tables["requests"].get(f"key {number}") for number in range(3)] == [(800, 7)] * 3
    assert shared.tables["costs"].get("key 0") is None, "each table has names of its own"
    assert shared.tables["requests"].get("never") is None


def hold_for_ever(shared: SharedMemory) -> None:
    def stop(_: Pair | None) -> Pair:
        os.kill(os.getpid(), signal.SIGSTOP)
        return 1, 1

    shared.tables["requests"].change("key 0", stop)


def test_a_process_that_stops_or_dies_while_it_holds_a_pair_holds_up_nobody(shared: SharedMemory) -> None:
    held = FORK.Process(target=hold_for_ever, args=(shared,))
    held.start()
    assert held.pid is not None
    os.waitid(os.P_PID, held.pid, os.WSTOPPED | os.WNOWAIT)
    assert shared.tables["requests"].change("key 0", one_more) == (1, 7)
    held.kill()
    held.join()
    assert shared.tables["requests"].change("key 0", one_more) == (2, 7)


def test_a_full_set_drops_what_was_changed_longest_ago(shared: SharedMemory) -> None:
    table, wanted = shared.tables["requests"], _place("first")[0]
    same_set = ["first"]
    number = 0
    while len(same_set) <= WAYS:
        number += 1
        if _place(str(number))[0] == wanted:
            same_set.append(str(number))
    for name in same_set[:WAYS]:
        table.change(name, one_more)
    table.change("first", one_more)
    table.change(same_set[WAYS], one_more)
    assert table.get("first") == (2, 7)
    assert table.get(same_set[1]) is None
    assert all(table.get(name) for name in same_set[2:])


def test_own_pairs_drop_what_was_changed_longest_ago() -> None:
    pairs = OwnPairs(2)
    for name in ("a", "b", "a", "c"):
        pairs.change(name, one_more)
    assert [pairs.get(name) for name in ("a", "b", "c")] == [(2, 7), None, (1, 7)]


def spend(shared: SharedMemory) -> None:
    def still() -> float:
        return 100.0

    limiter = RateLimiter(5, still, buckets=shared.tables["requests"])
    costs = CostLimiter(1, 40, still, buckets=shared.tables["costs"])
    windows = WrongKeyLimiter(8, 60, still, windows=shared.tables["wrong_keys"])
    for _ in range(10):
        for count, name in ((limiter.check, "key"), (windows.count, "203.0.113.7")):
            try:
                count(name)
            except RateLimited:
                shared.tables["addresses"].change("refused", one_more)
        account = costs.admit("key")
        if account is not None:
            account(1)


def test_limits_are_those_of_all_processes_together(shared: SharedMemory) -> None:
    in_processes(4, spend, shared)
    refused = shared.tables["addresses"].get("refused")
    assert refused == ((40 - 10) + (40 - 8), 7), "bursts of 10 requests and 8 wrong keys, whoever counts them"
    left = shared.tables["costs"].get("key")
    assert left is not None
    assert left[0] == 0


def test_the_board_knows_who_is_ready(shared: SharedMemory) -> None:
    board = shared.board
    for number, state in ((1, READY), (2, LEAVING), (5, READY)):
        board.begin(number, 10 + number)
        board.write(number, STATE, state)
        board.write(number, BODY_BYTES, 100)
    assert (board.ready(), board.wanted, board.numbers(READY, LEAVING)) == (2, 4, [1, 2, 5])
    assert board.total(BODY_BYTES) == 300
    board.clear(5)
    assert (board.ready(), board.total(BODY_BYTES), board.read(5, GENERATION)) == (1, 200, 0)


def test_every_gauge_says_how_those_of_several_workers_become_one() -> None:
    gauges = [one for one in vars(metrics).values() if isinstance(one, Gauge)]
    assert gauges
    assert {one._multiprocess_mode for one in gauges} <= {"livesum", "mostrecent"}


@pytest.mark.parametrize(("given", "wanted"), [("1", 1), ("3", 3), ("auto", min(64, usable_cores()))])
def test_the_number_of_workers(given: str, wanted: int) -> None:
    assert Settings(workers=given, _env_file=None).worker_count == wanted


@pytest.mark.parametrize("given", ["0", "65", "-1", "two", "", "1.5"])
def test_a_number_of_workers_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="It must be a number from 1 to 64, or `auto`"):
        Settings(workers=given, _env_file=None)
