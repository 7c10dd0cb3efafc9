"""What `/v1/context` costs beside the search that is a part of it, over HTTP, the query's embedding cached.

python scripts/bench_context.py [--shape MEMORIES:USERS] [--repeat 5] [--users 20]

Each user asked for has a profile, a session with 20 messages (which are memories, too), a task in progress and 30
logged actions, so that all five arms bring something. Blocks of searches and of contexts take turns; the figure is the
median.
"""

import argparse
import asyncio
import os
import platform
import sys
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.embedding.factory import load_model
from scripts import bench_data as data
from scripts.bench_client import Client, Load, encoded
from scripts.bench_data import Shape, Texts
from scripts.bench_servers import recalld

BLOCK = 300
WARM = 64
TARGET = 4.0


def furnish(client: Client, port: int, number: int, texts: Texts) -> None:
    """What the arms beside `memories` read."""
    owner, session = data.owner(number), f"session-of-{number}"
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": texts.memory()} for at in range(20)]
    steps = [{"action": texts.sentence(6)} for _ in range(6)]
    actions = [{**owner, "action_type": "call", "content": texts.memory(), "outcome": "success"} for _ in range(30)]
    client.post(port, f"/v1/sessions/{session}/messages", {**owner, "messages": messages})
    task = {**owner, "session_id": session, "goal": texts.sentence(10), "plan": steps, "task_id": f"task-{number}"}
    client.post(port, "/v1/tasks", {**task, "status": "in_progress"})
    client.post(port, "/v1/actions/batch", {"items": actions})
    profile = {"name": "Ada", "home": "Boston", "interests": [texts.sentence(3) for _ in range(6)]}
    address = f"http://127.0.0.1:{port}/v1/users/{data.user(number)}/profile"
    headers = {"content-type": "application/json"}
    urlopen(Request(address, encoded(profile), headers, method="PUT")).close()


def measure(shape: Shape, repeat: int, users: int) -> dict[str, Any]:
    model = load_model("minilm-int8")
    texts = Texts(23)
    with data.directory() as directory, Client() as client:
        asyncio.run(data.fill(directory, shape, model.dim, model.name))
        with recalld(directory, RECALLD_JOBS_ENABLED="false") as port:
            for number in range(users):
                furnish(client, port, number, texts)
            asked = data.queries(Shape(shape.each * users, users), 256, distinct=32)
            searches = [encoded({**body, "record_access": False}) for body in asked]
            contexts = [encoded(_context(body)) for body in asked]
            loads = {"search": ("/v1/memories/search", searches), "context": ("/v1/context", contexts)}
            for path, bodies in loads.values():
                client.run(Load(port, path, bodies, 1, WARM + len(bodies)))
            found: dict[str, list[float]] = {name: [] for name in loads}
            for _ in range(repeat):
                for name, (path, bodies) in loads.items():
                    found[name].append(client.run(Load(port, path, bodies, 1, BLOCK)).p50 * 1000)
            answer = client.post(port, "/v1/context", _context(asked[0]))
    ratios = [context / search for context, search in zip(found["context"], found["search"], strict=True)]
    return {
        "shape": str(shape),
        "search_p50_ms": round(median(found["search"]), 2),
        "context_p50_ms": round(median(found["context"]), 2),
        "ratio": round(median(ratios), 2),
        "target": TARGET,
        "tokens": answer["tokens"],
        "items": {section["name"]: len(section["items"]) for section in answer["sections"]},
    }


def _context(body: dict[str, Any]) -> dict[str, Any]:
    """`now` keeps it from being recorded as an access, as the searches beside it are not."""
    number = body["user_id"].rpartition("-")[2]
    asked = {name: body[name] for name in ("query", "agent_id", "user_id")}
    return {**asked, "session_id": f"session-of-{number}", "intent": "recall", "now": "2026-12-01T00:00:00Z"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="10000:100")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--users", type=int, default=20)
    options = parser.parse_args()
    memories, _, users = options.shape.partition(":")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    result = measure(Shape(int(memories), int(users or 1)), options.repeat, min(options.users, int(users or 1)))
    for name, value in result.items():
        print(f"{name:16} {value}")


if __name__ == "__main__":
    main()
