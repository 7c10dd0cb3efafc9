"""How well a running service recalls plain facts: no speaker, no session, no time; over HTTP.

    .venv/bin/python scripts/evaluate_facts.py [--data FILE] [--url URL] [--key KEY] [--json FILE] [--misses]

FILE holds a user on each line: {"user": …, "facts": [{"id", "text"}], "questions": [{"query", "expected": [ids]}]}. All
facts go into one store, each user's under an id of their own; each question is one search. The baseline "weighted",
half of the scaled cosine and half of the scaled BM25 of the user's facts, is made here by the service's own code, with
the default model. Without --url a server is started on a free port with a data directory of its own.
"""

import argparse
import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np
from numpy.typing import NDArray

from app.memories.features import bm25, features, scaled_text
from app.memories.query import analyse
from app.storage.text import index_text, terms
from scripts.evaluate_locomo import MODES, server
from scripts.locomo_cases import Embedder, blank_columns

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "plain_facts.jsonl"
METRICS = ("recall@1", "recall@5", "recall@10", "hit@10", "MRR")
COMPARED = ("recall@5", "MRR")
WEIGHTED = "weighted"
TOP_K = 20
DRAWS = 10_000

Figures: TypeAlias = NDArray[np.float64]
"""(questions, METRICS)"""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    expected: frozenset[str]


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    facts: dict[str, str]
    """Texts by id."""
    questions: tuple[Question, ...]

    def shares_a_term(self, question: Question) -> bool:
        """The question has a term of one of its facts: stop words left out, stemmed, as text search has them."""
        asked = set(terms(question.text))
        return any(not asked.isdisjoint(terms(self.facts[fact])) for fact in question.expected)


@dataclass(frozen=True, slots=True)
class Found:
    """What one way of searching found: fact ids of each question, best first, in the order of the file."""

    people: Sequence[Person]
    ids: Sequence[Sequence[str]]

    def figures(self) -> Figures:
        asked = [question for person in self.people for question in person.questions]
        return np.array([_figures(found, q.expected) for found, q in zip(self.ids, asked, strict=True)])


