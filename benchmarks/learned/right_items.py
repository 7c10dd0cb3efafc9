"""What becomes of right items that are worded as a good model words them, and of wrong ones that tempt.

A set is a JSON file of conversations: {"id", "language", "user_id", "user_name", "started_at", "messages": [{"role",
"content", "tool_calls", "tool_call_id"}], "right": [item], "wrong": [item], "must_not": [{"words", "unless"}],
"prompt_checks": […]}. An item has `part`, `quote`, `about` ({"who", "whom"}), `certainty`, `holds`, the fields of its
part and `support`: whether its quote supports it. A wrong item has `lied`: the fields of a model that lies about it.

Made-up models answer with these items: the right one with all of them, their true fields and an honest second look;
the liar with the wrong ones, lied fields and a second look that objects to nothing; `echo` with every line.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from app.core.language import place_of, sentences
from benchmarks.harness import ROOT, Row, Section, folder, recalld
from benchmarks.learned.judging import Derived
from benchmarks.learned.learning_run import Learner
from benchmarks.learned.made_up_models import echo
from benchmarks.learned.meter import Answerer, Json, completion, metered, passed_on
from benchmarks.learned.real_models import real_model
from benchmarks.learned.sets import Conversation, Forbidden, PromptCheck

DEV = ROOT / "benchmarks" / "data" / "learning" / "dev.json"
SAYS = {"memory": "content", "fact": "object", "profile": "value", "experience": "text"}
"""The field of an item that a record is recognised by."""

Say: TypeAlias = Callable[["ItemSet"], list[Json]]


@dataclass(frozen=True, slots=True)
class ItemSet:
    """One conversation with its items."""

    talk: Conversation
    user_name: str
    right: Sequence[Json]
    wrong: Sequence[Json]


def load(path: Path) -> list[ItemSet]:
    """Returns the conversations of a set."""
    return [_loaded(given) for given in json.loads(path.read_text(encoding="utf-8"))["conversations"]]


def is_item_set(path: Path) -> bool:
    """Returns whether a file is a set of this kind."""
    given = json.loads(path.read_text(encoding="utf-8"))["conversations"]
    return bool(given) and "right" in given[0]


def _loaded(given: Json) -> ItemSet:
    talk = Conversation(
        id=given["id"],
        language=given["language"],
        user_id=given["user_id"],
        started_at=datetime.fromisoformat(given["started_at"]),
        messages=tuple(given["messages"]),
        must=(),
        may=(),
        must_not=tuple(Forbidden(tuple(each["words"]), tuple(each.get("unless", ()))) for each in given["must_not"]),
        prompt_checks=tuple(map(_check, given["prompt_checks"])),
    )
    return ItemSet(talk, given["user_name"], given["right"], given["wrong"])


def _check(given: Json) -> PromptCheck:
    unless = tuple(given.get("forbids_unless", ()))
    forbids = given["forbids"] if all(isinstance(words, list) for words in given["forbids"]) else [given["forbids"]]
    needs = tuple(tuple(words) for words in given["needs"])
    return PromptCheck(given["query"], needs, tuple(Forbidden(tuple(words), unless) for words in forbids if words))


# --- The models -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """How a model answers: the items, what it says of them in their fields, and whether its second look is honest."""

    model: str
    name: str
    say: Say
    honest: bool = False
    verify: bool = True


def _item(item: Json, fields: Json) -> Json:
    """Returns an item as a model gives it: a lesson, or a statement with `fields`, what it says of itself."""
    part, about, corrected = item["part"], fields["about"], fields["holds"] == "corrected"
    said: Json = {
        "quote": item["quote"],
        "certainty": "corrected" if corrected else fields["certainty"],
        "holds": {"past": "then", "corrected": "now"}.get(fields["holds"], fields["holds"]),
    }
    if part == "experience":
        who = "work" if about["who"] == "nobody" else "person"
        return {**said, "about": who, "kind": item["kind"], "text": item["text"]}
    subject = "user" if about["who"] == "user" else about.get("whom") or about["who"]
    said |= {"subject": subject, "kind": item.get("memory_type", "fact")}
    if part == "memory":
        return {**said, "text": item["content"], "importance": item["importance"]}
    if part == "fact":
        said |= {"subject": item["subject"], "predicate": item["predicate"], "object": item["object"]}
        text = f"{item['subject']} {item['predicate'].replace('_', ' ')} {item['object']}"
        return {**said, "text": text, "cardinality": item["cardinality"], "at": item["valid_from"]}
    text = f"{subject}: {item['field']}: {item['value']}"
    return {
        **said,
        "text": text,
        "profile_field": item["field"],
        "predicate": item["topic"],
        "object": item["value"],
    }


def _without_fields(talk: ItemSet, item: Json) -> Json:
    """Returns an item with fields that say nothing: those that its part keeps."""
    role = talk.talk.messages[item["quote_from"]]["role"]
    promised = item["part"] == "memory" and role != "user"
    of_user = item["part"] == "profile" or (item["part"] == "fact" and item["subject"] == talk.user_name)
    who = "nobody" if item["part"] == "experience" else "user" if of_user else "other"
    holds = "planned" if promised else "now"
    return _item(item, {"about": {"who": who, "whom": None}, "certainty": "stated", "holds": holds})


def all_with_blank_fields(talk: ItemSet) -> list[Json]:
    """Returns all items with fields that let each of them pass."""
    return [_without_fields(talk, item) for item in (*talk.right, *talk.wrong)]


def all_with_true_fields(talk: ItemSet) -> list[Json]:
    """Returns all items with their true fields."""
    return [_item(item, item) for item in (*talk.right, *talk.wrong)]


def wrong_with_lied_fields(talk: ItemSet) -> list[Json]:
    """Returns the wrong items with fields that lie about them."""
    return [_item(item, item["lied"]) for item in talk.wrong]


def every_line(talk: ItemSet) -> list[Json]:
    """Returns every line as a statement that makes a memory, a fact and an entry of the profile."""
    told = echo(talk.talk)
    return [*told["statements"], *told.get("lessons", ())]


STAGES = (
    Stage("right", "quote and numbers", all_with_blank_fields),
    Stage("right", "+ fields", all_with_true_fields),
    Stage("right", "+ second look", all_with_true_fields, honest=True),
    Stage("right", "second look off", all_with_true_fields, verify=False),
    Stage("liar", "fields and second look lie", wrong_with_lied_fields),
    Stage("echo", "every line", every_line),
)


@dataclass(slots=True)
class ItemModel:
    """Answers as a stage says. `current` is the conversation that is being read."""

    stage: Stage
    current: ItemSet | None = None

    def __call__(self, body: Json) -> Json:
        """Returns the answer to a request: the parts that its schema asks for."""
        assert self.current is not None
        asked = body["response_format"]["json_schema"]
        if asked["name"] == "SecondLook":
            return completion(json.dumps({"unsupported": self._objections(body)}), body)
        told: Json = {name: [] for name in asked["schema"]["properties"]}
        for item in self.stage.say(self.current):
            name = "statements" if "subject" in item else "lessons"
            if name in told:
                told[name].append(item)
        return completion(json.dumps(told, ensure_ascii=False), body)

    def _objections(self, body: Json) -> list[Json]:
        assert self.current is not None
        if not self.stage.honest:
            return []
        data, _ = json.JSONDecoder().raw_decode(body["messages"][1]["content"])
        wrong = {(one["quote"], one["text"]): item["why"] for item in self.current.wrong for one in [_item(item, item)]}
        shown = ((wrong.get((one.get("quote"), one.get("text"))), one["number"]) for one in data["items"])
        return [{"why": why, "number": number} for why, number in shown if why is not None]


# --- Measuring --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Result:
    """What became of the items of all conversations."""

    emitted: int = 0
    kept: int = 0
    as_worded: int = 0
    wrong: int = 0
    wrong_stored: int = 0
    stored: int = 0
    forbidden: list[str] = field(default_factory=list)
    small_talk: int = 0
    calls: int = 0
    needs: int = 0
    needs_met: int = 0
    forbids: int = 0
    forbids_said: int = 0
    unfinished: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)


def measure(stage: Stage, sets: Sequence[ItemSet], deadline: float) -> Result:
    """Lets a made-up model answer, in a service of its own."""
    model = ItemModel(stage)
    return _measured(model, model, sets, deadline, {"RECALLD_LLM_VERIFY": str(stage.verify).lower()})


def measure_real(name: str, sets: Sequence[ItemSet], deadline: float, threads: int) -> Result:
    """Lets a real model learn from the conversations. What it finds in its own words is not counted as kept."""
    with real_model(name, threads) as url:
        settings = {"RECALLD_LLM_TIMEOUT_SECONDS": "600", "RECALLD_LLM_CONTEXT_TOKENS": "4096"}
        return _measured(passed_on(url), None, sets, deadline, settings)


def _measured(
    answer: Answerer, made_up: ItemModel | None, sets: Sequence[ItemSet], deadline: float, more: Mapping[str, str]
) -> Result:
    result = Result()
    with ExitStack() as stack:
        url, meter = stack.enter_context(metered(answer))
        settings = {"RECALLD_LLM_BASE_URL": url, "RECALLD_LLM_MODEL": "model", **more}
        server = stack.enter_context(recalld(stack.enter_context(folder()), jobs=True, **settings))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=120))
        learner = Learner(client, deadline)
        for conversation in sets:
            if made_up is not None:
                made_up.current = conversation
            talk = conversation.talk
            client.patch(f"/v1/users/{talk.user_id}/profile", json={"name": conversation.user_name}).raise_for_status()
            outcome = learner.learn(talk)
            records = [one for one in (*outcome.derived, *learner.lessons(talk)) if not _is_name(one, conversation)]
            _count(conversation, records, result)
            result.needs, result.needs_met = result.needs + outcome.needs, result.needs_met + outcome.needs_met
            result.forbids += outcome.forbidden
            result.forbids_said += outcome.forbidden_said
            result.unfinished += outcome.status != "succeeded"
            result.dropped += outcome.dropped
        result.calls = meter.calls
    return result


def _is_name(record: Derived, conversation: ItemSet) -> bool:
    """Returns whether a record is the name that the profile had from the beginning."""
    name = conversation.user_name
    return record.text in (f"name {name}", f"user name {name}", f"user has name {name}")


def _count(conversation: ItemSet, records: Sequence[Derived], result: Result) -> None:
    result.stored += len(records)
    if not (conversation.right or conversation.wrong):
        result.small_talk += len(records)
        result.forbidden += [f"{conversation.talk.id}: small talk: {record.part}: {record.text}" for record in records]
    for item in conversation.right:
        worded = any(_is(item, record) for record in records)
        kept = worded or any(_holds_sentence(conversation, item, record) for record in records)
        result.emitted, result.kept = result.emitted + 1, result.kept + kept
        result.as_worded += worded
        if not worded:
            fate = "as said" if kept else "lost"
            result.lost.append(f"{conversation.talk.id}: {fate}: {item['part']}: {item[SAYS[item['part']]]}")
    for item in conversation.wrong:
        stored = any(_is(item, record) for record in records)
        result.wrong, result.wrong_stored = result.wrong + 1, result.wrong_stored + stored
        if stored:
            result.lost.append(f"{conversation.talk.id}: wrong: {item['part']}: {item[SAYS[item['part']]]}")
    said = {sentence for message in conversation.talk.messages for sentence in sentences(message["content"] or "")}
    for record in records:
        if record.text not in said and any(forbidden.met_by(record.text) for forbidden in conversation.talk.must_not):
            result.forbidden.append(f"{conversation.talk.id}: {record.part}: {record.text}")


def _is(item: Json, record: Derived) -> bool:
    """Returns whether a record says an item as the model worded it."""
    if record.part != item["part"]:
        return False
    said = str(item[SAYS[item["part"]]])
    if item["part"] == "fact":
        subject = item["subject"] in record.text or record.text.startswith("user ")
        return record.value == said and subject and item["predicate"].replace("_", " ") in record.text
    return record.value == said if item["part"] == "profile" else record.text == said


def _holds_sentence(conversation: ItemSet, item: Json, record: Derived) -> bool:
    """Returns whether a memory keeps the sentence that an item quotes: it is that sentence, or cites words of it."""
    if record.part != "memory":
        return False
    if place_of(item["quote"], record.text) is not None:
        return True
    said = sentences(conversation.talk.messages[item["quote_from"]]["content"])
    return any(place_of(item["quote"], part) and place_of(record.quote or "", part) for part in said)


# --- Tables -----------------------------------------------------------------------------------------------------------

KEPT, WORDED = 0.97, 0.90
"""What the right model's second look has to keep of its right items, in all and as it words them."""


