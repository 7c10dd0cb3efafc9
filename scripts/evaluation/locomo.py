"""LoCoMo conversations in the shape of their makers (Maharana et al., ACL 2024).

Each turn is a message with its speaker's name and its session's time, an image's caption appended. The adversarial
questions of category 5 name, as evidence, turns about the other person: they are questions that were never answered.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
ADVERSARIAL = 5

Place: TypeAlias = tuple[int, int]
"""Session and seq of a turn, both from 1."""


@dataclass(frozen=True, slots=True)
class Turn:
    place: Place
    speaker: str
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    category: int
    evidence: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    speakers: tuple[str, str]
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    """Those that have evidence."""
    never_said: tuple[str, ...] = ()
    """Adversarial questions: the conversation does not answer them."""


def load(path: Path) -> list[Conversation]:
    """Conversations and their questions; an evidence string may name several turns."""
    return [_conversation(raw) for raw in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(raw: dict[str, Any]) -> Conversation:
    talk, places, turns = raw["conversation"], {}, []
    numbers = sorted(int(found[1]) for key in talk if (found := re.fullmatch(r"session_(\d+)", key)))
    for number in numbers:
        at = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for seq, turn in enumerate(talk[f"session_{number}"], start=1):
            places[turn["dia_id"]] = (number, seq)
            caption = turn.get("blip_caption")
            text = f"{turn['text']} {caption}" if caption else turn["text"]
            turns.append(Turn((number, seq), turn["speaker"], text.strip(), at))
    questions = []
    for qa in raw["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(qa.get("evidence", ())))
        evidence = frozenset(places[name] for name in named if name in places)
        if qa["category"] in CATEGORIES and evidence:
            questions.append(Question(qa["question"], qa["category"], evidence))
    never_said = tuple(qa["question"] for qa in raw["qa"] if qa["category"] == ADVERSARIAL)
    speakers = (talk["speaker_a"], talk["speaker_b"])
    return Conversation(raw["sample_id"], speakers, tuple(turns), tuple(questions), never_said)
