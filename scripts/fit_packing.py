"""Fits the numbers of app/context/packing_weights.py, which say how much of a budget a query is worth, and judges them.

    .venv/bin/python scripts/fit_packing.py collect FOLDER LIFE.json...      # once for each embedding model, minutes
    .venv/bin/python scripts/fit_packing.py fit --train FOLDER... [--judge FOLDER...]

`collect` lives each life in a service inside this process, asks its questions, and writes what the sources found into
FOLDER, a file for each life: the candidates with their scores and tokens, and what the scope has of the query.
Lives have the form of benchmarks/data/lives. `fit` reads those files, fits, prints the figures of folds that were left
out (a life is in one fold), then those of `--judge`, and the numbers to copy.
"""

import argparse
import asyncio
import json
import os
import pickle
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import httpx
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from app.context import expectation, packing
from app.context.candidates import Candidate
from app.context.expectation import Rest, asks_features, more_features
from app.context.gathering import Gathered
from app.context.intent import evidence_in, names_time
from app.context.layout import PackedParts, PromptPlan, about_tokens, section_of
from app.context.packing import Packer, Section
from app.context.packing_weights import PackingWeights
from app.context.schemas import ContextRequest
from app.context.service import ContextService
from app.context.source import part_of
from app.context.stop_rule import NEAREST_TOKENS, StopRule
from app.core.clock import rfc3339
from app.core.language import sentences
from app.main import create_app
from app.retrieval.query_evidence import QueryEvidence
from app.settings import Settings
from app.storage.scope import Scope
from benchmarks.evaluation import sets
from benchmarks.evaluation.sets import World

