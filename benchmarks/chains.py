"""Which questions that need several facts a prompt answers.

    scripts/benchmark chains
    scripts/benchmark chains --data benchmarks/data/chains_held_out.json

A world is {"id", "language", "facts", "questions": [{"kind", "query", "must", "facts"}]}. `kind`: `chain` needs two or
three facts, `one` one fact, and `none` was never said. `facts`: the places of the needed facts in the list. A question
is answered if the prompt states each of them. The worlds are asked each as a user of its own, and all together as one
user (`crowd`).
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from benchmarks.evaluation.service import Api
from benchmarks.harness import ROOT, Section, folder, recalld

DATA = ROOT / "benchmarks" / "data" / "chains_dev.json"
AGENT = "companion"
BUDGETS = (150, 300, 600)
TARGET = 0.7
"""Minimum share of `chain` that is answered at the largest budget."""
REQUEST_SECONDS = 120

Json: TypeAlias = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA, help="a file with worlds")


def run(options: argparse.Namespace) -> Iterator[Section]:
    worlds = json.loads(options.data.read_text(encoding="utf-8"))["worlds"]
    rows: list[Json] = []
    with ExitStack() as stack:
        server = stack.enter_context(recalld(stack.enter_context(folder())))
        api = Api(stack.enter_context(httpx.Client(base_url=server.url, timeout=REQUEST_SECONDS)))
        for user in (None, "crowd"):
            rows += answered(api, worlds, user)
    least = min(row[f"at {BUDGETS[-1]}"] for row in rows if row["kind"] == "chain")
    yield Section("answered", rows, least >= TARGET)


def answered(api: Api, worlds: Sequence[Json], user: str | None) -> list[Json]:
    """Returns the share of the questions of each kind that is answered at each budget. `user`: who knows all the
    worlds; None: each has a user of its own."""
    owners = [{"agent_id": AGENT, "user_id": user or world["id"]} for world in worlds]
    ids = [tell(api, owner, world["facts"]) for owner, world in zip(owners, worlds, strict=True)]
    found: dict[str, list[list[bool]]] = {}
    for owner, world, known in zip(owners, worlds, ids, strict=True):
        for question in world["questions"]:
            needed = {known[at] for at in question["facts"]}
            got = [needed <= stated(api, owner, question["query"], budget) for budget in BUDGETS]
            found.setdefault(question["kind"], []).append(got)
    rows: list[Json] = []
    for kind in ("chain", "one"):
        shares = {
            f"at {budget}": round(sum(got[at] for got in found[kind]) / len(found[kind]), 3)
            for at, budget in enumerate(BUDGETS)
        }
        rows.append({"worlds": user or "apart", "kind": kind, "questions": len(found[kind]), **shares})
    return rows


def tell(api: Api, owner: Json, facts: Sequence[Json]) -> list[str]:
    """Asserts the facts. Returns their ids."""
    made = api.send("POST", "/v1/facts/batch", {"items": [{**owner, **fact} for fact in facts]})
    return [fact["fact_id"] for fact in made["items"]]


def stated(api: Api, owner: Json, query: str, budget: int) -> set[str]:
    """Returns the ids of the facts that a prompt states."""
    body = api.send("POST", "/v1/context", {**owner, "query": query, "token_budget": budget})
    return {link for section in body["sections"] for item in section["items"] for link in item["links"]}
