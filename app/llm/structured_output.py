"""Reads a model's answer as the shape that was asked for. Pure functions."""

import json
import re
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

T = TypeVar("T", bound=BaseModel)

SHOWN_ERRORS = 8
_REFUSED = frozenset({"title", "default", "minLength", "maxLength", "pattern"})
_FENCE = re.compile(r"\A\s*```[a-z]*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Malformed(Exception):
    """The answer does not have the requested shape. The message has the reason and quotes nothing of the answer."""


class InvalidReply(Exception):
    """The model refuses to answer."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    total_tokens: int | None = None


class Completion(BaseModel):
    """The parts of a chat completion that this service reads."""

    model_config = ConfigDict(extra="ignore")

    choices: list[_Choice]
    usage: _Usage | None = None


def completion(body: bytes) -> Completion:
    """Parses the body of a response. Raises Malformed if it is no chat completion."""
    try:
        answer = Completion.model_validate_json(body)
    except ValidationError:
        raise Malformed("it is not a chat completion") from None
    if not answer.choices:
        raise Malformed("it has no choices")
    return answer


def text_of(answer: Completion) -> str:
    """Returns the text of the answer. Raises InvalidReply, or Malformed if it was cut off or is empty."""
    choice = answer.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise InvalidReply("the model refused to answer")
    if choice.finish_reason == "length":
        raise Malformed("it was cut off at the most tokens that an answer may have: give a shorter one")
    if not (choice.message.content or "").strip():
        raise Malformed("it is empty")
    return str(choice.message.content)


def parse(text: str, shape: type[T]) -> T:
    """Parses an answer as `shape`, without thoughts before it and a code fence around it.

    Raises Malformed with the first errors by field.
    """
    text = _THOUGHTS.sub("", text)
    if fenced := _FENCE.match(text):
        text = fenced[1]
    try:
        return shape.model_validate_json(text.strip().encode("utf-8", "replace"))
    except ValidationError as error:
        raise Malformed(explain(error)) from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def explain(error: ValidationError) -> str:
    """Returns the errors by field.

    It leaves out the values, which are users' text, because errors are logged and stored.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{'/'.join(map(str, error['loc'])) or 'the answer'}: {error['msg']}" for error in faults[:SHOWN_ERRORS]]
    more = f"; and {len(faults) - SHOWN_ERRORS} more" if len(faults) > SHOWN_ERRORS else ""
    return "; ".join(said) + more


def response_format(
    shape: type[BaseModel], kind: Literal["json_schema", "json_object", "none"]
) -> dict[str, Any] | None:
    """Returns the parameter `response_format` for what a server supports. `none` leaves the shape to the prompt."""
    if kind == "none":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    named = {"name": shape.__name__, "strict": True, "schema": strict_schema(shape.model_json_schema())}
    return {"type": "json_schema", "json_schema": named}


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema without keywords that OpenAI's strict mode or llama.cpp's grammars reject.

    `parse` still checks these.
    """
    kept = {word: value for word, value in schema.items() if word not in _REFUSED}
    for word in ("properties", "$defs"):
        if word in kept:
            kept[word] = {name: strict_schema(each) for name, each in kept[word].items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [strict_schema(each) for each in kept["anyOf"]]
    return kept


def schema_note(shape: type[BaseModel]) -> str:
    """Returns instructions with the schema, for servers that do not receive it as a parameter."""
    schema = json.dumps(shape.model_json_schema(), ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else. It must follow this JSON schema:\n{schema}"
