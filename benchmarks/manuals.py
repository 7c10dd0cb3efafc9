"""How well searches find the passage of a manual that answers a question.

    scripts/benchmark manuals --beside benchmarks/data/lives/choose

Each manual (Markdown, HTML, text) becomes a document of an agent, and each question is a search of a user without
memories. It is found where a passage holds the words of the manual that answer it (`quote`). With `--beside`, the
questions of a set are asked twice, of users of an agent without the manuals and of one with them: what a person's own
memories lose beside a manual. `--manuals` names other files for that.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.documents.schemas import ENDINGS
from benchmarks.evaluation import sets
from benchmarks.evaluation.judging import Set, ask_set
from benchmarks.evaluation.measures import METRICS, retrieval
from benchmarks.evaluation.service import Service, add_service_options, connection
from benchmarks.harness import ROOT, Row, Section

MANUALS = ROOT / "benchmarks" / "data" / "manuals"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    parser.add_argument("--part", choices=("dev", "held_out"), default="dev")
    parser.add_argument("--beside", type=Path, help="a set whose questions are asked without and with the manuals")
    parser.add_argument("--manuals", type=Path, nargs="+", help="other manuals, about which nothing is asked")
    parser.add_argument("--misses", action="store_true", help="list what is not found in five passages")


def run(options: argparse.Namespace) -> Iterator[Section]:
    files = options.manuals or sorted(path for path in MANUALS.iterdir() if path.suffix[1:] in ENDINGS)
    with connection(options.url, options.key) as client:
        service = Service(client)
        passages = sum(_upload(service, file) for file in files)
        if not options.manuals:
            yield _asked(service, options.part, passages, misses=options.misses)
        if options.beside:
            worlds = sets.fewer(sets.load(options.beside), options.conversations, options.limit)
            beside = Set(options.beside, tuple(sets.answerable(world) for world in worlds))
            rows = []
            for name, each in (("without", Service(client)), (f"beside {passages} passages", service)):
                answers = ask_set(each, beside, ["hybrid"], wall_clock=options.wall_clock)
                figures = [answer.figures("hybrid")[: len(METRICS)] for answer in answers]
                rows.append({"own memories": name, "questions": len(answers), **_means(figures)})
            yield Section(f"{beside.name} beside manuals", rows)


def _upload(service: Service, file: Path) -> int:
    """Uploads a manual as a document of the agent. Returns how many passages it has."""
    media_type = ENDINGS[file.suffix[1:]]
    accepted = service.upload(file.name, media_type, file.read_bytes())
    return int(service.ended(accepted)["result"]["passages"])


def _asked(service: Service, part: str, passages: int, *, misses: bool) -> Section:
    asked = json.loads((MANUALS / f"questions_{part}.json").read_text(encoding="utf-8"))
    figures: dict[str, list[Sequence[float]]] = {"all": []}
    notes = list[str]()
    for each in asked:
        quote, question = _plain(each["quote"]), each["question"]
        body = {"agent_id": service.agent, "user_id": "reader", "query": question, "top_k": 20, "record_access": False}
        hits = service.search(body)[0]["items"]
        places = [place for place, hit in enumerate(hits) if quote in _plain(hit["memory"]["content"])][:1]
        for group in ("all", each["kind"], each["manual"]):
            figures.setdefault(group, []).append(retrieval(places, 1))
        if misses and (not places or places[0] >= 5):
            notes.append(f"{places[0] + 1 if places else '> all'}: {question} ({each['quote']})")
    rows: list[Row] = [{"questions": name, "number": len(of), **_means(of)} for name, of in figures.items()]
    return Section(f"manuals, {part}, {passages} passages", rows, notes=notes)


def _plain(text: str) -> str:
    """The text without emphasis and line breaks, as `keep **2 m** free` has them."""
    return " ".join(text.replace("*", "").replace("`", "").split()).casefold()


def _means(figures: Sequence[Sequence[float]]) -> dict[str, Any]:
    means = np.mean(np.array(figures), axis=0).tolist()
    return {name: round(value, 3) for name, value in zip(METRICS, means, strict=True) if name != "hit@10"}