def section(title: str, results: Mapping[tuple[str, str], Result]) -> Section:
    """Returns one table, with a row for each model and stage."""
    rows: list[Row] = []
    met = True
    for (model, stage), result in results.items():
        row: Row = {"model": model, "stage": stage}
        if model == "right":
            row |= {"kept": _share(result.kept, result.emitted), "as worded": _share(result.as_worded, result.emitted)}
        row |= {"wrong stored": f"{result.wrong_stored} of {result.wrong}", "forbidden": len(result.forbidden)}
        row |= {"small talk": result.small_talk, "stored": result.stored, "calls": result.calls}
        row |= {"needed in prompts": f"{result.needs_met} of {result.needs}"}
        row |= {"forbidden in prompts": f"{result.forbids_said} of {result.forbids}", "unfinished": result.unfinished}
        rows.append({**row, **dict(result.dropped.most_common())})
        if (model, stage) == ("right", "+ second look"):
            met = result.kept >= KEPT * result.emitted and result.as_worded >= WORDED * result.emitted
            met = met and not (result.forbidden or result.small_talk or result.wrong_stored)
    return Section(title, rows, met)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else ""


def run(path: Path, *, models: Sequence[str], deadline: float, threads: int, count: int | None) -> tuple[Section, Any]:
    """Measures all stages of the made-up models, and the real models of `models`, with a set. Returns the table, and
    what was lost or forbidden in words."""
    sets = load(path)[:count]
    results = {(stage.model, stage.name): measure(stage, sets, deadline) for stage in STAGES}
    for name in models:
        results[name, "real"] = measure_real(name, sets, deadline, threads)
    faults = [
        f"{model}, {stage}: {fault}"
        for (model, stage), result in results.items()
        for fault in (*(result.lost if model == "right" else ()), *(f"forbidden: {text}" for text in result.forbidden))
    ]
    return section(f"{len(sets)} conversations: items", results), faults
