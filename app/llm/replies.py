"""Answers of a language model: how a shape is asked for, and how an answer is read."""

import json
import re
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from app.core.schemas import Json

T = TypeVar("T", bound=BaseModel)

ReplyFormat = Literal["json_schema", "json_object", "tools", "none"]
"""Ways to ask for a shape, from the strictest one to the prompt alone."""
FORMATS: tuple[ReplyFormat, ...] = ("json_schema", "json_object", "tools", "none")
SHOWN_ERRORS = 8
FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
TOOL = "answer"
_REFUSED = frozenset({"title", "default", "minLength", "maxLength", "pattern", "minItems", "description"})
"""Keywords that are not sent. `maxItems` is: it ends the lists of a model that would go on for ever."""
_FENCE = re.compile(r"```[a-z]*\s*\n(.*?)\n?\s*```", re.DOTALL | re.IGNORECASE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Malformed(Exception):
    """The answer does not have the requested shape. The message has the reason and quotes nothing of the answer."""


class InvalidReply(Exception):
    """The model refuses to answer."""


class CutOff(Malformed):
    """The answer reached the limit of its tokens. `text` is what there is of it."""

    def __init__(self, text: str) -> None:
        super().__init__("it was cut off at the most tokens that an answer may have")
        self.text = text


class _Function(BaseModel):
    arguments: str = ""


class _ToolCall(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    total_tokens: int | None = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: _PromptDetails | None = None


class Completion(BaseModel):
    """The parts of a chat completion that this service reads."""

    model_config = ConfigDict(extra="ignore")

    choices: list[_Choice]
    usage: _Usage | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the server's cache had, as far as it says so."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return (details.cached_tokens or 0) if details else 0


def told_of(answer: Completion) -> dict[str, int | list[str]]:
    """Returns what a trace tells of an answer: why it ended and its tokens, as far as the server says so."""
    usage = answer.usage or _Usage()
    counts = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": answer.cached_tokens or None,
    }
    known: dict[str, int | list[str]] = {name: count for name, count in counts.items() if isinstance(count, int)}
    reasons = [choice.finish_reason for choice in answer.choices if choice.finish_reason in FINISH_REASONS]
    return known | ({"gen_ai.response.finish_reasons": reasons} if reasons else {})


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
    """Returns the text of the answer, or the arguments of its tool call.

    Raises InvalidReply, CutOff, or Malformed if it is empty.
    """
    choice = answer.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise InvalidReply("the model refused to answer")
    calls = choice.message.tool_calls
    text = calls[0].function.arguments if calls else choice.message.content or ""
    if choice.finish_reason == "length":
        raise CutOff(text)
    if not text.strip():
        raise Malformed("it is empty")
    return text


def parse(text: str, shape: type[T]) -> T:
    """Parses an answer as `shape`: the JSON itself, in a code fence, or the one object in a text.

    Raises Malformed with the first errors by field.
    """
    text = _THOUGHTS.sub("", text).strip()
    if (fenced := _FENCE.search(text)) and not text.startswith("{"):
        text = fenced[1]
    elif not text.startswith(("{", "[")) and "{" in text:
        text = text[text.index("{") : text.rindex("}") + 1] if "}" in text else text
    return _validated(text.strip().encode("utf-8", "replace"), shape)


def _validated(body: bytes, shape: type[T]) -> T:
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise Malformed(explain(error)) from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def parse_cut(text: str, shape: type[T]) -> T:
    """Returns the complete items of an answer that was cut off; fields that it does not reach are empty.

    Raises Malformed if no item is complete, or if a field that is no list is cut off or missing.
    """
    text = _THOUGHTS.sub("", text)
    try:
        begun = from_json(text[text.index("{") :].encode("utf-8", "replace"), allow_partial=True)
    except ValueError:
        raise Malformed("it was cut off before its first item") from None
    lists = {name: items[:-1] if at == len(begun) - 1 else items for at, (name, items) in enumerate(begun.items())}
    complete = {name: items for name, items in lists.items() if isinstance(items, list)}
    if not any(complete.values()):
        raise Malformed("it was cut off before its first item ended")
    texts = {
        name: value for at, (name, value) in enumerate(begun.items()) if at < len(begun) - 1 and name not in complete
    }
    rest: Json = {name: [] for name, field in shape.model_fields.items() if get_origin(field.annotation) is list}
    return _validated(json.dumps({**rest, **texts, **complete}).encode(), shape)


def explain(error: ValidationError) -> str:
    """Returns the errors by field.

    It leaves out the values, which are users' text, because errors are logged and stored.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'/'.join(map(str, error['loc'])) or 'the answer'}: {error['msg']}" for error in faults[:SHOWN_ERRORS]]
    more = f"; and {len(faults) - SHOWN_ERRORS} more" if len(faults) > SHOWN_ERRORS else ""
    return "; ".join(texts) + more


def parameters(shape: type[BaseModel], kind: ReplyFormat) -> Json:
    """Returns the parameters of a request that ask for a shape. `none` leaves the shape to the prompt."""
    if kind == "none":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = strict_schema(shape.model_json_schema())
    if kind == "tools":
        function = {"name": TOOL, "description": "Gives the answer.", "parameters": schema}
        choice = {"type": "function", "function": {"name": TOOL}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
    named = {"name": shape.__name__, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def strict_schema(schema: Json) -> Json:
    """Returns the schema without keywords that OpenAI's strict mode or llama.cpp's grammars reject.

    `parse` still checks these.
    """
    strict = {word: value for word, value in schema.items() if word not in _REFUSED}
    for word in ("properties", "$defs"):
        if word in strict:
            strict[word] = {name: strict_schema(part) for name, part in strict[word].items()}
    if "items" in strict:
        strict["items"] = strict_schema(strict["items"])
    if "anyOf" in strict:
        strict["anyOf"] = [strict_schema(part) for part in strict["anyOf"]]
    return strict


def schema_note(shape: type[BaseModel]) -> str:
    """Returns instructions with the schema, for servers that do not receive it as a parameter."""
    schema = json.dumps(strict_schema(shape.model_json_schema()), ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else. It must follow this JSON schema:\n{schema}"
