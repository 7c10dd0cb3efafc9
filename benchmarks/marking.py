"""Which texts of a prompt are marked as out of date, and whether they are.

    scripts/benchmark marking --faults

A story is a user's life with one assistant: {"name", "turns": [{"id", "session", "time", "role", "text"}], "questions":
[{"after", "time", "query"}]}, and "facts": what a right model learns of it, each {"turn", "quote", "subject",
"predicate", "object", "also"}. `also`: other turns that state the same value. The service learns from a made-up model
that answers with these facts. Each question is asked when the turns before it are known, and each message that the
prompt shows is judged: a mark is right if the message states an earlier value of the fact that the mark names. A
message that states one and has no mark is missed, such as an assistant's repetition.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from app.facts.profile import PREDICATES
from app.facts.schemas import FACTS, FactRecord, sentence
from benchmarks.evaluation.service import Api
from benchmarks.harness import ROOT, Section, folder, recalld
from benchmarks.learned.meter import Answerer, completion, metered

DATA = ROOT / "benchmarks" / "data" / "marking"
AGENT = "companion"
BUDGET = 2000
REQUEST_SECONDS = 120
WRONG_AT_MOST = 0.1
_LINE = re.compile(r"^- \[(mem_\w+)\] (.*)$")
_MARK = re.compile(rf"\((?:({'|'.join(PREDICATES)}) )?(?:since \d{{4}}-\d\d-\d\d|now): (.+?)\)(?= \(|$)")

Json: TypeAlias = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with stories")
    parser.add_argument("--faults", action="store_true", help="name what is wrong or missed on standard error")


def run(options: argparse.Namespace) -> Iterator[Section]:
    stories = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.data.glob("*.json"))]
    rows, total = [], Counter[str]()
    with ExitStack() as stack:
        url, _ = stack.enter_context(metered(knows(stories)))
        settings: dict[str, Any] = {"RECALLD_LLM_BASE_URL": url, "RECALLD_LLM_MODEL": "right"}
        server = stack.enter_context(recalld(stack.enter_context(folder()), **settings))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=REQUEST_SECONDS))
        for story in stories:
            counts = Life(Api(client), story, faults=options.faults).counts()
            rows.append({"story": story["name"], **counts})
            total.update(counts)
    rows.append({"story": "all", **{name: total[name] for name in ("prompts", "marked", "wrong", "missed")}})
    yield Section("marks", rows, total["wrong"] <= WRONG_AT_MOST * total["marked"])


def knows(stories: Sequence[Json]) -> Answerer:
    """Returns a model that learns the facts of the stories, each from its message, and nothing else."""
    facts = [fact for story in stories for fact in story["facts"]]

    def answer(body: Json) -> Json:
        shape = body["response_format"]["json_schema"]["schema"]["properties"]
        data, _ = json.JSONDecoder().raw_decode(body["messages"][1]["content"])
        said = [line["text"] for line in data.get("conversation", ())]
        given: Json = {name: [] if of.get("type") == "array" else "They talked." for name, of in shape.items()}
        if "facts" in given:
            given["facts"] = [_learned(fact) for fact in facts if any(fact["quote"] in text for text in said)]
        return completion(json.dumps(given, ensure_ascii=False), body)

    return answer


def _learned(fact: Json) -> Json:
    about = "user" if fact["subject"] == "user" else "other"
    said = {"about": about, "whom": None, "certainty": "stated", "holds": "now", "cardinality": "one"}
    return {**{name: fact[name] for name in ("quote", "subject", "predicate", "object")}, "at": None, **said}


class Life:
    """One story, lived through the service."""

    def __init__(self, api: Api, story: Json, *, faults: bool) -> None:
        self._api, self._story, self._faults = api, story, faults
        self._owner = {"agent_id": AGENT, "user_id": story["name"]}
        self._said = {turn["id"]: turn for turn in story["turns"]}
        self._turns: dict[str, int] = {}
        """The turn that each memory was made of."""

    def counts(self) -> Counter[str]:
        """Lives the story and asks its questions. Returns the numbers of prompts, of marks, of wrong ones and of missed
        ones."""
        counts, known = Counter[str](prompts=0, marked=0, wrong=0, missed=0), 0
        for question in sorted(self._story["questions"], key=lambda one: (one["after"], one["time"])):
            new = [turn for turn in self._story["turns"] if known < turn["id"] <= question["after"]]
            if new:
                self._append(new)
                known = question["after"]
            counts.update(prompts=1)
            counts.update(self._judged(question, known))
        return counts

    def _append(self, turns: Sequence[Json]) -> None:
        for session, part in groupby(turns, key=lambda turn: turn["session"]):
            name = f"{self._story['name']}-{session}"
            messages = [
                {
                    "role": turn["role"],
                    "content": turn["text"],
                    "timestamp": turn["time"],
                    "metadata": {"turn": turn["id"]},
                }
                for turn in part
            ]
            self._api.send("POST", f"/v1/sessions/{name}/messages", {**self._owner, "messages": messages})
            self._api.ended(self._api.send("POST", f"/v1/sessions/{name}/end"))
        self._api.embedded(self._owner)
        for memory in self._api.pages("/v1/memories", **self._owner):
            if (turn := (memory.get("metadata") or {}).get("turn")) is not None:
                self._turns[memory["memory_id"]] = turn

    def _judged(self, question: Json, known: int) -> Mapping[str, int]:
        body = {**self._owner, "query": question["query"], "now": question["time"], "token_budget": BUDGET}
        text = self._api.send("POST", "/v1/context", {**body, "citations": "ids"})["text"]
        counts = Counter[str]()
        for line in text.splitlines():
            shown = _LINE.match(line)
            if shown is None or (turn := self._turns.get(shown[1])) is None:
                continue
            stated = {sentence(_fact(now)) for now in self._outdated(turn, known)}
            marks = {_stated(field, said) for field, said in _MARK.findall(shown[2])}
            counts.update(marked=len(marks), wrong=len(marks - stated), missed=len(stated - marks))
            if self._faults and marks != stated:
                wrong, missed = sorted(marks - stated), sorted(stated - marks)
                print(f"{question['query']} | {line} | wrong {wrong}, missed {missed}", file=sys.stderr)
        return counts

    def _outdated(self, turn: int, known: int) -> Iterator[Json]:
        """Yields the present facts of which a turn states an earlier value."""
        for key, facts in groupby(sorted(self._story["facts"], key=_key), key=_key):
            told = [fact for fact in sorted(facts, key=lambda fact: fact["turn"]) if fact["turn"] <= known]
            assert key
            before = [fact for fact in told[:-1] if fact["object"] != told[-1]["object"]]
            if any(turn in (fact["turn"], *fact.get("also", ())) for fact in before):
                yield told[-1]


def _stated(field: str, said: str) -> str:
    """Returns what a mark says as a fact says it: "home", "Bergen" is "The user lives in Bergen"."""
    return sentence({"subject": "@user", "predicate": PREDICATES[field], "object": said}) if field else said


def _key(fact: Json) -> tuple[str, str]:
    return fact["subject"], fact["predicate"]


def _fact(fact: Json) -> FactRecord:
    return FACTS.as_record({**fact, "subject": "@user"} if fact["subject"] == "user" else fact)