Life = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what the sources found for it."""

    life: str
    language: str
    kind: str
    query: str
    needed: list[list[str]]
    evidence: list[QueryEvidence]
    sections: list["Found"]
    intent: str
    dated: bool
    """Whether the query names a time."""


@dataclass(frozen=True, slots=True)
class Found:
    """A section with what it costs."""

    name: str
    items: list[Candidate]
    tokens: dict[str, int]
    headings: dict[str, int]
    title: int
    limit: int
    share: float | None
    compared: bool
    boost: float


# --- Collecting -------------------------------------------------------------------------------------------------------


class Recording(ContextService):
    """A context service that keeps what it packs from."""

    kept: tuple[list[QueryEvidence], list[Found], str, bool]

    def _pack(self, read: Any, plan: PromptPlan, sections: Sequence[Gathered]) -> PackedParts:
        found = []
        for one in sections:
            section = section_of(plan, one)
            items = list(packing.with_partners(one.items))
            found.append(
                Found(
                    section.name,
                    list(one.items),
                    {item.id: one.tokens(item) for item in items},
                    {item.heading.key: section.heading_tokens(item) for item in items if item.heading is not None},
                    section.title_tokens,
                    section.limit,
                    one.source.share,
                    section.compared,
                    section.boost,
                )
            )
        self.kept = evidence_in(sections), found, plan.intent, names_time(sections)
        return super()._pack(read, plan, sections)


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
        recording = Recording(resources, Scope("default"))
        await recording.assemble(body)
        asked.append(
            Asked(
                life["name"], life["language"], question["kind"], question["query"], question["needed"], *recording.kept
            )
        )
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


async def collect(target: Path, files: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with service(folder) as (client, resources):
            for path in files:
                asked = [one for life in read(path) for one in await live(client, resources, life)]
                kept_in(target, path).write_bytes(pickle.dumps(asked))
                print(path.stem, len(asked), file=sys.stderr, flush=True)


# --- Fitting ----------------------------------------------------------------------------------------------------------

CONVERSATIONS, QUESTIONS = 4, 30
"""Of a set that is no life: so many conversations, and so many questions of each."""
FRAME = 30
"""Tokens of the frame."""
FILLED = 2000
FOLDS = 5
LOST_ASKS, QUIET_NEVER, LEAST_REST = 0.012, 0.62, 0.005
"""Share of questions that may be taken for greetings; share of what was never said that gets the nearest entries only;
the least probability that an entry still to come is needed. Chosen on lives/choose."""
UNANSWERED = ("never", "small")
Floats = NDArray[np.float64]


class Traced(Packer):
    """Fills the budget and keeps the order of packing, and what was taken with the tokens before and after."""

    scores: Sequence[float]
    steps: list[tuple[int, Candidate, int, int]]

    def _compete(self, ordered: Sequence[tuple[str, Candidate]]) -> None:
        self.scores = [item.score or 0.0 for _, item in ordered]
        self.steps, tokens = [], 0
        for at, (name, item) in enumerate(ordered):
            cost = self._states[name].cost(item)
            reason = self._take(self._states[name], item, None)
            if reason == "budget":
                break
            if reason is None:
                self.steps.append((at, item, tokens, tokens + cost))
            tokens += cost if reason in {None, "duplicate"} else 0  # as `Packer` counts


def packer(asked: Asked, budget: int, stop: StopRule | None, kind: type[Packer] = Packer) -> Packer:
    return kind([_section(found, budget) for found in asked.sections], budget, FRAME, 0.001, stop)


def _section(found: Found, budget: int) -> Section:
    bound = None if found.share is None else part_of(budget, found.share)
    return Section(
        found.name,
        found.items,
        lambda item: found.tokens[item.id],
        lambda item: 0 if item.heading is None else found.headings[item.heading.key],
        found.title,
        found.limit,
        bound,
        always=found.share is not None,
        compared=found.compared,
        boost=found.boost,
    )


def lacks(asked: Asked, items: Sequence[Candidate]) -> bool:
    """Returns whether something that the answer needs stands in none of the items."""
    dates = (item.heading.date for item in items if item.heading is not None)
    text = "\n".join([*dates, *(f"{item.prefix}{item.text}" for item in items)]).casefold()
    return not all(any(word.casefold() in text for word in group) for group in asked.needed)


@dataclass(frozen=True, slots=True)
class Case:
    """A question with its features and what they are to tell."""

    asked: Asked
    asks: list[float]
    more: list[float]
    rest: list[list[float]]
    later: list[bool]
    """Before each entry: whether it or one behind it has something that is needed and that stands in none before."""
    beyond: bool
    """Whether something that is needed stands behind the nearest entries."""


def case_of(asked: Asked) -> Case | None:
    traced = packer(asked, FILLED, None, Traced)
    assert isinstance(traced, Traced)
    traced.pack(about_tokens)
    if not asked.evidence:
        return None
    most = max(asked.evidence, key=lambda one: one.covered)
    rest = Rest(traced.scores, PackingWeights((), 0, (), 0, (), 0))
    items = [item for _, item, _, _ in traced.steps]
    done = -1
    if asked.needed and not lacks(asked, items):
        done = next(at for at in range(len(items)) if not lacks(asked, items[: at + 1]))
    return Case(
        asked,
        asks_features(expectation.Asked(asked.query, asked.evidence, traced.scores, asked.dated), most),
        more_features(most, traced.scores),
        [rest.features(at, before) for at, _, before, _ in traced.steps],
        [number <= done for number in range(len(items))],
        done >= 0 and traced.steps[done][3] > NEAREST_TOKENS,
    )


def logistic(features: Sequence[Sequence[float]], labels: Sequence[bool]) -> tuple[float, ...]:
    """Returns the weights of the features, and the constant."""
    values = np.array(features)
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-9
    found = LogisticRegression(C=1.0, max_iter=3000).fit((values - mean) / spread, labels)
    weights = found.coef_[0] / spread
    return (*(round(float(one), 3) for one in weights), round(float(found.intercept_[0] - weights @ mean), 3))


def likely(features: Sequence[Sequence[float]], weights: Sequence[float]) -> Floats:
    odds = np.array(features) @ np.array(weights[:-1]) + weights[-1]
    return np.asarray(1 / (1 + np.exp(-odds)))


def fitted(cases: Sequence[Case]) -> PackingWeights:
    questions = [case for case in cases if case.asked.kind != "small"]
    asks = logistic([case.asks for case in cases], [case.asked.kind != "small" for case in cases])
    more = logistic([case.more for case in questions], [case.beyond for case in questions])
    rest = logistic(
        [one for case in cases for one in case.rest[::3]], [one for case in cases for one in case.later[::3]]
    )
    never = [case.more for case in cases if case.asked.kind == "never"]
    return PackingWeights(
        asks,
        round(float(np.quantile(likely([case.asks for case in questions], asks), LOST_ASKS)), 3),
        more,
        round(float(np.quantile(likely(never, more), QUIET_NEVER)), 3),
        rest,
        LEAST_REST,
    )


def figures(cases: Sequence[Case], weights: PackingWeights | None) -> dict[str, float]:
    """`weights`: None fills the budget."""
    found = defaultdict[str, list[float]](list)
    for case in cases:
        asked = case.asked
        stop = None if weights is None else StopRule(asked.query, asked.evidence, weights, dated=asked.dated)
        for budget in (600, 2000, 4000):
            packed = packer(asked, budget, stop).pack(about_tokens)
            if asked.kind in UNANSWERED:
                if budget == 2000:
                    found[asked.kind].append(packed.total <= {"small": 60, "never": 500}[asked.kind])
                continue
            found[f"needed {budget}"].append(
                not lacks(asked, [one for items in packed.chosen.values() for one in items])
            )
            found[f"tokens {budget}"].append(packed.total)
    return {name: round(fmean(values), 3) for name, values in found.items()}


def fit(train: Sequence[Path], judge: Sequence[Path]) -> None:
    cases = [case for folder in train for case in load(folder)]
    lives = sorted({case.asked.life for case in cases})
    for name, weights in (("filled", None), ("folds that were left out", ...)):
        rows = list[dict[str, float]]()
        for fold in range(FOLDS):
            left_out = set(lives[fold::FOLDS])
            chosen = fitted([case for case in cases if case.asked.life not in left_out]) if weights is ... else None
            rows.append(figures([case for case in cases if case.asked.life in left_out], chosen))
        print(name, {key: round(fmean(row[key] for row in rows if key in row), 3) for key in rows[0]})
    found = fitted(cases)
    for folder in judge:
        judged = load(folder)
        print(folder.name, "filled", figures(judged, None))
        print(folder.name, figures(judged, found))
    print(found)


def load(folder: Path) -> list[Case]:
    asked = [one for path in sorted(folder.glob("*.pickle")) for one in pickle.loads(path.read_bytes())]
    return [case for case in map(case_of, asked) if case is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("lives", type=Path, nargs="+")
    fitting = commands.add_parser("fit")
    fitting.add_argument("--train", type=Path, nargs="+", required=True)
    fitting.add_argument("--judge", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    if given.command == "collect":
        given.folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(collect(given.folder, [one for one in given.lives if not kept_in(given.folder, one).exists()]))
    else:
        fit(given.train, given.judge)


if __name__ == "__main__":
    main()
