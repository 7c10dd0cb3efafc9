"""An OpenAI-compatible server on loopback that does, request by request, what a test told it to."""

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIM = 4


@dataclass
class Reply:
    """What one request gets. `body` as it is; without one, what the server gives of itself (vectors, say)."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    dim: int = DIM
    rows: Sequence[Any] | None = None  # in place of the vectors
    delay: float = 0
    trickle: float = 0  # seconds between two bytes
    cut: bool = False  # the connection, in the middle of the body


@dataclass
class Seen:
    at: float
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def vector(text: str, dim: int = DIM) -> list[float]:
    """Not of unit length, on purpose."""
    return [float(len(text)), 1.0, *[0.5] * (dim - 2)]


class ScriptedServer:
    """Answers as it should once the script is at its end."""

    def __init__(self, answer: Callable[[Reply, dict[str, Any]], bytes]) -> None:
        self.script: deque[Reply] = deque()
        self.seen: list[Seen] = []
        self.lists_models = 404  # the status of a GET
        self.refused: str | None = None  # a word that it takes in no text
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(outer.lists_models)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.append(Seen(time.monotonic(), self.path, headers, json.loads(raw)))
                reply = outer.script.popleft() if outer.script else Reply()
                if outer.refused is not None and any(outer.refused in text for text in json.loads(raw)["input"]):
                    reply = Reply(400)
                time.sleep(reply.delay)
                self.close_connection = True
                with suppress(OSError):  # the caller has gone
                    self._answer(reply, json.loads(raw))

            def _answer(self, reply: Reply, asked: dict[str, Any]) -> None:
                body = reply.body if reply.body is not None else answer(reply, asked)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("connection", "close")  # unsaid, the client may ask on a connection that just went
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if reply.cut:
                    self.wfile.write(body[: len(body) // 2])
                elif reply.trickle:
                    for place in range(len(body)):
                        self.wfile.write(body[place : place + 1])
                        time.sleep(reply.trickle)
                else:
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def then(self, *replies: Reply) -> None:
        self.script.extend(replies)

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _embeddings(reply: Reply, asked: dict[str, Any]) -> bytes:
    texts = asked["input"]
    vectors = reply.rows if reply.rows is not None else [vector(text, reply.dim) for text in texts]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(vectors)]
    data.reverse()  # the order is in the index alone
    return json.dumps({"object": "list", "model": "m", "data": data, "usage": {"total_tokens": 1}}).encode()


@contextmanager
def scripted_server(
    answer: Callable[[Reply, dict[str, Any]], bytes] = _embeddings,
) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer)
    try:
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
