"""What reflection finds in stories of contradiction and change, what it finds wrongly, and what the prompt says then.

    scripts/benchmark reflection --policy auto --judge scripted --faults

Each story becomes the sessions of one user. Then `POST /v1/reflect` runs, and the prompt for the story's question is
asked for. A pair counts as found if one finding, open or applied, names both of its statements. Any other pair that is
found is a false alarm, but in stories of plans without one. A prompt is right if it has all that it must have, and
every line with what does not hold is marked as earlier, denied or uncertain. `--judge` gives the service a language
model: `scripted` judges every pair rightly, `noisy` one of ten wrongly; an address is that of a real model's server,
which is asked for verdicts only, not to learn.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from benchmarks.evaluation.service import Api
from benchmarks.harness import ROOT, Row, Section, folder, recalld
from benchmarks.learned.meter import Answerer, metered, passed_on, recorded
from benchmarks.learned.scripted_judge import ScriptedJudge, judged_by

DEV = ROOT / "benchmarks" / "data" / "reflection_dev.json"
AGENT = "reflection"
TURN = timedelta(minutes=1)
BUDGET = 2000
REQUEST_SECONDS = 120
PROMPT_TARGET = 0.95
MARKED = re.compile(
    r"\b(?:uncertain|earlier|superseded|no longer|until|replaced|previous|outdated|since \d{4}-\d\d-\d\d:)"
)
"""How our prompt marks what does not hold, or may not."""
PAST = re.compile(
    r"\b(?:was|were|had|used to|ago|before|back then|formerly|instead|cancel\w*|previously|moved|sold|quit|stopped|"
    r"gave up|"
    r"war|waren|hatte|hatten|früher|damals|vorher|statt|abgesagt|verkauft|umgezogen|aufgehört|gekündigt|doch|"
    r"era|estaba|tenía|vivía|trabajaba|antes|dejé|vendí|cancel\w*|en vez|mudé|cambié)\b",
    re.IGNORECASE,
)
"""Words by which people speak of the past."""
DENIED = re.compile(
    r"(?<!\w)(?:anymore|\w+n't|can't|cannot|cant|dont|instead|longer|neither|never|no|nor|not|quit|stopped|without|"
    r"kein\w*|nichts?|nie|niemals|ohne|statt|weder|jamás|ningun\w*|nunca|sin|tampoco)(?!\w)",
    re.IGNORECASE,
)
"""Words by which people deny something, in the languages of the stories."""

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[int, int]
"""A statement of a story: the session and the message, both from 0."""


@dataclass(slots=True)
class Tally:
    """What became of the stories of one kind."""

    stories: int = 0
    pairs: int = 0
    found: int = 0
    wrong_way: int = 0
    alarms: int = 0
    prompts_right: int = 0
    faults: list[str] = field(default_factory=list)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DEV, help="the set of stories (JSON)")
    parser.add_argument("--stories", type=int, help="only the first N")
    parser.add_argument("--policy", choices=["propose", "auto"], default="auto")
    parser.add_argument("--judge", default="none", help="none, scripted, noisy, or http://… of a model's server")
    parser.add_argument("--record", type=Path, help="a file that keeps a real model's answers for the next run")
    parser.add_argument("--faults", action="store_true", help="name what is missing or wrong on standard error")


def run(options: argparse.Namespace) -> Iterator[Section]:
    stories = json.loads(options.data.read_text(encoding="utf-8"))[: options.stories]
    tallies: dict[tuple[str, str], Tally] = {}
    with ExitStack() as stack:
        settings, meter = {"RECALLD_REFLECTION_POLICY": options.policy}, None
        if options.judge != "none":
            url, meter = stack.enter_context(metered(_judge(options, stories)))
            settings |= {
                "RECALLD_LLM_BASE_URL": url,
                "RECALLD_LLM_MODEL": "judge",
                "RECALLD_LLM_TIMEOUT_SECONDS": "600",
            }
        server = stack.enter_context(recalld(stack.enter_context(folder()), **settings))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=REQUEST_SECONDS))
        for story in stories:
            Telling(Api(client), story).judge(tallies.setdefault((story["kind"], story["language"]), Tally()))
    if options.faults:
        print(*(fault for tally in tallies.values() for fault in tally.faults), sep="\n", file=sys.stderr)
    kinds = [_row(kind, [tally for (of, _), tally in tallies.items() if of == kind]) for kind in _kinds(tallies, 0)]
    whole = _row("all", list(tallies.values()))
    met = whole["prompts right"] >= PROMPT_TARGET * whole["stories"]
    judged = "without a model" if meter is None else f"judged by {options.judge}"
    yield Section(f"{len(stories)} stories by kind, {judged}", [*kinds, whole], met)
    if meter is not None:
        calls = {"calls": meter.calls, "tokens in": meter.tokens_in, "tokens out": meter.tokens_out}
        yield Section("what the model was asked, learning included", [calls])
    spoken = [_row(one, [tally for (_, of), tally in tallies.items() if of == one]) for one in _kinds(tallies, 1)]
    yield Section("by language", spoken)


def _judge(options: argparse.Namespace, stories: Sequence[Json]) -> Answerer:
    if options.judge in ("scripted", "noisy"):
        return ScriptedJudge(stories, noisy=options.judge == "noisy")
    real = passed_on(options.judge)
    return judged_by(recorded(real, options.record) if options.record else real)


def _kinds(tallies: dict[tuple[str, str], Tally], place: int) -> list[str]:
    return list(dict.fromkeys(key[place] for key in tallies))


def _row(name: str, tallies: Sequence[Tally]) -> Row:
    total: Counter[str] = Counter()
    for tally in tallies:
        total.update({each: getattr(tally, each) for each in Tally.__slots__ if each != "faults"})
    names = {"wrong_way": "wrong way", "alarms": "false alarms", "prompts_right": "prompts right"}
    return {"stories of": name, **{names.get(each, each): total[each] for each in Tally.__slots__ if each != "faults"}}


class Telling:
    """One story, told to the service."""

    def __init__(self, api: Api, story: Json) -> None:
        self._api, self._story = api, story
        self._owner = {"agent_id": AGENT, "user_id": story["id"]}

    def judge(self, tally: Tally) -> None:
        """Tells the story, lets the service reflect, and counts what it found and what its prompt says."""
        self._tell()
        self._api.ended(self._api.send("POST", "/v1/reflect", self._owner))
        tally.stories += 1
        self._judge_findings(tally)
        self._judge_prompt(tally)

    def _tell(self) -> None:
        for number, session in enumerate(self._story["sessions"]):
            at = datetime.fromisoformat(session["at"])
            messages = [
                {**message, "timestamp": (at + TURN * turn).isoformat()}
                for turn, message in enumerate(session["messages"])
            ]
            session_id = f"{self._story['id']}-{number}"
            self._api.send("POST", f"/v1/sessions/{session_id}/messages", {**self._owner, "messages": messages})
            self._api.ended(self._api.send("POST", f"/v1/sessions/{session_id}/end"))
        self._api.embedded(self._owner)

    def _judge_findings(self, tally: Tally) -> None:
        places = self._places()
        wanted = {frozenset(_pair(pair)): pair["relation"] for pair in self._story["pairs"]}
        found: dict[frozenset[Place], Json] = {}
        for finding in self._api.pages("/v1/findings", **self._owner, status="any"):
            named = {places[each["text"]] for each in finding["evidence"] if each["text"] in places}
            if named:
                found[frozenset(named)] = finding
        tally.pairs += len(wanted)
        for pair, relation in wanted.items():
            finding = next((one for named, one in found.items() if pair <= named), {})
            if not finding:
                tally.faults.append(f"{self._story['id']}: not found: {self._texts(pair)}")
                continue
            tally.found += 1
            if not self._right_way(finding, pair, relation, places):
                tally.wrong_way += 1
                tally.faults.append(f"{self._story['id']}: {relation}, but {finding['proposal']}: {self._texts(pair)}")
        for places_named in found:
            if not any(pair <= places_named for pair in wanted) and not (self._story["kind"] == "plan" and not wanted):
                tally.alarms += 1
                tally.faults.append(
                    f"{self._story['id']}: false alarm: {self._texts(places_named)}: {found[places_named]['reason']}"
                )

    def _right_way(self, finding: Json, pair: frozenset[Place], relation: str, places: dict[str, Place]) -> bool:
        """Returns whether what was applied, or would be, retires the statement that does not hold."""
        texts = {each["id"]: each["text"] for each in finding["evidence"]}
        retired = {places[texts[each["id"]]] for each in finding["proposal"]["retire"]} & pair
        if relation == "unknown":
            return bool(finding["status"] == "open")
        wrong = min(pair) if relation == "later_holds" else max(pair)
        return not retired or retired == {wrong}

    def _judge_prompt(self, tally: Tally) -> None:
        body = {
            **self._owner,
            "query": self._story["question"],
            "session_id": f"{self._story['id']}-next",
            "token_budget": BUDGET,
            "now": self._story["ask_at"],
        }
        text = self._api.send("POST", "/v1/context", body)["text"]
        lacks = [words for words in self._story["prompt_right"] if not _says(text, words)]
        lies = [line for line in text.splitlines() if self._lies(line)]
        tally.prompts_right += not lacks and not lies
        if lacks:
            tally.faults.append(f"{self._story['id']}: the prompt lacks {', '.join(lacks)}")
        tally.faults += [f"{self._story['id']}: the prompt says, unmarked: {line}" for line in lies]

    def _lies(self, line: str) -> bool:
        said = [words for words in self._story["prompt_wrong"] if _says(line, words)]
        if not said or MARKED.search(line) or PAST.search(line) or line.startswith("##"):
            return False
        if DENIED.search(line):
            return False
        right = [words for words in self._story["prompt_right"] if words not in self._story["prompt_wrong"]]
        return not any(_says(line, words) for words in right)  # it names what holds beside it

    def _places(self) -> dict[str, Place]:
        """Returns where each statement stands, by its text. Without a model every record is a message."""
        sessions = self._story["sessions"]
        return {
            message["content"]: (number, turn)
            for number, session in enumerate(sessions)
            for turn, message in enumerate(session["messages"])
        }

    def _texts(self, places: frozenset[Place]) -> str:
        said = (self._story["sessions"][session]["messages"][turn]["content"] for session, turn in sorted(places))
        return " | ".join(said)


def _pair(pair: Json) -> tuple[Place, Place]:
    (session, turn), (later_session, later_turn) = pair["earlier"], pair["later"]
    return (session, turn), (later_session, later_turn)


def _says(text: str, words: str) -> bool:
    """Returns whether a text has the words, at the start of a word, in any case."""
    return re.search(rf"(?<!\w){re.escape(words)}", text, re.IGNORECASE) is not None
