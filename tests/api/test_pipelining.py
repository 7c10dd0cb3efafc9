"""Clients that send requests without waiting for answers, and clients that leave. Tested over raw sockets against the
service, whatever serves HTTP in it."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server, serving

MIB = 1 << 20
GET = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
OWNER = {"agent_id": "a", "user_id": "u"}
ODD = json.dumps({**OWNER, "query": "tea"}, indent=1).replace("\n", "\n\n").encode()
"""A body with empty lines, as stand behind a head."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("pipelined") / "data") as running:
        yield running


def connect(server: Server) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.client.base_url.port or 80), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chunked(path: str, body: bytes, size: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    chunks = (body[at : at + size] for at in range(0, len(body), size))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"{head}transfer-encoding: chunked\r\n\r\n".encode() + framed + b"0\r\n\r\n"


def statuses(client: socket.socket, number: int) -> list[int]:
    """Reads the statuses of so many answers."""
    reader, found = client.makefile("rb"), list[int]()
    for _ in range(number):
        found.append(int(reader.readline().split()[1]))
        length = 0
        while (line := reader.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        reader.read(length)
    return found


def resident(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100_000])
def test_requests_are_told_apart_however_their_bytes_arrive(server: Server, size: int) -> None:
    search = "/v1/memories/search"
    sent = GET + post(search, ODD) + post(search, b"{}") + GET + chunked(search, ODD, 1) + chunked(search, ODD, 1000)
    sent += post("/nowhere", ODD) + b"\r\n" + GET
    with connect(server) as client:
        for at in range(0, len(sent), size):
            client.sendall(sent[at : at + size])
            if size < 7 and at % 50 == 0:
                time.sleep(0.001)  # so that some pieces arrive alone
        assert statuses(client, 8) == [200, 200, 422, 200, 200, 200, 404, 200]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_requests_sent_without_waiting_hold_no_memory_and_stop_nobody(server: Server) -> None:
    """Eight clients send 26,000 requests each and read no answer. A client beside them is served as before."""
    server.client.get("/livez")
    before = resident(server)
    clients = [connect(server) for _ in range(8)]
    for client in clients:
        client.setblocking(False)
    waiting = dict.fromkeys(clients, GET * (MIB // len(GET)))
    for _ in range(100):
        for client in clients:
            try:
                waiting[client] = waiting[client][client.send(waiting[client]) :] or GET
            except BlockingIOError:
                continue
        assert server.client.get("/livez").status_code == 200
    after = resident(server)
    for client in clients:
        client.close()
    assert after - before < 64 * MIB


def test_bytes_behind_a_request_in_work_are_bounded_and_answered(server: Server) -> None:
    """What is sent behind a stream that does not end is not read, and the stream goes on."""
    with connect(server) as client:
        client.sendall(b"GET /v1/changes?format=events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        client.settimeout(1)
        with pytest.raises(TimeoutError):
            client.sendall(GET * (64 * MIB // len(GET)))
    assert server.client.get("/livez").status_code == 200


def test_a_client_that_leaves_makes_no_error(server: Server) -> None:
    """With requests under way, sent behind one another and cut in the middle: neither the service nor what serves HTTP
    logs an error."""
    said = {**OWNER, "messages": [{"role": "user", "content": "I moved to Oslo. " * 200}] * 20}
    bodies = {
        "/v1/memories": {**OWNER, "content": "She prefers tea. " * 200},
        "/v1/memories/search": {**OWNER, "query": "tea"},
        "/v1/context": {**OWNER, "query": "tea"},
        "/v1/sessions/s/messages": said,
        "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    }
    requests = [post(path, json.dumps(body).encode()) for path, body in bodies.items()]
    requests += [
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        for path in ("/v1/changes?format=events", "/openapi.json", "/metrics", "/console/", "/v1/memories?limit=100")
    ]
    for request in requests:
        for data in (request, request * 4, request * 2 + request[:-5]):
            for seconds in (0, 0.002, 0.02):
                with connect(server) as client:
                    client.sendall(data)
                    time.sleep(seconds)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert statuses_of_a_new_client(server) == [200]
    time.sleep(1)  # requests that were under way end
    assert [line for line in server.log() if line["level"] == "error"] == []


def statuses_of_a_new_client(server: Server) -> list[int]:
    with connect(server) as client:
        client.sendall(GET)
        return statuses(client, 1)
