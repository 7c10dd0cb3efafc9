"""Requests as bytes on a connection: what clients of HTTP do not send."""

import socket
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Names of `headers` are in lower case. `problem` is the body, if it is JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> Any:
        return orjson.loads(self.body)


def connected(server: httpx.Client) -> socket.socket:
    """A connection to the server that the client calls."""
    url = server.base_url
    return socket.create_connection((url.host, url.port or 80), timeout=PATIENCE_SECONDS)


def received(connection: socket.socket) -> RawAnswer:
    """The next answer, which tells its length. Raises ConnectionError if none comes."""
    with connection.makefile("rb") as stream:
        status = stream.readline()
        if not status:
            raise ConnectionError("closed without an answer")
        headers: dict[str, str] = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return RawAnswer(int(status.split()[1]), headers, stream.read(int(headers["content-length"])))


def send(server: httpx.Client, target: str, *headers: str, method: str = "GET", body: bytes = b"") -> RawAnswer:
    """Sends a request line with this target and these headers, and nothing else but the body."""
    length = [f"content-length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", *headers, *length, "", ""]
    with connected(server) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1") + body)
        return received(connection)
