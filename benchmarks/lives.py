"""Checks the lives of `benchmarks/data/lives`: python -m benchmarks.lives [check] [--beside FOLDER …]

Of each life: every id that a question names is a turn that was said before it is asked, every string that an answer
needs stands in a turn that answers, every pair's later statement is not the earlier one. Of all lives: names that two
of them share, and stretches of nine words that stand in two of them or in a file of `--beside` (other sets, whose
texts must not be here). What resembles something is named; nothing is deleted.

    python -m benchmarks.lives --make FOLDER

reads lives as they were written (text files in the format that the page beside the lives describes), and writes each
as JSON into the part to which its name belongs.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from app.core.language import is_unspaced

LIVES = Path(__file__).resolve().parent / "data" / "lives"
PARTS = ("train", "choose", "test")
KINDS = {"assistant", "two", "team", "notes", "coding", "support", "diary"}
ASKED = {
    "small", "never", "current", "correction", "mistaken-assistant", "mistaken-other", "history", "negation", "recent",
    "past-time", "future", "order", "count-list", "person", "id", "orders", "indirect", "still-open", "cross-session",
    "spelling",
}  # fmt: skip
UNANSWERED = {"small", "never"}
DOES = ("replaces", "corrects", "agrees", "adds", "unrelated")
SHINGLE = 9
"""Words. Shorter stretches are turns of phrase: "I don't know what to do with it"."""

Life: TypeAlias = dict[str, Any]


def part_of(name: str) -> str:
    """Half of the lives are taught, a sixth chooses between what was taught, a third tests: by the hash of the name."""
    place = int(sha256(name.encode()).hexdigest(), 16) % 6
    return "train" if place < 3 else "choose" if place == 3 else "test"


def faults(life: Life) -> list[str]:
    """What is wrong with a life, a sentence each."""
    turns = {turn["id"]: turn for turn in life["turns"]}
    found = [f"turn {number} stands at place {place}" for place, number in enumerate(turns, 1) if number != place]
    times = [turn["time"] for turn in life["turns"]]
    if times != sorted(times):
        found.append("a turn is earlier than the one before it")
    for asked in life["questions"]:
        found += [f"{asked['query']!r}: {fault}" for fault in _faults_of_question(asked, turns)]
    for pair in life["pairs"]:
        if pair["does"] not in DOES or pair["later"]["date"] < pair["earlier"]["date"]:
            found.append(f"{pair['later']['text']!r}: {pair['does']} of {pair['earlier']['date']}")
        if pair["later"]["text"] == pair["earlier"]["text"]:
            found.append(f"{pair['later']['text']!r} stands beside itself")
    return found


def _faults_of_question(asked: dict[str, Any], turns: dict[int, dict[str, Any]]) -> Iterator[str]:
    named = [*asked["best"], *asked["worse"]]
    if asked["kind"] not in ASKED:
        yield f"no kind is {asked['kind']}"
    if asked["after"] not in turns or any(number not in turns or number > asked["after"] for number in named):
        yield "it names a turn that is not known when it is asked"
        return
    if set(asked["best"]) & set(asked["worse"]):
        yield "a turn is right and wrong"
    if (asked["kind"] in UNANSWERED) is bool(asked["best"]) or bool(asked["needed"]) is not bool(asked["best"]):
        yield "turns that answer, or what is needed, are missing or too many"
    if asked["time"] < turns[asked["after"]]["time"]:
        yield "it is asked before its turn"
    answer = "\n".join(turns[number]["text"] for number in asked["best"]).casefold()
    for need in asked["needed"]:
        if not any(wording.casefold() in answer for wording in need):
            yield f"{need} stands in no turn that answers it"


def shingles(text: str) -> set[int]:
    """Hashes of the stretches of nine words; of scripts without spaces, of eighteen characters."""
    words = re.findall(r"[\w'’]+", text.casefold())
    if is_unspaced(text):
        letters = "".join(words)
        return {hash(letters[at : at + 2 * SHINGLE]) for at in range(len(letters) - 2 * SHINGLE + 1)}
    return {hash(tuple(words[at : at + SHINGLE])) for at in range(len(words) - SHINGLE + 1)}


def said(life: Life) -> list[str]:
    pairs = [pair[side]["text"] for pair in life["pairs"] for side in ("earlier", "later")]
    return [*(turn["text"] for turn in life["turns"]), *(asked["query"] for asked in life["questions"]), *pairs]


def resemblances(lives: dict[str, Life], beside: list[Path]) -> list[str]:
    """Texts of two lives, or of a life and another file, that share a stretch."""
    owners: dict[int, set[str]] = defaultdict(set)
    examples: dict[tuple[str, str], str] = {}
    for name, life in lives.items():
        for text in said(life):
            for stretch in shingles(text):
                for other in owners[stretch] - {name}:
                    examples.setdefault((name, other), text)
                owners[stretch].add(name)
    for path in beside:
        for text in _texts(path):
            for stretch in shingles(text):
                for name in owners.get(stretch, ()):
                    examples.setdefault((name, path.name), text)
    return [f"{name} resembles {other}: {text[:100]!r}" for (name, other), text in sorted(examples.items())]


def _texts(path: Path) -> Iterator[str]:
    """Every string of a JSON or JSONL file."""
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else [json.loads(text)]
    while rows:
        value = rows.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            rows += value.values() if isinstance(value, dict) else value


def shared_users(lives: dict[str, Life]) -> list[str]:
    """Names of users that two lives share."""
    names = Counter(life["user"].casefold() for life in lives.values())
    return [f"{count} lives are of a user called {name}" for name, count in names.items() if count > 1]


def read_text(path: Path) -> Life:
    """Reads a life as it was written. Raises ValueError with the line that cannot be read."""
    life: Life = {"turns": [], "questions": [], "pairs": []}
    part, session, at = "turns", "", datetime(1, 1, 1)  # noqa: DTZ001 (times of lives have no zone until they are written)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            if not (line := line.strip()):
                continue
            if line.startswith("life:"):
                cells = [cell.strip() for cell in line[5:].split("|", 4)]
                life |= dict(zip(("name", "language", "kind", "user", "about"), cells, strict=True))
            elif line in ("questions:", "pairs:"):
                part = line[:-1]
            elif part == "turns" and line.startswith("=="):
                session, day, clock = line[2:].split()
                at = datetime.fromisoformat(f"{day}T{clock}:00")
            elif part == "turns":
                life["turns"].append(_turn(line, session, at))
                at += timedelta(minutes=1)
            elif part == "questions":
                life["questions"].append(_question(line))
            else:
                life["pairs"].append(_pair(line))
        except ValueError as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from error
    return life


def _turn(line: str, session: str, at: datetime) -> dict[str, Any]:
    number, speaker, text = line.split(" ", 2)
    role = {"U": "user", "A": "assistant", "N": "note"}.get(speaker, "user")
    turn = {"id": int(number), "session": session, "time": f"{at.isoformat()}Z", "role": role, "text": text}
    return turn if speaker in ("U", "A", "N") else {**turn, "name": speaker.rstrip(":")}


def _question(line: str) -> dict[str, Any]:
    kind, after, time, query, best, worse, needs = (cell.strip() for cell in line.lstrip("? ").split("|", 6))
    return {
        "after": int(after),
        "time": datetime.fromisoformat(f"{time.replace(' ', 'T')}:00").isoformat() + "Z",
        "kind": kind,
        "query": query,
        "needed": [] if needs == "-" else [[way.strip() for way in need.split(" / ")] for need in needs.split(" && ")],
        "best": [] if best == "-" else [int(number) for number in best.split()],
        "worse": [] if worse == "-" else [int(number) for number in worse.split()],
    }


def _pair(line: str) -> dict[str, Any]:
    does, first, earlier, second, later, hard = (cell.strip() for cell in line.split("|", 5))
    sides = {"earlier": {"date": first, "text": earlier}, "later": {"date": second, "text": later}}
    return {"does": does, **sides, "hard": None if hard == "-" else hard}


def stored() -> dict[str, Life]:
    """The lives of all parts by their names."""
    files = [path for part in PARTS for path in sorted((LIVES / part).glob("*.json"))]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def make(folder: Path) -> None:
    for path in sorted(folder.glob("*.txt")):
        life = read_text(path)
        if found := faults(life):
            print(f"{path.name} is left out: {found[0]}")
            continue
        target = LIVES / part_of(life["name"]) / f"{life['name']}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(life, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def report(lives: dict[str, Life]) -> None:
    questions = Counter(asked["kind"] for life in lives.values() for asked in life["questions"])
    pairs = Counter(pair["does"] for life in lives.values() for pair in life["pairs"])
    hard = sum(pair["hard"] is not None for life in lives.values() for pair in life["pairs"])
    for title, counts in (
        ("lives", Counter(life["kind"] for life in lives.values())),
        ("languages", Counter(life["language"] for life in lives.values())),
        ("parts", Counter(part_of(name) for name in lives)),
        ("questions", questions),
        ("pairs", pairs),
    ):
        print(f"{title}: {counts.total()} ({', '.join(f'{name} {count}' for name, count in counts.most_common())})")
    print(f"hard pairs: {hard}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", type=Path, help="folder of lives as they were written")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="folders whose texts must not be here")
    given = parser.parse_args()
    if given.make:
        make(given.make)
    lives = stored()
    files = [path for folder in given.beside for path in sorted(folder.rglob("*.json*"))]
    found = [f"{name}: {fault}" for name, life in lives.items() for fault in faults(life)]
    found += resemblances(lives, files)
    print(*shared_users(lives), *found, sep="\n")
    report(lives)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