def load(path: Path) -> list[Person]:
    people = [_person(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    for person in people:
        for question in person.questions:
            if not question.expected or not question.expected <= person.facts.keys():
                sys.exit(f"{person.name}: {question.text!r} expects facts that are not there.")
    return people


def _person(raw: dict[str, Any]) -> Person:
    questions = tuple(Question(each["query"], frozenset(each["expected"])) for each in raw["questions"])
    return Person(raw["user"], {fact["id"]: fact["text"] for fact in raw["facts"]}, questions)


def _figures(found: Sequence[str], expected: frozenset[str]) -> tuple[float, ...]:
    """METRICS of one question; recall is the part of its facts that was found."""
    ranks = [at for at, fact in enumerate(found[:TOP_K]) if fact in expected]
    recall = [sum(rank < k for rank in ranks) / len(expected) for k in (1, 5, 10)]
    return (*recall, float(any(rank < 10 for rank in ranks)), 1 / (ranks[0] + 1) if ranks else 0.0)


def search(client: httpx.Client, people: Sequence[Person]) -> dict[str, Found]:
    """All facts are stored before the first question is asked."""
    run = uuid.uuid4().hex[:8]
    owners = [{"agent_id": f"facts-{run}", "user_id": f"{person.name}-{run}"} for person in people]
    facts = [remember(client, person, owner) for person, owner in zip(people, owners, strict=True)]
    found: dict[str, Found] = {}
    for mode in MODES:
        asked = zip(people, owners, facts, strict=True)
        answers = [ask(client, q, owner, mode, ids) for person, owner, ids in asked for q in person.questions]
        found[mode] = Found(people, answers)
    return found


def remember(client: httpx.Client, person: Person, owner: dict[str, str]) -> dict[str, str]:
    """Fact ids by memory id."""
    items = [{**owner, "content": text, "memory_type": "fact"} for text in person.facts.values()]
    reply = client.post("/v1/memories/batch", json={"items": items})
    reply.raise_for_status()
    return dict(zip((each["memory_id"] for each in reply.json()["items"]), person.facts, strict=True))


def ask(client: httpx.Client, question: Question, owner: dict[str, str], mode: str, ids: dict[str, str]) -> list[str]:
    body = {"query": question.text, **owner, "top_k": TOP_K, "mode": mode, "record_access": False}
    reply = client.post("/v1/memories/search", json=body)
    reply.raise_for_status()
    return [ids[item["memory"]["memory_id"]] for item in reply.json()["items"]]


def weighted(people: Sequence[Person], embed: Embedder) -> Found:
    """The baseline, for which no service is asked."""
    return Found(people, [ids for person in people for ids in _weighted(person, embed)])


def _weighted(person: Person, embed: Embedder) -> Iterator[list[str]]:
    indexed = [index_text(text) for text in person.facts.values()]
    counts = [dict(zip(text.ids.tolist(), text.counts.tolist(), strict=True)) for text in indexed]
    names, texts = list(person.facts), list(person.facts.values())
    blank, vectors = blank_columns(indexed, texts), embed(texts)
    queries = [analyse(question.text, ()) for question in person.questions]
    for query, vector in zip(queries, embed([query.stripped for query in queries]), strict=True):
        hits = np.array([[fact.get(term, 0) for fact in counts] for term in query.terms.tolist()], np.float32)
        hits = hits.reshape(len(query.terms), len(counts))
        df = np.count_nonzero(hits, axis=1).astype(np.float32)
        columns = replace(blank, cosine=vectors @ vector, hits=hits, df=df)
        text = bm25(columns)
        near, words = features(columns, query, text, 0)[0], scaled_text(text, float(text.max()))
        yield [names[at] for at in np.argsort(-(near + words) / 2, kind="stable").tolist()]


def interval(people: Sequence[Person], difference: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean over the questions and its 95 % interval: percentiles of a paired bootstrap that draws users, not questions,
    for the questions of one user are about the same facts."""
    sizes = np.array([len(person.questions) for person in people])
    sums = np.add.reduceat(difference, np.cumsum(sizes) - sizes)
    drawn = np.random.default_rng(0).integers(len(people), size=(DRAWS, len(people)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), (2.5, 97.5))
    return float(difference.mean()), float(low), float(high)


def summary(people: Sequence[Person], found: dict[str, Found]) -> dict[str, Any]:
    each = {name: way.figures() for name, way in found.items()}
    shares = np.array([person.shares_a_term(question) for person in people for question in person.questions])
    groups = {"all": np.ones(len(shares), np.bool_), "a term shared": shares, "none shared": ~shares}
    better = each["hybrid"] - each[WEIGHTED]
    return {
        "users": len(people),
        "facts": sum(len(person.facts) for person in people),
        "ways": {name: {group: _means(all_[at]) for group, at in groups.items()} for name, all_ in each.items()},
        "hybrid - weighted": {name: interval(people, better[:, METRICS.index(name)]) for name in COMPARED},
    }


def _means(each: Figures) -> dict[str, float]:
    means = each.mean(axis=0).round(4).tolist()
    return {"questions": len(each), **dict(zip(METRICS, means, strict=True))}


def show(result: dict[str, Any]) -> None:
    print(f"{result['users']} users, {result['facts']} facts\n")
    print("| mode | questions | n | " + " | ".join(METRICS) + " |\n|---|---|" + "--:|" * (1 + len(METRICS)))
    for name, groups in result["ways"].items():
        for group, row in groups.items():
            print(f"| {name} | {group} | {row['questions']} | " + " | ".join(f"{row[m]:.3f}" for m in METRICS) + " |")
    print("\n| hybrid − weighted | difference | 95 % interval |\n|---|--:|--:|")
    for name, (mean, low, high) in result["hybrid - weighted"].items():
        print(f"| {name} | {mean:+.3f} | {low:+.3f} … {high:+.3f} |")


def show_misses(found: Found, depth: int = 5) -> None:
    """Questions whose facts were not all among the first `depth`, and what was first instead."""
    asked = [(person, question) for person in found.people for question in person.questions]
    for (person, question), ids in zip(asked, found.ids, strict=True):
        for missing in sorted(question.expected - set(ids[:depth])):
            place = ids.index(missing) + 1 if missing in ids else f"> {len(ids)}"
            print(f"\n{person.name}: {question.text}\n  {place}: {person.facts[missing]}\n  1: {person.facts[ids[0]]}")


@contextmanager
def connection(url: str | None, key: str | None) -> Iterator[httpx.Client]:
    """To the service named, or to one that lives as long."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        nullcontext(url) if url else server() as address,
        httpx.Client(base_url=address, headers=headers, timeout=120) as client,
    ):
        yield client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="users, facts and questions (JSON lines)")
    parser.add_argument("--url", help="a running service; without it one is started")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--misses", action="store_true", help="list what hybrid did not find among the first five")
    options = parser.parse_args()
    people = load(options.data)
    with connection(options.url, options.key) as client:
        found = search(client, people)
    result = summary(people, found | {WEIGHTED: weighted(people, Embedder(None))})
    show(result)
    if options.misses:
        show_misses(found["hybrid"])
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
