"""Conversations with what must, may and must not be learned from them.

A set is a JSON file: {"conversations": [{"id", "language", "user_id", "started_at", "messages": [{"role", "content"}],
"must": [{"part", "about", "any_of": [["words"]], "quote_from"}], "may": […], "must_not": [{"words", "unless"}],
"prompt_checks": [{"query", "needs": [["words"]], "forbids": [["words"]], "forbids_unless": ["words"]}]}]}

An entry of `must` or `may` is met by a text that has all words of one of its alternatives. A text is forbidden if it
has all `words` of an entry of `must_not` and none of `unless`. `quote_from` is the place of the message that says it.
A prompt has to hold one word of each list in `needs`. It must not say all words of a list in `forbids`, unless beside a
word of `forbids_unless`.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from app.core.language import UNSPACED, fold

Words: TypeAlias = tuple[str, ...]

PARTS = ("memory", "fact", "profile", "summary", "experience")
TURN = timedelta(minutes=1)
"""The time between two messages."""
WHOLE_WORD = 3
"""A word of so many letters has to stand in the text as a whole word."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ENDING = re.compile(r"n?'\w{1,2}")
"""What stands at the end of a word, such as "n't" in "don't" and "'d" in "I'd"."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What must or may be learned."""

    part: str
    about: str
    any_of: tuple[Words, ...]
    quote_from: int | None

    def met_by(self, text: str) -> bool:
        return any(says(text, words) for words in self.any_of)


@dataclass(frozen=True, slots=True)
class Forbidden:
    """What must not be learned."""

    words: Words
    unless: Words

    def met_by(self, text: str) -> bool:
        return says(text, self.words) and not any(says(text, (word,)) for word in self.unless)


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """What the prompt of a new session has to hold, and what no line of it may say."""

    query: str
    needs: tuple[Words, ...]
    forbids: tuple[Forbidden, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of one user with one agent."""

    id: str
    language: str
    user_id: str
    started_at: datetime
    messages: tuple[Mapping[str, Any], ...]
    must: tuple[Expected, ...]
    may: tuple[Expected, ...]
    must_not: tuple[Forbidden, ...]
    prompt_checks: tuple[PromptCheck, ...]

    @property
    def ended_at(self) -> datetime:
        return self.started_at + TURN * len(self.messages)

    @property
    def text(self) -> str:
        return "\n".join(message["content"] or "" for message in self.messages)


def says(text: str, words: Iterable[str]) -> bool:
    """Returns whether a text has all words, in any order. Case and accents do not count.

    A word of more than three letters may be a part of a longer one: "allerg" stands in "allergic". "n't" and "'d" stand
    at the end of one.
    """
    there = _folded(text)
    return all(_pattern(word).search(there) for word in words)


@lru_cache(maxsize=1 << 12)
def _folded(text: str) -> str:
    return " ".join(fold(text.replace("\u2019", "'")).split())


@lru_cache(maxsize=1 << 12)
def _pattern(word: str) -> re.Pattern[str]:
    plain = _folded(word)
    if len(plain) > WHOLE_WORD or _UNSPACED.search(plain):
        return re.compile(re.escape(plain))
    start = "" if _ENDING.fullmatch(plain) else r"(?<!\w)"
    return re.compile(rf"{start}{re.escape(plain)}(?!\w)")


def load(path: Path) -> list[Conversation]:
    """Returns the conversations of a set. Ends the program and names the conversation if one has no such shape."""
    given = json.loads(path.read_text(encoding="utf-8"))["conversations"]
    return [_conversation(one, at) for at, one in enumerate(given)]


def _conversation(one: Mapping[str, Any], at: int) -> Conversation:
    try:
        return Conversation(
            id=one["id"],
            language=one["language"],
            user_id=one["user_id"],
            started_at=datetime.fromisoformat(one["started_at"]),
            messages=tuple({"role": each["role"], "content": each["content"]} for each in one["messages"]),
            must=tuple(_expected(each) for each in one["must"]),
            may=tuple(_expected(each) for each in one["may"]),
            must_not=tuple(Forbidden(tuple(each["words"]), tuple(each.get("unless", ()))) for each in one["must_not"]),
            prompt_checks=tuple(_check(each) for each in one["prompt_checks"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"conversation {at} ({one.get('id')}): {type(error).__name__}: {error}")


def _expected(one: Mapping[str, Any]) -> Expected:
    if one["part"] not in PARTS:
        raise ValueError(f"part is {one['part']!r}, not one of {', '.join(PARTS)}")
    return Expected(one["part"], one.get("about") or "user", _alternatives(one["any_of"]), one.get("quote_from"))


def _check(one: Mapping[str, Any]) -> PromptCheck:
    unless = tuple(one.get("forbids_unless", ()))
    forbids = tuple(Forbidden(words, unless) for words in _alternatives(one["forbids"]))
    return PromptCheck(one["query"], _alternatives(one["needs"]), forbids)


def _alternatives(given: Sequence[Sequence[str]]) -> tuple[Words, ...]:
    return tuple(tuple(words) for words in given)
