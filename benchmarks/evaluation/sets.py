"""The sets of the evaluations: files of several shapes, read into one.

- LoCoMo as its makers publish it (Maharana et al., ACL 2024): a list of conversations. Its adversarial questions name,
  as evidence, turns about the other person: they were never answered.
- A set of messages or of facts: {"name", "conversations": [{"id", "kind": "messages" | "facts", "items",
  "questions"}]}; an item of messages is {"id", "session", "role", "name"?, "content", "timestamp"}, of facts {"id",
  "content", "timestamp"}; a question is {"query", "evidence": [item ids], "after": the number of items known when it is
  asked, "kind"}. A question without evidence was never answered.
- Plain facts, one user on each line: {"user", "facts": [{"id", "text"}], "questions": [{"query", "expected": [ids]}]}.
  Facts have no time. Each user's questions are asked of the next user, too, the last one's of the first: those were
  never answered.
- Facts with questions that they do not answer: {"worlds": [{"id", "language", "facts": [texts], "answerable":
  [{"query", "evidence": [indexes of facts]}], "never_said": [queries]}]}.
- Memories with questions about their time: {"worlds": [{"id", "now", "memories": [{"content", "event_at"}], "queries":
  [{"query", "evidence": [indexes of memories], "kind"}]}]}; all are asked at `now` (RFC 3339).
- Stories in which a user asks again and again for what they once told, benchmarks/data/echo_*.json: {"stories": [{"id",
  "language", "bot", "user_name", "told": {"role", "content"}, "told_reply", "distractors": [{"role", "content"}],
  "answer", "turns": [{"question", "reply"}]}]}. Each turn is a session of its own; messages that hold `answer` answer.
- Lives, a folder of them, as benchmarks/data/lives describes: {"name", "turns": [{"id", "session", "time", "role",
  "name", "text"}], "questions": [{"query", "kind", "time", "after": id of the last known turn, "best": [ids]}]}.
  Questions of kinds `never` and `small` have no answer.
- Plain cases, benchmarks/data/plain_cases_*.json: {"cases": [{"id", "kind", "language", "memories": [texts],
  "question", "best": [indexes], "worse": [indexes]}]}; each is a world of its own.
- Stories of our own, benchmarks/data/prompt_stories.json: {"worlds": [{"id", "language", "part": "dev" | "held_out",
  "memories", "procedures", "profile", "cases": [{"kind", "queries", "must": [texts that the prompt has to hold]}]}]};
  memories, procedures and profile are bodies of the API without their owner.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.storage.text import terms

TEXT_LIMIT = 32_000
"""Characters that the service takes for one text; a longer item is cut there."""
LOCOMO = "LoCoMo"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
ADVERSARIAL = 5
PLAIN_FACTS = "plain facts"
UNANSWERED = frozenset({"never", "small"})
ECHO_BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Item:
    """A message of a session, or a plain fact (`session` None)."""

    content: str
    time: datetime | None = None
    session: str | None = None
    role: str = "user"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    query: str
    evidence: tuple[str, ...]
    """Contents that answer it; none: it was never answered."""
    after: int
    """Items known when it is asked."""
    group: str
    """Row of the table."""
    kind: str
    now: str | None = None
    """When it is asked; None: when the world's are."""
    worse: tuple[str, ...] = ()
    """Contents that look like an answer and are wrong when it is asked."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that prepares a world; `path` may name {user_id}, `owned` bodies are sent with their owner."""

    method: str
    path: str
    body: dict[str, Any]
    owned: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """One user's memories, and what is asked about them."""

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]
    setup: tuple[Call, ...] = ()
    now: str | None = None
    """When the questions are asked; None: a second after the last known item."""
    language: str | None = None
    """ISO code, where the set says it."""

    @property
    def contents(self) -> list[str]:
        stored = (text for call in self.setup for entry in call.body.get("items", ()) if (text := entry.get("content")))
        return [*(item.content for item in self.items), *stored]


def load(path: Path, part: str = "dev") -> list[World]:
    """`part` (dev, held_out or all) selects worlds of stories; the other shapes have no parts.

    Raises ValueError for evidence that no item has."""
    if path.is_dir():
        return [_life(path.name, json.loads(file.read_text(encoding="utf-8"))) for file in sorted(path.glob("*.json"))]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return _plain_facts([json.loads(line) for line in text.splitlines()])
    raw = json.loads(text)
    if isinstance(raw, list):
        return [_locomo(conversation) for conversation in raw]
    if "conversations" in raw:
        return [_conversation(raw["name"], conversation) for conversation in raw["conversations"]]
    if "stories" in raw:
        return [_echo(path.stem, story) for story in raw["stories"]]
    if "cases" in raw:
        return [_plain_case(path.stem, case) for case in raw["cases"]]
    if "never_said" in raw["worlds"][0]:
        return [_facts(path.stem, world) for world in raw["worlds"]]
    if "queries" in raw["worlds"][0]:
        return [_timed(path.stem, world) for world in raw["worlds"]]
    return [_story(world) for world in raw["worlds"] if part in ("all", world["part"])]


