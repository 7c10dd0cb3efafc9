"""Who sends a body over the limit is told so, and not cut off. Tried against the port of a service."""

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.support.raw import PATIENCE_SECONDS, connected, received
from tests.support.server import Server, serving
from tests.support.tuned import tuned

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("large") / "data") as running:
        yield running


def posted(server: Server, path: str, mebibytes: int, *, chunked: bool, connection: str) -> tuple[int, bytes]:
    """Sends the whole body before it reads, as most clients do. Returns the status and the answer."""
    url = server.client.base_url
    body = iter([b" " * MIB] * mebibytes) if chunked else b" " * (mebibytes * MIB)
    headers = {"Content-Type": "application/json", "Connection": connection}
    with closing(http.client.HTTPConnection(url.host, url.port, timeout=PATIENCE_SECONDS)) as client:
        client.request("POST", path, body, headers, encode_chunked=chunked)
        answer = client.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("path", ["/v1/memories", "/mcp"])
def test_a_body_over_the_limit_is_413(server: Server, path: str, chunked: bool, connection: str) -> None:
    for mebibytes in (5, 10):
        status, answer = posted(server, path, mebibytes, chunked=chunked, connection=connection)
        assert status == 413
        assert b"too_large" in answer


def test_other_answers_before_the_end_of_a_body_arrive_as_well(server: Server) -> None:
    for chunked in (False, True):
        status, answer = posted(server, "/v1/nothing", 3, chunked=chunked, connection="close")
        assert status == 404
        assert b"not_found" in answer


def test_the_connection_ends_with_the_body_and_serves_nobody_else(server: Server) -> None:
    head = b"POST /v1/memories HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    with connected(server.client) as connection:
        connection.sendall(head % (5 * MIB))
        answer = received(connection)
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert connection.recv(1) == b""  # nothing follows
        connection.sendall(b" " * (5 * MIB) + b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):  # what came behind the body was not read
            assert connection.recv(1) == b""
    assert server.client.get("/livez").status_code == 200


def test_a_rest_that_never_comes_is_not_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        serving(tmp_path_factory.mktemp("idle") / "data", command=tuned(idle_seconds=0.5)) as server,
        connected(server.client) as connection,
    ):
        connection.sendall(b"POST /v1/memories HTTP/1.0\r\nhost: localhost\r\ncontent-length: 9999999\r\n\r\n ")
        assert received(connection).status == 413
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            go_on_sending(connection)


def go_on_sending(connection: socket.socket) -> None:
    """Sends bytes with pauses longer than the service waits, and no multiple of the time between its looks: each
    of these could come right after a byte."""
    for _ in range(PATIENCE_SECONDS):
        time.sleep(1.3)
        connection.sendall(b" ")
