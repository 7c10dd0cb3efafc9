"""What the encoder is taught and measured on: memories, and questions that some of them answer.

    for world in lives(Path("benchmarks/data/lives/train")):
        world.texts[world.questions[0].right[0]]

Sets: the lives of this repository; and, from a folder that one has (`--data`), files in the shapes that
`benchmarks.evaluation.sets` describes, and PrecisionMemBench's.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.sets import load

LIVES = Path(__file__).resolve().parents[1] / "data" / "lives"
STATEMENTS = LIVES.parent / "statements"
TAUGHT = ("realmem_dev.json", "lifebench_dev.json", "memoryagentbench_dev.json", "precisionmembench_dev.json")
"""Sets whose licence lets a model be taught on them (Apache-2.0, MIT). What is taught on is no measure afterwards."""
MEASURED = ("locomo_dev.json", "realtalk_dev.json", "beam_dev.json", "knowmebench_dev.json", "memdaily_dev.json")


@dataclass(frozen=True, slots=True)
class Question:
    query: str
    right: tuple[int, ...]
    """Places in `World.texts`, the best first. None: it was never said, or nothing is asked."""
    wrong: tuple[int, ...]
    """Places of texts that answer it wrongly: outdated, corrected, of somebody else."""
    known: int
    """Texts known when it is asked."""
    kind: str


@dataclass(frozen=True, slots=True)
class World:
    """One owner's memories in the order of their time."""

    name: str
    language: str
    speakers: frozenset[str]
    """Names that a query loses before it is embedded, as the service takes them out."""
    texts: tuple[str, ...]
    questions: tuple[Question, ...]
    labels: tuple[str, ...] = ()
    """Who said each text, and on which day, where that is known: `Ladi, 2026-01-10`."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements, and what the later one does to the earlier one."""

    earlier: str
    later: str
    does: str
    language: str
    hard: bool
    days: int


def lives(folder: Path) -> list[World]:
    return [_life(raw) for raw in _read(folder)]


def pairs(folder: Path) -> list[Pair]:
    found = []
    for raw in _read(folder):
        for pair in raw["pairs"]:
            dates = [days_of(pair[side]["date"]) for side in ("earlier", "later")]
            found.append(
                Pair(pair["earlier"]["text"], pair["later"]["text"], pair["does"], raw["language"],
                     pair["hard"] is not None, dates[1] - dates[0])
            )  # fmt: skip
    return found


def statements(folder: Path) -> list[Pair]:
    """The pairs of `benchmarks/data/statements`: an earlier statement with each of its later ones."""
    read = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            date, earlier = item["earlier"]
            read += [
                Pair(earlier, later, does, "en", True, days_of(day) - days_of(date))
                for does, day, later in item["later"]
            ]
    return read


def neighbours(file: Path) -> list[Pair]:
    """The pairs of turns that `benchmarks.train.neighbours` wrote. One that no question calls a change `adds`."""
    return [
        Pair(raw["earlier"], raw["later"], "replaces" if raw["change"] else "adds", raw["language"], True, raw["days"])
        for raw in json.loads(file.read_text(encoding="utf-8"))
    ]


def sets(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, World]]:
    """The worlds of the files that the folder has, each with the file's name without its ending."""
    for name in names:
        if not (path := folder / name).exists():
            continue
        raw = json.loads(path.read_text(encoding="utf-8"))
        worlds = [_beliefs(raw)] if "beliefs" in raw else _shaped(path, raw)
        yield from ((path.stem.removesuffix("_dev"), world) for world in worlds)


def without_speakers(query: str, speakers: frozenset[str]) -> str:
    """Takes the speakers' names out of a query: vectors of names hide what is asked of them."""
    forms = sorted({form for name in speakers for form in (name, name.split()[0])}, key=len, reverse=True)
    if not forms:
        return query
    pattern = rf"(?<!\w)({'|'.join(map(re.escape, forms))})(?!\w)(?:['’]s\b)?"
    rest = " ".join(re.sub(pattern, " ", query, flags=re.IGNORECASE).split())
    return rest if any(letter.isalnum() for letter in rest) else query


def _read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def _life(raw: dict[str, Any]) -> World:
    places = {turn["id"]: place for place, turn in enumerate(raw["turns"])}
    questions = tuple(
        Question(
            asked["query"],
            tuple(places[number] for number in asked["best"]),
            tuple(places[number] for number in asked["worse"]),
            places[asked["after"]] + 1,
            asked["kind"],
        )
        for asked in raw["questions"]
    )
    speakers = frozenset(turn["name"] for turn in raw["turns"] if turn.get("name"))
    labels = tuple(f"{turn.get('name') or turn['role']}, {turn['time'][:10]}" for turn in raw["turns"])
    texts = tuple(turn["text"] for turn in raw["turns"])
    return World(raw["name"], raw["language"], speakers, texts, questions, labels)


def _beliefs(raw: dict[str, Any]) -> World:
    """PrecisionMemBench: what a case's expectations name answers it."""
    places = {belief["_id"]: place for place, belief in enumerate(raw["beliefs"])}
    texts, questions = tuple(belief["content"] for belief in raw["beliefs"]), []
    for case in raw["cases"]:
        named = [
            name
            for expected in case["expect"].values()
            if isinstance(expected, dict)
            for key in ("mustInclude", "shouldOnlyInclude")
            for name in expected.get(key, ())
        ]
        if right := tuple(dict.fromkeys(places[name] for name in named if name in places)):
            questions.append(Question(case["query"], right, (), len(texts), "belief"))
    return World("precisionmembench", "en", frozenset(), texts, tuple(questions))


def _shaped(path: Path, raw: Any) -> list[World]:
    """By place, since a set may hold equal texts: `benchmarks.evaluation.sets` names evidence by its text."""
    if isinstance(raw, list):
        return [_by_text(world) for world in load(path)]
    worlds = []
    for told in raw["conversations"]:
        places = {item["id"]: place for place, item in enumerate(told["items"])}
        questions = tuple(
            Question(
                asked["query"],
                tuple(places[name] for name in asked["evidence"]),
                tuple(places[name] for name in asked.get("superseded", ())),
                asked.get("after", len(places)),
                str(asked.get("kind", "")),
            )
            for asked in told["questions"]
        )
        speakers = frozenset(name for item in told["items"] if (name := item.get("name")))
        texts = tuple(item["content"] for item in told["items"])
        labels = tuple(
            f"{item.get('name') or item.get('role') or 'note'}, {item['timestamp'][:10]}" for item in told["items"]
        )
        worlds.append(World(told["id"], "", speakers, texts, questions, labels))
    return worlds


def _by_text(world: Any) -> World:
    texts = tuple(item.content for item in world.items)
    places = {text: place for place, text in reversed(list(enumerate(texts)))}
    questions = tuple(
        Question(asked.query, tuple(places[text] for text in asked.evidence), (), asked.after, asked.kind)
        for asked in world.questions
    )
    speakers = frozenset(item.name for item in world.items if item.name)
    labels = tuple(f"{item.name or item.role}, {item.time:%Y-%m-%d}" if item.time else "" for item in world.items)
    return World(world.name, "en", speakers, texts, questions, labels)


def days_of(date: str) -> int:
    year, month, day = map(int, date.split("-"))
    return year * 365 + month * 30 + day
