"""An OpenAI-compatible server that answers for a made-up model or passes requests on to a real one. It counts both."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from app.core import prompt_text

Json: TypeAlias = dict[str, Any]
Answerer: TypeAlias = Callable[[Json], Json]
"""Takes the body of a request and returns the body of a chat completion."""

UPSTREAM_SECONDS = 590


@dataclass(slots=True)
class Meter:
    """What the calls of a model cost."""

    answer: Answerer
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    replies: list[str] = field(default_factory=list)
    """The texts of the answers, in order."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, body: Json) -> Json:
        started = time.perf_counter()
        given = self.answer(body)
        usage = given["usage"]
        with self._lock:
            self.calls += 1
            self.tokens_in += usage["prompt_tokens"]
            self.tokens_out += usage["completion_tokens"]
            self.cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            self.seconds += given.get("seconds") or time.perf_counter() - started
            self.replies.append(given["choices"][0]["message"]["content"] or "")
        return given


def completion(text: str, body: Json) -> Json:
    """Returns a chat completion with this text as the answer to `body`."""
    asked = sum(prompt_text.count(message["content"]) for message in body["messages"])
    said = prompt_text.count(text)
    usage = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}


def passed_on(url: str) -> Answerer:
    """Returns an answerer that asks the server at `url`, such as "http://127.0.0.1:8080/v1"."""
    client = httpx.Client(timeout=UPSTREAM_SECONDS)

    def ask(body: Json) -> Json:
        answer: Json = client.post(f"{url}/chat/completions", json=body).raise_for_status().json()
        return answer

    return ask


def recorded(answer: Answerer, path: Path) -> Answerer:
    """Returns an answerer that writes each answer of `answer` to a file, and gives it again for an equal request.

    A run that was stopped thus goes on where it was, and changed rules are measured without asking the model again.
    """
    known: dict[str, Json] = (
        {line["of"]: line["given"] for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    )

    def ask(body: Json) -> Json:
        of = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if of in known:
            return known[of]
        started = time.perf_counter()
        given = answer(body)
        known[of] = {**given, "seconds": round(time.perf_counter() - started, 2)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"of": of, "given": known[of]}, ensure_ascii=False) + "\n")
        return known[of]

    return ask


@contextmanager
def metered(answer: Answerer) -> Iterator[tuple[str, Meter]]:
    """Serves a model until the block ends. Gives the address for `RECALLD_LLM_BASE_URL`, and the meter."""
    meter = Meter(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, sent = 200, meter.ask(body)
            except httpx.HTTPStatusError as error:
                status, sent = error.response.status_code, {"error": {"message": error.response.text}}
            except httpx.HTTPError as error:
                status, sent = 502, {"error": {"message": type(error).__name__}}
            with suppress(OSError):  # the service may have given up
                self._send(status, json.dumps(sent).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", meter
    finally:
        server.shutdown()
        server.server_close()