def _plain_case(group: str, raw: dict[str, Any]) -> World:
    """A few memories in the order in which they were told, and one question."""
    memories: list[str] = raw["memories"]
    best, worse = (tuple(memories[index] for index in raw[name]) for name in ("best", "worse"))
    asked = Question(raw["question"], best, len(memories), group, raw["kind"], worse=worse)
    return World(raw["id"], tuple(map(Item, memories)), (asked,), language=raw["language"])


def _locomo(raw: dict[str, Any]) -> World:
    """Each turn is a message with its speaker's name and its session's time, an image's caption appended."""
    talk, places, items = raw["conversation"], dict[str, int](), list[Item]()
    for number in sorted(int(found[1]) for key in talk if (found := re.fullmatch(r"session_(\d+)", key))):
        time = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for turn in talk[f"session_{number}"]:
            places[turn["dia_id"]] = len(items)
            text = f"{turn['text']} {turn.get('blip_caption') or ''}".strip()
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            items.append(Item(text, time, str(number), role, turn["speaker"]))
    answered, never = list[Question](), list[Question]()
    for asked in raw["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(asked.get("evidence", ())))  # one string may name several turns
        evidence = tuple(items[at].content for at in sorted({places[name] for name in named if name in places}))
        if asked["category"] == ADVERSARIAL:
            never.append(Question(asked["question"], (), len(items), LOCOMO, "adversarial"))
        elif asked["category"] in CATEGORIES and evidence:
            kind = CATEGORIES[asked["category"]]
            answered.append(Question(asked["question"], evidence, len(items), LOCOMO, kind))
    return World(raw["sample_id"], tuple(items), (*answered, *never))


def _conversation(group: str, raw: dict[str, Any]) -> World:
    items = tuple(
        Item(
            item["content"][:TEXT_LIMIT],
            datetime.fromisoformat(item["timestamp"]),
            item["session"] if raw["kind"] == "messages" else None,
            item.get("role", "user"),
            item.get("name"),
        )
        for item in raw["items"]
    )
    names = [item["id"] for item in raw["items"]]
    return World(raw["id"], items, tuple(_asked(raw["id"], group, asked, names, items) for asked in raw["questions"]))


def _asked(
    world: str, group: str, raw: dict[str, Any], names: Sequence[Any], items: Sequence[Item], kind: str | None = None
) -> Question:
    """`names`: what `evidence` calls the items. Raises ValueError for evidence that no known item has."""
    after = raw.get("after", len(items))
    known = {name: item.content for name, item in zip(names[:after], items[:after], strict=True)}
    if missing := [name for name in raw["evidence"] if name not in known]:
        asked = f"{world}: {raw['query']!r}"
        raise ValueError(f"{asked} names evidence that is not known when it is asked: {missing}")
    evidence = tuple(dict.fromkeys(known[name] for name in raw["evidence"]))
    return Question(raw["query"], evidence, after, group, kind or raw["kind"])


def _plain_facts(raw: Sequence[dict[str, Any]]) -> list[World]:
    own = [_person(person) for person in raw]
    if len(own) < 2:
        return own
    others = [own[-1], *own[:-1]]
    return [
        replace(world, questions=(*world.questions, *_never_said(world, other)))
        for world, other in zip(own, others, strict=True)
    ]


def _person(raw: dict[str, Any]) -> World:
    """A question's kind says whether it shares a term with a fact that answers it, as text search has terms."""
    names, items = [fact["id"] for fact in raw["facts"]], tuple(Item(fact["text"]) for fact in raw["facts"])
    questions = []
    for each in raw["questions"]:
        asked = {"query": each["query"], "evidence": each["expected"], "kind": "no term shared"}
        question = _asked(raw["user"], PLAIN_FACTS, asked, names, items)
        if any(not set(terms(question.query)).isdisjoint(terms(text)) for text in question.evidence):
            question = replace(question, kind="a term shared")
        questions.append(question)
    return World(raw["user"], items, tuple(questions))


def _never_said(world: World, other: World) -> tuple[Question, ...]:
    return tuple(
        replace(question, evidence=(), after=len(world.items), kind="of another user") for question in other.questions
    )


def _facts(group: str, raw: dict[str, Any]) -> World:
    items, name = tuple(Item(text) for text in raw["facts"]), raw["id"]
    asked = [*raw["answerable"], *({"query": query, "evidence": ()} for query in raw["never_said"])]
    questions = (_asked(name, group, each, range(len(items)), items, raw["language"]) for each in asked)
    return World(name, items, tuple(questions))


def _life(part: str, raw: dict[str, Any]) -> World:
    items = tuple(_turn(turn) for turn in raw["turns"])
    place = {turn["id"]: at for at, turn in enumerate(raw["turns"])}
    questions = []
    for asked in raw["questions"]:
        best = () if asked["kind"] in UNANSWERED else (items[place[turn]].content for turn in asked["best"])
        known = place[asked["after"]] + 1
        worse = tuple(items[place[turn]].content for turn in asked["worse"])
        group, kind = f"lives/{part}", asked["kind"]
        questions.append(Question(asked["query"], tuple(best), known, group, kind, asked["time"], worse))
    return World(raw["name"], items, tuple(questions), language=raw["language"])


def _turn(raw: dict[str, Any]) -> Item:
    """A note is a memory of no session."""
    time = datetime.fromisoformat(raw["time"])
    if raw["role"] == "note":
        return Item(raw["text"], time)
    return Item(raw["text"], time, raw["session"], raw["role"], raw.get("name"))


def _timed(group: str, raw: dict[str, Any]) -> World:
    items = tuple(Item(each["content"], datetime.fromisoformat(each["event_at"])) for each in raw["memories"])
    questions = (_asked(raw["id"], group, asked, range(len(items)), items) for asked in raw["queries"])
    return World(raw["id"], items, tuple(questions), now=raw["now"])


def _echo(group: str, raw: dict[str, Any]) -> World:
    """Told at the first day, with other messages on the next ones; asked for from the second week on."""
    user = raw["user_name"]
    items = [
        Item(raw["told"]["content"], ECHO_BEGIN, "told", "user", user),
        Item(raw["told_reply"], ECHO_BEGIN, "told", "assistant"),
    ]
    for at, message in enumerate(raw["distractors"]):
        day, role = at // 3, message["role"]
        name = user if role == "user" else None
        items.append(Item(message["content"], ECHO_BEGIN + timedelta(days=day), f"day-{day}", role, name))
    questions = []
    for at, turn in enumerate(raw["turns"]):
        evidence = dict.fromkeys(item.content for item in items if raw["answer"].casefold() in item.content.casefold())
        questions.append(Question(turn["question"], tuple(evidence), len(items), group, raw["bot"]))
        time = ECHO_BEGIN + timedelta(days=7 + 3 * at)
        items.append(Item(turn["question"], time, f"asked-{at}", "user", user))
        items.append(Item(turn["reply"], time, f"asked-{at}", "assistant"))
    return World(raw["id"], tuple(items), tuple(questions))


def _story(raw: dict[str, Any]) -> World:
    calls = [Call("POST", "/v1/memories/batch", {"items": raw["memories"]})]
    calls += [Call("POST", "/v1/procedures", body) for body in raw.get("procedures", ())]
    if profile := raw.get("profile"):
        calls.append(Call("PUT", "/v1/users/{user_id}/profile", profile, owned=False))
    questions = tuple(
        Question(query, tuple(case["must"]), 0, case["kind"], raw["language"])
        for case in raw["cases"]
        for query in case["queries"]
    )
    return World(raw["id"], (), questions, tuple(calls))


def answerable(world: World) -> World:
    return replace(world, questions=tuple(question for question in world.questions if question.evidence))


def with_named_users(world: World, name: str) -> World:
    """Each message of a user without a name gets this one; facts and the assistant's messages stay as they are."""

    def named(item: Item) -> Item:
        unnamed = item.session is not None and item.role == "user" and item.name is None
        return replace(item, name=name) if unnamed else item

    return replace(world, items=tuple(named(item) for item in world.items))


def fewer(worlds: Sequence[World], conversations: int | None, questions: int | None) -> list[World]:
    """The first `conversations`, and of each as many questions, spread evenly over all of its questions."""
    return [replace(world, questions=_spread(world.questions, questions)) for world in worlds[:conversations]]


def _spread(questions: tuple[Question, ...], wanted: int | None) -> tuple[Question, ...]:
    if wanted is None or wanted >= len(questions):
        return questions
    return tuple(questions[at * len(questions) // wanted] for at in range(wanted))
