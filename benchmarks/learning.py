"""What is learned from conversations, right and wrong, with made-up and with real language models.

Each conversation of a set becomes a session of a service of its own. It ends, the service learns from it, and all
memories, facts, profile entries, summaries and lessons are judged by what the set says must, may and must not be
learned (`benchmarks/learned/sets.py`). Then the prompt of a new session is checked, a day later.

`scripted` answers what must be learned, with real quotes. `liar` claims what must not be learned and values that nobody
said. `echo` says that every line is a memory, a fact and an entry of the profile. Both say that all of it was stated by
the user and holds now, and the second look of all three objects to nothing. `none` is a service without a model.
`gemma-270m`, `qwen-0.5b` and `qwen-1.5b` are served by llama.cpp in an environment of their own under
`.models/learning`. The first run installs 0.3, 0.6 or 1.2 GB there.

--record writes the answers of real models and the result of each conversation to files as they come. A run that was
stopped goes on from there, and changed rules are measured without asking the model again.

A set with right and wrong items (`benchmarks/data/learning/`, `benchmarks/learned/right_items.py`) is measured in
stages: by quote and numbers alone, with the fields that the model fills, with the second look. `--model` then names
real models to be measured beside the made-up ones.

--small-talk lets each model read 500 turns of small talk instead, and counts what is left of them.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import httpx

from benchmarks.harness import ROOT, Row, Section, folder, recalld
from benchmarks.learned import right_items
from benchmarks.learned.judging import Judgement, invented, judge
from benchmarks.learned.learning_run import Learner, Outcome, derived_by_part
from benchmarks.learned.made_up_models import SAYS, MadeUpModel
from benchmarks.learned.meter import Answerer, Meter, metered, passed_on, recorded
from benchmarks.learned.real_models import WHEELS, real_model
from benchmarks.learned.sets import Conversation, load
from benchmarks.learned.small_talk import CHATTER, ENOUGH, SAID, TURNS, small_talk

DEV = ROOT / "benchmarks" / "data" / "learning_dev.json"
MODELS = (*SAYS, "none", *WHEELS)
REQUEST_SECONDS = 120
CONTEXT_TOKENS = 4096
"""The most tokens of one answer of a real model."""


@dataclass(slots=True)
class Result:
    """What one model did with all conversations."""

    model: str
    outcomes: list[Outcome] = field(default_factory=list)
    judged: Judgement = field(default_factory=Judgement)
    meter: Meter | None = None

    @property
    def faults(self) -> list[str]:
        return [*self.judged.faults, *(fault for outcome in self.outcomes for fault in outcome.faults)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", "--set", type=Path, default=DEV, metavar="FILE", help="the set of conversations (JSON)"
    )
    parser.add_argument("--model", nargs="+", choices=MODELS, default=[*SAYS, "none"])
    parser.add_argument("--conversations", type=int, help="only N, of all languages in turn")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="write answers and results there, and go on from them"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of a real model")
    parser.add_argument("--deadline", type=float, default=300, help="seconds that a session's end is waited for")
    parser.add_argument("--small-talk", action="store_true", help=f"{TURNS} turns of small talk instead of the set")
    parser.add_argument("--chatter", action="store_true", help="the same of phrases with which no rule was made")
    parser.add_argument("--faults", action="store_true", help="name what is missing or wrong on standard error")


def run(options: argparse.Namespace) -> Iterator[Section]:
    if right_items.is_item_set(options.data) and not (options.small_talk or options.chatter):
        real = [name for name in options.model if name in WHEELS]
        items, faults = right_items.run(
            options.data,
            models=real,
            deadline=options.deadline,
            threads=options.threads,
            count=options.conversations,
        )
        if options.faults:
            print(*faults, sep="\n", file=sys.stderr)
        yield items
        return
    small = options.small_talk or options.chatter
    talks = (
        small_talk(said_by_user=CHATTER[1::2] if options.chatter else SAID["user"])
        if small
        else sample(load(options.data), options.conversations)
    )
    results = []
    for name in options.model:
        results.append(measure(name, talks, threads=options.threads, deadline=options.deadline, record=options.record))
        if options.faults:
            print(*(f"{name}: {fault}" for fault in results[-1].faults), sep="\n", file=sys.stderr)
    if small:
        yield small_talk_section(results)
        return
    yield Section(f"{len(talks)} conversations: parts", [row for result in results for row in part_rows(result)])
    yield Section("records, prompts and cost", [total_row(result) for result in results], _met(results))
    yield Section("dropped", [dropped_row(result) for result in results])


def sample(talks: Sequence[Conversation], count: int | None) -> list[Conversation]:
    """Returns `count` conversations, of all languages in turn."""
    if count is None:
        return list(talks)
    places: Counter[str] = Counter()
    turns: dict[str, int] = {}
    for talk in talks:
        turns[talk.id] = places[talk.language]
        places[talk.language] += 1
    return sorted(talks, key=lambda talk: turns[talk.id])[:count]


def measure(
    name: str, talks: Sequence[Conversation], *, threads: int = 1, deadline: float = 300, record: Path | None = None
) -> Result:
    """Lets one model learn from the conversations, in a service of its own."""
    result = Result(name)
    with ExitStack() as stack:
        settings: dict[str, str] = {}
        made_up = MadeUpModel(SAYS[name]) if name in SAYS else None
        if name != "none":
            url, result.meter = stack.enter_context(_served(name, made_up, threads, record))
            settings = {"RECALLD_LLM_BASE_URL": url, "RECALLD_LLM_MODEL": name, "RECALLD_LLM_TIMEOUT_SECONDS": "600"}
        if name in WHEELS:
            settings["RECALLD_LLM_CONTEXT_TOKENS"] = str(CONTEXT_TOKENS)
        server = stack.enter_context(recalld(stack.enter_context(folder()), jobs=True, **settings))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=REQUEST_SECONDS))
        learner = Learner(client, deadline)
        for talk in talks:
            if made_up is not None:
                made_up.current = talk
            outcome = learner.learn(talk)
            result.outcomes.append(outcome)
            judge(talk, outcome.derived, result.judged)
            _judge_lessons(learner, talk, result)
            print(f"{name}: {talk.id}: {outcome.status} after {outcome.seconds:.1f} s", file=sys.stderr, flush=True)
            if record is not None:
                _note(record / f"{name}.results.jsonl", talk, outcome)
    return result


def _note(path: Path, talk: Conversation, outcome: Outcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps(
                {"id": talk.id, **asdict(replace(outcome, dropped=Counter())), "dropped": outcome.dropped},
                ensure_ascii=False,
            )
            + "\n"
        )


@contextmanager
def _served(name: str, made_up: MadeUpModel | None, threads: int, record: Path | None) -> Iterator[tuple[str, Meter]]:
    with ExitStack() as stack:
        answer: Answerer = made_up or passed_on(stack.enter_context(real_model(name, threads)))
        if record is not None and made_up is None:
            answer = recorded(answer, record / f"{name}.answers.jsonl")
        yield stack.enter_context(metered(answer))


def _judge_lessons(learner: Learner, talk: Conversation, result: Result) -> None:
    tally = result.judged.parts["experience"]
    expected = [each for each in (*talk.must, *talk.may) if each.part == "experience"]
    for lesson in learner.lessons(talk):
        tally.stored += 1
        wrong = invented(talk, lesson)
        tally.invented += wrong is not None
        tally.right += wrong is None and any(each.met_by(lesson.text) for each in expected)
        result.judged.faults.append(f"{talk.id}: lesson ({wrong or 'not wrong'}): {lesson.text}")


def part_rows(result: Result) -> list[Row]:
    rows: list[Row] = []
    for part, tally in result.judged.parts.items():
        if tally.must or tally.stored:
            row: Row = {"model": result.model, "part": part, "must": tally.must, "found": tally.found}
            row |= {"recall": _share(tally.recall), "in any part": tally.found_anywhere, "stored": tally.stored}
            row |= {"right": tally.right, "precision": _share(tally.precision), "invented": tally.invented}
            rows.append({**row, "quoted elsewhere": tally.misquoted})
    return rows


def total_row(result: Result) -> Row:
    outcomes, meter, parts = result.outcomes, result.meter, result.judged.parts
    needs, forbidden = sum(one.needs for one in outcomes), sum(one.forbidden for one in outcomes)
    must, found = sum(each.must for each in parts.values()), sum(each.found for each in parts.values())
    row: Row = {"model": result.model, "recall": _share(found / must if must else None)}
    row |= {"junk": _share(result.judged.junk), "invented": result.judged.invented}
    row |= {"needed in prompts": f"{sum(one.needs_met for one in outcomes)} of {needs}"}
    row |= {"forbidden in prompts": f"{sum(one.forbidden_said for one in outcomes)} of {forbidden}"}
    row |= {"unfinished": sum(one.status != "succeeded" for one in outcomes)}
    if meter is not None:
        each = max(1, len(outcomes))
        row |= {"calls": round(meter.calls / each, 2), "tokens in": round(meter.tokens_in / each)}
        row |= {"cached": round(meter.cached_tokens / each), "tokens out": round(meter.tokens_out / each)}
        row |= {"model s": round(meter.seconds / each, 1)}
    return {**row, "s": round(sum(one.seconds for one in outcomes) / max(1, len(outcomes)), 1)}


def dropped_row(result: Result) -> Row:
    dropped = sum((one.dropped for one in result.outcomes), Counter[str]())
    return {"model": result.model, "dropped": dropped.total(), **dict(dropped.most_common())}


def small_talk_section(results: Sequence[Result]) -> Section:
    rows: list[Row] = []
    met = True
    for result in results:
        counts = derived_by_part(result.outcomes[-1:])  # the records of one user add up over the sessions
        derived = sum(counts[part] for part in ("memory", "fact", "profile")) + result.judged.parts["experience"].stored
        met = met and derived <= ENOUGH
        row: Row = {"model": result.model, "derived": derived, "target": ENOUGH}
        row |= {part: counts[part] for part in ("memory", "fact", "profile")}
        rows.append({**row, "calls": result.meter.calls if result.meter else 0})
    return Section(f"{TURNS} turns of small talk", rows, met)


def _met(results: Sequence[Result]) -> bool:
    """Returns whether nothing of the right model's was invented. What a model that lies twice gets past is reported."""
    return not any(result.judged.invented for result in results if result.model == "scripted")


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
