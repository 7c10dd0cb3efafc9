"""What the ranking distinguishes documents by, as masks of shape (n,) over those of a scope: the kinds of memory (plain
memories and turns of an assistant; the others are turns of a person), and, across the kinds, questions and turns that
answer nothing (echoes and fillers)."""

from dataclasses import dataclass
from typing import TypeAlias

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
"""Minimum length, in terms, that a text counts with when the query terms that it repeats are counted."""
FEW_TERMS = 4
"""Minimum number of terms that a query counts with when repeated terms are counted.

A short text that repeats one or two words of the query does not ask the same. SHORT_TEXT is the like for texts.
"""
SHORT_QUESTION = 12
"""Maximum terms of a question that states nothing beside what it asks."""
SHORT_TURN, SHORT_REPLY = 4, 10
"""Maximum terms of a turn, and of an assistant's turn, that may say nothing.

In Chinese 10 terms are five or six characters.
"""


def plain_memories(columns: Columns) -> Bools:
    """Returns the mask of documents that belong to no conversation: they have no session, or nobody says them."""
    return columns.derived.get(
        "plain", (columns.session, columns.speaker), lambda: (columns.session < 0) | (columns.speaker == 0)
    )


MaskOrShare: TypeAlias = Bools | float
"""The mask of plain memories, or one number for all documents: 1.0 if all are plain, 0.0 if none is."""


def plain_or_all(columns: Columns) -> MaskOrShare:
    """Returns `plain_memories`, or one number if all documents are alike."""
    plain = plain_memories(columns)
    return columns.derived.get(
        "plain or all", (plain,), lambda: plain if len(np.unique(plain)) != 1 else float(plain[0])
    )


def assistants(columns: Columns) -> Bools:
    """Returns the mask of turns of an assistant that has no name of its own."""
    plain = plain_memories(columns)
    return columns.derived.get(
        "assistants",
        (plain, columns.flags, columns.speaker),
        lambda: ~plain & (columns.flags & SAID_BY_ASSISTANT != 0) & (columns.speaker == _ASSISTANT),
    )


def questions(columns: Columns) -> Bools:
    """Returns the mask of turns that are questions."""
    plain = plain_memories(columns)
    return columns.derived.get("questions", (plain, columns.flags), lambda: ~plain & (columns.flags & IS_QUESTION != 0))


@dataclass(frozen=True, slots=True)
class TurnKinds:
    """Query-independent properties of turns that may answer nothing."""

    short_questions: Bools
    short: Ints
    """Indices of turns of a few terms, without a number or a time."""
    asking: Ints
    """Indices of `questions`."""
    per_length: Floats
    """1 / the number of terms of each of them, without those of its date."""


def turn_kinds(columns: Columns) -> TurnKinds:
    """Returns the turn kinds of a scope. They are computed once for the same columns."""

    def compute() -> TurnKinds:
        flags, question = columns.flags, questions(columns)
        own = columns.length - np.float32(DATE_TERMS) * (flags & HAS_EVENT_TIME != 0)
        few = own <= np.where(assistants(columns), SHORT_REPLY, SHORT_TURN)
        short = np.flatnonzero(~plain_memories(columns) & few & (flags & HAS_NUMBER_OR_TIME_WORD == 0))
        asking = np.flatnonzero(question)
        per_length = np.reciprocal(np.maximum(own[asking], 1), dtype=np.float32)
        return TurnKinds(question & (own <= SHORT_QUESTION), short, asking, per_length)

    sources = columns.session, columns.speaker, columns.flags, columns.length
    return columns.derived.get("turns", sources, compute)


def echoes(columns: Columns, nearest: float) -> Ints:
    """Returns the indices of questions in conversations that ask what the query asks. The share of common words is not
    weighed by idf: the more often a question was asked, the less its words would count."""
    turns = turn_kinds(columns)
    is_echo = columns.cosine >= np.float32(nearest)
    is_echo &= turns.short_questions
    share_of_question = np.add.reduce(columns.term_counts[:, turns.asking], axis=0) * turns.per_length
    alike = share_of_question >= np.float32(0.6)
    at, share_of_question = turns.asking[alike], share_of_question[alike]
    if len(at):
        share_of_query = np.count_nonzero(columns.term_counts[:, at], axis=0) / len(columns.term_counts)
        nothing_else = (share_of_query >= 0.6) & (share_of_question >= 0.75)
        is_echo[at] |= nothing_else | turns.short_questions[at] & (share_of_query >= 0.8)
    indices: Ints = is_echo.nonzero()[0]
    return indices


def fillers(columns: Columns) -> Ints:
    """Returns the indices of turns that say no more than "Noted." or "Of course I do!": of a few words, hardly any of
    which are in the query."""
    short = turn_kinds(columns).short
    if not len(short):
        return short
    indices: Ints = short[3 * np.count_nonzero(columns.term_counts[:, short], axis=0) <= len(columns.term_counts)]
    return indices
