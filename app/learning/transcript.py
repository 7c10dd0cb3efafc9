"""A conversation as the model is given it: JSON, so that nothing said in it can pass for anything else. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from app.core import tokens
from app.core.process import off_loop
from app.core.prompt_fencing import strip_served
from app.settings import TrustSettings
from app.storage.schema import Doc

READ_ROLES = ("user", "assistant")
"""What tools and system prompts say is not the user's word, and is not learned from."""
CHUNK_TOKENS = 6_000
MESSAGE_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message of a conversation, without what the service served itself. `trust`: 0 to 1."""

    seq: int
    role: str
    name: str | None
    at: str
    text: str
    trust: float = 1.0

    def shown(self) -> Doc:
        named = {"name": self.name} if self.name else {}
        return {"seq": self.seq, "role": self.role, **named, "at": self.at, "text": self.text}


def read(messages: Sequence[Doc], trust: TrustSettings) -> list[TranscriptLine]:
    """The messages of users and assistants that have a text, in order."""
    lines = [_line(doc, trust.of(doc["role"])) for doc in messages if doc["role"] in READ_ROLES]
    return [line for line in lines if line.text]


def _line(doc: Doc, trust: float) -> TranscriptLine:
    text = strip_served(doc["text"]).strip()[:MESSAGE_CHARS]
    return TranscriptLine(doc["seq"], doc["role"], doc["name"], doc["timestamp"], text, trust)


async def chunked(lines: Sequence[TranscriptLine]) -> list[list[TranscriptLine]]:
    """`chunks`, off the event loop where they are long."""
    return await off_loop(sum(len(line.text) for line in lines), lambda: list(chunks(lines)))


def chunks(lines: Sequence[TranscriptLine], limit: int = CHUNK_TOKENS) -> Iterator[list[TranscriptLine]]:
    """Runs of at most `limit` tokens, a longer message being one by itself."""
    chunk: list[TranscriptLine] = []
    size = 0
    for line in lines:
        cost = tokens.count(line.text)
        if chunk and size + cost > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += cost
    if chunk:
        yield chunk


def digest(lines: Sequence[TranscriptLine], *more: str) -> str:
    """The same for the same conversation, asked the same way."""
    said = orjson.dumps([[line.shown() for line in lines], *more])
    return blake2b(said, digest_size=16).hexdigest()


def data(lines: Sequence[TranscriptLine], **known: Any) -> str:
    return orjson.dumps({**known, "conversation": [line.shown() for line in lines]}).decode()
