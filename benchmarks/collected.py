"""What a user's memory has of the questions of lives, kept in a file for each life, so that numbers can be fitted on it
again and again (scripts/fit_asking.py):

    .venv/bin/python -m benchmarks.collected FOLDER LIFE.json... [--queries made]
"""

import argparse
import asyncio
import json
import pickle
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.context.schemas import ContextRequest
from app.context.service import gather_sections
from app.context.source import SourceRequest
from app.context.sources import SOURCES
from app.core.clock import parse_rfc3339, rfc3339
from app.core.language import sentences
from app.main import create_app
from app.retrieval.calibration import QueryEvidence
from app.settings import Settings
from app.storage.scope import Scope
from benchmarks.evaluation import sets
from benchmarks.evaluation.sets import World

Life = dict[str, Any]
WORD = re.compile(r"\w{3,}")
QUERIES, LONGEST_QUERY = 8, 300
"""Statements and keywords made of a life, and the characters of a statement."""
CONVERSATIONS, QUESTIONS = 4, 30
"""Of a set that is no life: so many conversations, and so many questions of each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what the searched collections have of it."""

    life: str
    language: str
    kind: str
    query: str
    evidence: list[QueryEvidence]


@asynccontextmanager
async def service(folder: str) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    app = create_app(Settings(data_dir=Path(folder), log_level="warning"))
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        given = dict(state)

        async def call(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": given.copy()}, receive, send)

        transport = httpx.ASGITransport(call)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=300) as client:
            yield client, given["resources"]


def as_queries(life: Life) -> Life:
    """Returns the life with other queries: what a caller who is no person may search for. Turns that answer a question
    ("I moved to Boston last week."), and the one to three rarest words of others ("kubernetes rollout")."""
    chance, texts = random.Random(2), {turn["id"]: turn["text"] for turn in life["turns"]}
    turns_with = Counter(word for text in texts.values() for word in set(WORD.findall(text.lower())))
    answers = sorted({turn for question in life["questions"] for turn in (*question["best"], *question["worse"])})
    chosen = chance.sample(answers, min(len(answers), 2 * QUERIES))
    made = {"after": max(texts), "time": max(question["time"] for question in life["questions"]), "needed": []}
    statements = [{"query": texts[turn][:LONGEST_QUERY], "kind": "statement", **made} for turn in chosen[:QUERIES]]
    rarest = [sorted(set(WORD.findall(texts[turn].lower())), key=lambda word: (turns_with[word], word))
              for turn in chosen[QUERIES:]]  # fmt: skip
    keywords = [{"query": " ".join(words[: chance.randint(1, 3)]), "kind": "keywords", **made}
                for words in rarest if words]  # fmt: skip
    return {**life, "questions": statements + keywords}


async def live(client: httpx.AsyncClient, resources: Any, life: Life) -> list[Asked]:
    who = {"agent_id": "companion", "user_id": life["name"]}
    asked, known, open_session = list[Asked](), 0, None
    for question in sorted(life["questions"], key=lambda one: one["after"]):
        for turn in life["turns"]:
            if not known < turn["id"] <= question["after"]:
                continue
            session = f"{life['name']}-{turn['session']}"
            if open_session not in (None, session):
                await client.post(f"/v1/sessions/{open_session}/end", json={})
            open_session = session
            await remember(client, who, session, turn)
        known = max(known, question["after"])
        body = ContextRequest(**who, query=question["query"], now=question["time"], token_budget=2000)
        request = SourceRequest(body, Scope("default"), resources, parse_rfc3339(question["time"]), 2000)
        results = [section.result for section in await gather_sections(SOURCES, request)]
        evidence = [result.query_evidence for result in results if result.query_evidence is not None]
        asked.append(Asked(life["name"], life["language"], question["kind"], question["query"], evidence))
    return asked


async def remember(client: httpx.AsyncClient, who: Mapping[str, str], session: str, turn: Mapping[str, Any]) -> None:
    if turn["role"] == "note":
        body = {**who, "content": turn["text"], "event_at": turn["time"]}
        answer = await client.post("/v1/memories", json=body)
    else:
        message = {"role": turn["role"], "content": turn["text"]}
        message |= {"timestamp": turn["time"]} if "time" in turn else {}
        message |= {"name": turn["name"]} if "name" in turn else {}
        answer = await client.post(f"/v1/sessions/{session}/messages", json={**who, "messages": [message]})
    answer.raise_for_status()


def read(path: Path) -> list[Life]:
    """Returns the life of a file, or the conversations of another set with some of their questions."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if "turns" in found:
        return [found]
    return [as_life(world) for world in sets.fewer(sets.load(path), CONVERSATIONS, QUESTIONS)]


def as_life(world: World) -> Life:
    """Returns a conversation as a life. One sentence of a message is enough: of a long one a passage is packed."""
    times = [rfc3339(item.time) for item in world.items if item.time is not None]
    turns = [
        {"id": at, "session": item.session, "role": item.role, "text": item.content}
        | ({"name": item.name} if item.name else {})
        | ({"time": rfc3339(item.time)} if item.time is not None else {})
        for at, item in enumerate(world.items, 1)
    ]
    questions = [
        {
            "query": one.query,
            "after": one.after,
            "time": max(times[: one.after]),
            "kind": one.kind if one.evidence else "never",
            "needed": [[said for said in sentences(text) if len(said) > 10] or [text] for text in one.evidence],
        }
        for one in world.questions
    ]
    return {"name": world.name.replace(" ", "-"), "language": "en", "turns": turns, "questions": questions}


def kept_in(target: Path, path: Path) -> Path:
    return target / f"{path.stem}.pickle"


async def collect(target: Path, files: Sequence[Path], *, made: bool) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with service(folder) as (client, resources):
            for path in files:
                lives = [as_queries(life) if made else life for life in read(path)]
                asked = [query for life in lives for query in await live(client, resources, life)]
                kept_in(target, path).write_bytes(pickle.dumps(asked))
                print(path.stem, len(asked), file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("lives", type=Path, nargs="+")
    parser.add_argument("--queries", choices=("asked", "made"), default="asked")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(collect(given.folder, given.lives, made=given.queries == "made"))
