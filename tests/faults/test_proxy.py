"""The proxy, before anything is concluded from it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.support.proxy import Mode, Proxy, proxying

SHORT = 0.3


def _answer(connection: socket.socket, asked: list[bytes]) -> None:
    with connection, suppress(OSError):
        while chunk := connection.recv(1 << 16):
            asked.append(chunk)
            connection.sendall(chunk.upper())


class Shouter:
    """Answers in capitals; `asked` is what reached it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.asked: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=_answer, args=(connection, self.asked), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):  # twice
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def shouter() -> Iterator[Shouter]:
    with closing(Shouter()) as made:
        yield made


@pytest.fixture
def proxy(shouter: Shouter) -> Iterator[Proxy]:
    with proxying(shouter.port, delay_seconds=SHORT) as made:
        yield made


def connected(proxy: Proxy, timeout: float = 5) -> "closing[socket.socket]":
    return closing(socket.create_connection(("127.0.0.1", proxy.port), timeout))


def ask(line: socket.socket, text: bytes) -> bytes:
    line.sendall(text)
    return line.recv(100)


def test_it_passes_both_ways(proxy: Proxy) -> None:
    with connected(proxy) as one, connected(proxy) as two:
        assert ask(one, b"tea") == b"TEA"
        assert ask(two, b"coffee") == b"COFFEE"
        assert ask(one, b"milk") == b"MILK"
    assert proxy.connections == 2


def test_large_messages_arrive_whole(proxy: Proxy) -> None:
    with connected(proxy) as line:
        sending = threading.Thread(target=line.sendall, args=(b"x" * 3_000_000,))
        sending.start()
        received = 0
        while received < 3_000_000:
            received += len(line.recv(1 << 16))
        sending.join()


def test_refuse_ends_what_is_open_and_listens_to_nobody_until_it_is_over(proxy: Proxy) -> None:
    with connected(proxy) as line:
        assert ask(line, b"tea") == b"TEA"
        proxy.mode = Mode.REFUSE
        with pytest.raises(ConnectionResetError):
            line.recv(100)
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
    proxy.mode = Mode.PASS
    with connected(proxy) as line:
        assert ask(line, b"tea") == b"TEA"


def test_reset_lets_the_question_through_and_cuts_the_answer(proxy: Proxy, shouter: Shouter) -> None:
    with connected(proxy) as line:
        proxy.mode = Mode.RESET
        line.sendall(b"oolong")
        received = b""
        with pytest.raises(ConnectionResetError):  # noqa: PT012 (the half may come, or the reset alone)
            while True:
                received += line.recv(100)
        assert received in (b"", b"OOL")
        assert shouter.asked == [b"oolong"]


def test_flaky_cuts_some(proxy: Proxy) -> None:
    proxy.mode = Mode.FLAKY
    answers = []
    for _ in range(40):
        with connected(proxy) as line, suppress(ConnectionResetError):
            answers.append(ask(line, b"tea") == b"TEA")
    assert 15 < sum(answers) < 38


def test_delay_holds_answers_back(proxy: Proxy, shouter: Shouter) -> None:
    with connected(proxy) as line:
        proxy.mode = Mode.DELAY
        started = time.perf_counter()
        assert ask(line, b"tea") == b"TEA"
        assert time.perf_counter() - started >= SHORT


def test_a_black_hole_answers_nobody_and_delivers_late(proxy: Proxy, shouter: Shouter) -> None:
    with connected(proxy) as old:
        assert ask(old, b"tea") == b"TEA"
        proxy.mode = Mode.BLACKHOLE
        with connected(proxy) as new:
            for line in (old, new):
                line.settimeout(SHORT)
                with pytest.raises(TimeoutError):
                    ask(line, b"milk")
            assert shouter.asked == [b"tea"]
            proxy.mode = Mode.PASS
            for line in (old, new):
                line.settimeout(60)
                assert line.recv(100) == b"MILK"


def test_a_database_that_is_away_is_a_connection_that_ends(proxy: Proxy, shouter: Shouter) -> None:
    shouter.close()
    with pytest.raises(ConnectionError), connected(proxy) as line:  # it may end before we know that it began
        ask(line, b"tea")
