"""Renders a conversation for the model as JSON, so that no message can pose as anything else. Pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.core import tokens
from app.core.process import off_loop
from app.core.prompt_fencing import strip_served
from app.settings import TrustSettings
from app.storage.schema import Doc

READ_ROLES = ("user", "assistant")
"""Roles that are read. Output of tools and system prompts is not the user's word, and nothing is learned from it."""
CHUNK_TOKENS = 6_000
"""The limit of tokens in one request to the model."""
MESSAGE_CHARS = 8_000
"""The limit of characters of one message."""


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A message of a conversation, without text that the service itself served. `trust` is 0 to 1."""

    seq: int
    role: str
    name: str | None
    at: str
    text: str
    trust: float = 1.0

    def shown(self) -> Doc:
        """Returns the message as the model sees it."""
        named = {"name": self.name} if self.name else {}
        return {"seq": self.seq, "role": self.role, **named, "at": self.at, "text": self.text}


def read(messages: Sequence[Doc], trust: TrustSettings) -> list[TranscriptLine]:
    """Returns the messages of users and assistants that have a text, in order."""
    lines = [_line(doc, trust.of(doc["role"])) for doc in messages if doc["role"] in READ_ROLES]
    return [line for line in lines if line.text]


def _line(doc: Doc, trust: float) -> TranscriptLine:
    text = strip_served(doc["text"]).strip()[:MESSAGE_CHARS]
    return TranscriptLine(doc["seq"], doc["role"], doc["name"], doc["timestamp"], text, trust)


async def chunked(lines: Sequence[TranscriptLine]) -> list[list[TranscriptLine]]:
    """Runs `chunks`, in a thread if the text is long."""
    return await off_loop(sum(len(line.text) for line in lines), lambda: list(chunks(lines)))


def chunks(lines: Sequence[TranscriptLine], limit: int = CHUNK_TOKENS) -> Iterator[list[TranscriptLine]]:
    """Splits lines into chunks of at most `limit` tokens. A longer message is a chunk of its own."""
    return tokens.in_chunks(lines, lambda line: line.text, limit)


def data(lines: Sequence[TranscriptLine], **known: Any) -> str:
    """Returns the conversation and further data as JSON for the model."""
    return orjson.dumps({**known, "conversation": [line.shown() for line in lines]}).decode()
