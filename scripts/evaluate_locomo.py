"""How well a running service recalls: LoCoMo conversations in, their questions asked, over HTTP.

    .venv/bin/python scripts/evaluate_locomo.py --data FILE [--url URL] [--key KEY] [--json FILE]

FILE holds conversations as LoCoMo publishes them (Maharana et al., ACL 2024). Each turn becomes a message with its
speaker's name and its session's time, an image's caption appended; each question of categories 1 to 4 is one search.
Without --url a server is started on a free port with a data directory of its own, and stopped at the end.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, TypeAlias

import httpx

MODES = ("hybrid", "vector", "text")
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
METRICS = ("recall@5", "recall@10", "recall@20", "hit@10", "session hit@5", "MRR")
TOP_K = 100
"""Deep enough for five sessions."""
START_SECONDS = 120

Place: TypeAlias = tuple[int, int]
"""Session and seq of a turn, both from 1."""


@dataclass(frozen=True, slots=True)
class Turn:
    place: Place
    speaker: str
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    category: int
    evidence: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    speakers: tuple[str, str]
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    category: int
    figures: tuple[float, ...]
    took_ms: float
    """As the service says."""
    waited_ms: float
    """As the caller sees."""


def load(path: Path) -> list[Conversation]:
    """Conversations and the questions that have evidence; an evidence string may name several turns."""
    return [_conversation(raw) for raw in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(raw: dict[str, Any]) -> Conversation:
    talk, places, turns = raw["conversation"], {}, []
    numbers = sorted(int(found[1]) for key in talk if (found := re.fullmatch(r"session_(\d+)", key)))
    for number in numbers:
        at = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for seq, turn in enumerate(talk[f"session_{number}"], start=1):
            places[turn["dia_id"]] = (number, seq)
            caption = turn.get("blip_caption")
            text = f"{turn['text']} {caption}" if caption else turn["text"]
            turns.append(Turn((number, seq), turn["speaker"], text.strip(), at))
    questions = []
    for qa in raw["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(qa.get("evidence", ())))
        evidence = frozenset(places[name] for name in named if name in places)
        if qa["category"] in CATEGORIES and evidence:
            questions.append(Question(qa["question"], qa["category"], evidence))
    return Conversation(raw["sample_id"], (talk["speaker_a"], talk["speaker_b"]), tuple(turns), tuple(questions))


def figures(found: Sequence[Place], evidence: frozenset[Place]) -> tuple[float, ...]:
    """METRICS of one question; recall is the part of its evidence that was found, MRR knows the first 20."""
    ranks = [at for at, place in enumerate(found[:20]) if place in evidence]
    recall = [sum(rank < k for rank in ranks) / len(evidence) for k in (5, 10, 20)]
    sessions = list(dict.fromkeys(session for session, _ in found))[:5]
    in_session = any(session in sessions for session, _ in evidence)
    hit = any(rank < 10 for rank in ranks)
    return (*recall, float(hit), float(in_session), 1 / (ranks[0] + 1) if ranks else 0.0)


def remember(client: httpx.Client, conversation: Conversation, owner: dict[str, str]) -> None:
    sessions: dict[int, list[dict[str, str]]] = defaultdict(list)
    for turn in conversation.turns:
        role = "user" if turn.speaker == conversation.speakers[0] else "assistant"
        message = {"role": role, "name": turn.speaker, "content": turn.text, "timestamp": turn.time.isoformat()}
        sessions[turn.place[0]].append(message)
    for number, messages in sessions.items():
        url = f"/v1/sessions/{_session_id(owner, number)}/messages"
        client.post(url, json={**owner, "memorize": "messages", "messages": messages}).raise_for_status()


def ask(client: httpx.Client, question: Question, owner: dict[str, str], mode: str) -> Answer:
    body = {"query": question.text, **owner, "top_k": TOP_K, "mode": mode, "record_access": False}
    start = time.perf_counter()
    reply = client.post("/v1/memories/search", json=body)
    waited = (time.perf_counter() - start) * 1000
    reply.raise_for_status()
    answer = reply.json()
    found = [_place(item["memory"]["source"]) for item in answer["items"]]
    return Answer(question.category, figures(found, question.evidence), answer["took_ms"]["total"], waited)


def _session_id(owner: dict[str, str], number: int) -> str:
    return f"{owner['user_id']}-{number}"


def _place(source: dict[str, Any]) -> Place:
    return int(source["session_id"].rpartition("-")[2]), source["message_seq"]


def evaluate(client: httpx.Client, conversations: Sequence[Conversation]) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {mode: [] for mode in MODES}
    run = uuid.uuid4().hex[:8]
    for conversation in conversations:
        owner = {"agent_id": f"locomo-{run}", "user_id": f"{conversation.name}-{run}"}
        start = time.perf_counter()
        remember(client, conversation, owner)
        took = time.perf_counter() - start
        print(f"{conversation.name}: {len(conversation.turns)} turns in {took:.1f} s", file=sys.stderr)
        for mode in MODES:
            answers[mode] += [ask(client, question, owner, mode) for question in conversation.questions]
    return answers


def summary(answers: dict[str, list[Answer]]) -> dict[str, Any]:
    return {
        mode: {
            "all": _means(given),
            **{CATEGORIES[c]: _means([a for a in given if a.category == c]) for c in CATEGORIES},
            "took_ms": _percentiles([a.took_ms for a in given]),
            "waited_ms": _percentiles([a.waited_ms for a in given]),
        }
        for mode, given in answers.items()
    }


def _means(answers: Sequence[Answer]) -> dict[str, float]:
    columns = zip(*(answer.figures for answer in answers), strict=True)
    return {"questions": len(answers), **{m: round(fmean(c), 4) for m, c in zip(METRICS, columns, strict=False)}}


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2)}


def show(result: dict[str, Any]) -> None:
    print("| mode | questions | n | " + " | ".join(METRICS) + " |\n|---|---|" + "--:|" * (1 + len(METRICS)))
    for mode, groups in result.items():
        for name in ("all", *CATEGORIES.values()):
            row = groups[name]
            cells = " | ".join(f"{row[m]:.3f}" for m in METRICS if m in row)
            print(f"| {mode} | {name} | {row['questions']} | {cells} |")
    print("\n| mode | took p50 ms | p95 | seen by the caller p50 ms | p95 |\n|---|--:|--:|--:|--:|")
    for mode, groups in result.items():
        took, waited = groups["took_ms"], groups["waited_ms"]
        print(f"| {mode} | {took['p50']} | {took['p95']} | {waited['p50']} | {waited['p95']} |")


@contextmanager
def server() -> Iterator[str]:
    """A fresh service on a free port; its data goes when it stops."""
    root = Path(__file__).resolve().parent.parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as data:
        address = {"RECALLD_HOST": "127.0.0.1", "RECALLD_PORT": str(port)}
        mine = {**address, "RECALLD_DATA_DIR": data, "RECALLD_LOG_LEVEL": "warning"}
        process = subprocess.Popen([sys.executable, "-m", "app.cli", "serve"], cwd=root, env={**os.environ, **mine})
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"The server ended with {process.returncode}.")
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    sys.exit("The server did not get ready.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="LoCoMo conversations (JSON)")
    parser.add_argument("--url", help="a running service; without it one is started")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    conversations = load(options.data)
    if options.url:
        answers = _evaluate_at(options.url, options.key, conversations)
    else:
        with server() as url:
            answers = _evaluate_at(url, None, conversations)
    result = summary(answers)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _evaluate_at(url: str, key: str | None, conversations: Sequence[Conversation]) -> dict[str, list[Answer]]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        return evaluate(client, conversations)


if __name__ == "__main__":
    main()
