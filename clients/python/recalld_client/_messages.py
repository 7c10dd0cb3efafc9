"""Messages as callers hold them, and as the service takes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, cast

from recalld_client._generated import Appended, Extracted, Memory, MessageIn, MessageRole, Operation


class Dumpable(Protocol):
    """A pydantic model, such as the message in an answer of the openai package."""

    def model_dump(self, *, exclude_none: bool = ...) -> dict[str, Any]: ...


Messages: TypeAlias = Sequence[Mapping[str, Any] | Dumpable]
"""Messages in the form of OpenAI's chat API: dicts, or the objects of the openai package."""


class Hit(TypedDict):
    """A memory that a search found. `score` is the probability that it helps, from 0 to 1."""

    memory: Memory
    score: float


class ExtractedMessages(Extracted):
    """What a language model found in messages: `items` are the memories."""

    how: Literal["extracted"]


class ExtractingMessages(Operation):
    """The operation by which a slow language model ends what it has begun."""

    how: Literal["extracting"]


class StoredMessages(Appended):
    """Messages as they were stored: `items` are the turns, `memory_ids` what was made of them."""

    how: Literal["stored"]


Added: TypeAlias = ExtractedMessages | ExtractingMessages | StoredMessages

MemoryRef: TypeAlias = str | Mapping[str, Any]
"""A memory's id, a memory, or a hit of a search."""


def as_messages(given: str | Messages, role: MessageRole = "user") -> list[MessageIn]:
    """One text, or messages, as the service takes them. Raises TypeError for anything else."""
    if isinstance(given, str):
        return [{"role": role, "content": given}]
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise TypeError(f"Give a text or a list of messages, not {type(given).__name__}.")
    return [cast(MessageIn, as_dict(message)) for message in given]


def as_dict(message: Any) -> dict[str, Any]:
    """A message, as a dict of its own. Raises TypeError."""
    if isinstance(message, Mapping):
        return dict(message)
    if hasattr(message, "model_dump"):
        return cast(dict[str, Any], message.model_dump(exclude_none=True))
    raise TypeError(f"A message is a dict with role and content, not {type(message).__name__}.")


def memory_id(of: MemoryRef) -> str:
    """The id of a memory that is given by its id, as itself or as a hit. Raises TypeError."""
    if isinstance(of, str):
        return of
    inner = of.get("memory", of)
    if "memory_id" not in inner:
        raise TypeError("Give a memory's id, a memory, or a hit of a search.")
    return str(inner["memory_id"])
