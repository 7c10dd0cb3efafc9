"""What writing costs beside the embedding that it needs: bulk loads, message appends, single adds."""

import asyncio
from collections.abc import Sequence
from statistics import median
from typing import Any

from app.embedding.factory import load_model
from scripts import bench_data as data
from scripts.bench_client import Client, Load, encoded
from scripts.bench_data import Shape, Texts
from scripts.bench_servers import EmbedderAlone, recalld

MEMORIES = "/v1/memories"
LOADS = (("batch", 50, 1), ("batch", 50, 4), ("batch", 500, 1), ("messages", 50, 1), ("messages", 50, 4))
"""Kind, items in a request, callers."""
BLOCK = 500
ADDS = 60
HELD = (100, 1_000, 10_000)


def load(client: Client, repeat: int) -> list[dict[str, Any]]:
    """Texts a second of the embedder alone and of the service, the same texts in turn."""
    texts = Texts(17)
    rows: list[dict[str, Any]] = []
    print("\n| bulk load | in a request | callers | embedder alone per s | service per s | share |\n|---|" + "--:|" * 5)
    with data.directory() as directory, recalld(directory) as port, EmbedderAlone() as alone:
        for how in LOADS:
            kind, size, callers = how
            found = []
            for again in range(repeat):
                mine = [texts.memory() for _ in range(BLOCK)]
                rate = len(mine) / alone.seconds(mine, size)
                found.append((rate, _load_rate(client, port, how, f"{len(rows)}-{again}", mine)))
            row = {
                "kind": kind,
                "items": size,
                "callers": callers,
                "alone_per_second": round(median(rate for rate, _ in found), 1),
                "per_second": round(median(ours for _, ours in found), 1),
                "share": round(median(ours / rate for rate, ours in found), 3),
            }
            rows.append(row)
            rates = f"{row['alone_per_second']} | {row['per_second']} | {row['share']:.0%}"
            print(f"| {kind} | {size} | {callers} | {rates} |", flush=True)
    return rows


def _load_rate(client: Client, port: int, how: tuple[str, int, int], name: str, texts: Sequence[str]) -> float:
    kind, size, callers = how
    pieces = [texts[at : at + size] for at in range(0, len(texts), size)]
    if kind == "batch":
        path = f"{MEMORIES}/batch"
        bodies = [encoded({"items": [{**_owner(name), "content": text} for text in piece]}) for piece in pieces]
    else:
        path = f"/v1/sessions/session-{name}/messages"
        bodies = [encoded({**_owner(name), "messages": _turns(piece)}) for piece in pieces]
    return len(texts) / client.run(Load(port, path, bodies, min(callers, len(bodies)), len(bodies))).elapsed


def _turns(texts: Sequence[str]) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "name": data.NAMES[at % 2], "content": text} for at, text in enumerate(texts)]


def _owner(name: str) -> dict[str, str]:
    return {"agent_id": data.AGENT, "user_id": f"loader-{name}"}


def add(client: Client, repeat: int) -> list[dict[str, Any]]:
    """One memory at a time: its latency, less what the embedder alone takes for the same text. Each is searched for
    at once, and must be found."""
    rows = []
    print(
        "\n| memories of the user | embedder alone p50 ms | add p50 ms | beyond p50 ms | p95 ms |\n|---|" + "--:|" * 4
    )
    for held in HELD:
        pairs = _adds(client, Shape(held, 1), repeat * ADDS)
        beyond = sorted(ours - alone for alone, ours in pairs)
        row = {
            "memories_a_user": held,
            "alone_p50_ms": round(median(alone for alone, _ in pairs) * 1000, 2),
            "p50_ms": round(median(ours for _, ours in pairs) * 1000, 2),
            "beyond_p50_ms": round(median(beyond) * 1000, 2),
            "beyond_p95_ms": round(beyond[int(0.95 * (len(beyond) - 1))] * 1000, 2),
        }
        rows.append(row)
        print(
            f"| {held:,} | {row['alone_p50_ms']} | {row['p50_ms']} | {row['beyond_p50_ms']} | {row['beyond_p95_ms']} |",
            flush=True,
        )
    return rows


def _adds(client: Client, shape: Shape, count: int) -> list[tuple[float, float]]:
    model = load_model("minilm-int8")
    texts = Texts(19)
    pairs = []
    with data.directory() as directory:
        asyncio.run(data.fill(directory, shape, model.dim, model.name))
        with recalld(directory) as port, EmbedderAlone() as alone:
            for number in range(count):
                text = texts.memory()
                apart = alone.seconds([text], 1)
                body = encoded({**data.owner(0), "content": text})
                done = client.run(Load(port, MEMORIES, [body], 1, 1), keep=True)
                _require_found(client, port, text)
                if number >= 3:
                    pairs.append((apart, done.latencies[0]))
    return pairs


def _require_found(client: Client, port: int, text: str) -> None:
    body = {**data.owner(0), "query": text, "mode": "text", "top_k": 3, "record_access": False}
    found = client.post(port, f"{MEMORIES}/search", body)
    if text not in [item["memory"]["content"] for item in found["items"]]:
        raise RuntimeError(f"not found right after it was acknowledged: {text}")
