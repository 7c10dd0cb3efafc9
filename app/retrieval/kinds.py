"""The kinds of memory that the ranking tells apart: (n,) masks over the documents of a scope."""

from dataclasses import dataclass

import numpy as np

from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import (
    DATE_TERMS,
    HAS_EVENT_TIME,
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    SAID_BY_ASSISTANT,
    name_id,
)

_ASSISTANT = name_id("assistant")
SHORT_TEXT = 6
"""A text of fewer terms counts as of so many where its terms that a query repeats are counted."""
SHORT_QUESTION = 8
"""Terms of a question that tells nothing beside what it asks."""
SHORT_TURN, SHORT_REPLY = 4, 10
"""Terms of a turn that may say nothing, and of an assistant's. In Chinese 10 terms are five or six characters."""


def plain_memories(columns: Columns) -> Bools:
    """Documents that belong to no conversation."""
    return columns.derived.get(
        "plain", (columns.session, columns.speaker), lambda: (columns.session < 0) | (columns.speaker == 0)
    )


def assistants(columns: Columns) -> Bools:
    """Turns of an assistant without a name of its own."""
    said = columns.flags & SAID_BY_ASSISTANT != 0
    assistant: Bools = ~plain_memories(columns) & said & (columns.speaker == _ASSISTANT)
    return assistant


def questions(columns: Columns) -> Bools:
    """Turns that are questions."""
    plain = plain_memories(columns)
    return columns.derived.get("questions", (plain, columns.flags), lambda: ~plain & (columns.flags & IS_QUESTION != 0))


@dataclass(frozen=True, slots=True)
class TurnKinds:
    """What the texts of a scope tell of turns that answer nothing, whatever the query."""

    questions: Bools
    short_questions: Bools
    short: Ints
    """Indices of the turns of a few terms, without a number or a time."""
    repeated_terms: Floats
    """What `repeats` divides by, as a share of a text's own terms: those of its date are not its own."""


def turn_kinds(columns: Columns) -> TurnKinds:
    sources = columns.session, columns.speaker, columns.flags, columns.length
    return columns.derived.get("turns", sources, lambda: _turns(columns))


def _turns(columns: Columns) -> TurnKinds:
    flags, question = columns.flags, questions(columns)
    own = columns.length - np.float32(DATE_TERMS) * (flags & HAS_EVENT_TIME != 0)
    few = own <= np.where(assistants(columns), SHORT_REPLY, SHORT_TURN)
    short = ~plain_memories(columns) & few & (flags & HAS_NUMBER_OR_TIME_WORD == 0)
    repeated = np.maximum(columns.length, SHORT_TEXT) / np.maximum(own, 1)
    return TurnKinds(question, question & (own <= SHORT_QUESTION), np.flatnonzero(short), repeated.astype(np.float32))
