"""OpenAI's two APIs and Anthropic's: what a call asks, where memory goes into it, and what its answer says. Pure.

Nothing here imports openai or anthropic: requests are dicts, and answers are read by attribute.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recalld_client._messages import as_dict

Json = dict[str, Any]
INSTRUCTING = ("system", "developer")
"""Roles that are instructions of the program. They are not remembered."""


@dataclass(frozen=True)
class Turn:
    """What one call asks. query: the user's last words, "" for none. new: the messages after the model's last answer.
    has_history: whether the caller sends earlier answers, too."""

    query: str
    new: list[Json]
    has_history: bool


def turn_of(messages: list[Json]) -> Turn:
    said = [message for message in messages if message.get("role") not in INSTRUCTING]
    answers = [index for index, message in enumerate(said) if message.get("role") == "assistant"]
    queries = [text for message in said if message.get("role") == "user" and (text := message["content"] or "").strip()]
    new = [message for message in (said[answers[-1] + 1 :] if answers else said) if _says_something(message)]
    return Turn(queries[-1] if queries else "", new, bool(answers))


def _says_something(message: Json) -> bool:
    """Whether the service takes the message: only a tool may answer with nothing."""
    return message.get("role") == "tool" or bool(message.get("tool_calls") or (message["content"] or "").strip())


def plain(content: Any, role: str = "user") -> str:
    """The text of a message's content, a line for each part. Others are named: `[image_url]`. Neighbouring texts of a
    model are one: `"The capital is "`, `"Paris"` was cut for a citation."""
    if content is None or isinstance(content, str):
        return content or ""
    lines, goes_on = list[str](), False
    for part in (as_dict(part) for part in content):
        kind, text = str(part.get("type", "part")), part.get("text")
        # nobody says a `server_tool_use`, a `web_search_tool_result` or a `redacted_thinking`
        if not kind.endswith(("tool_result", "tool_use", "thinking")):
            if goes_on and text:
                lines[-1] += text
            else:
                lines.append(str(text or part.get("refusal") or f"[{kind}]"))
        goes_on = role == "assistant" and bool(text)
    return "\n".join(lines)


# ---------------------------------------------------------------- chat completions


def chat_turn(request: Mapping[str, Any]) -> Turn:
    return turn_of([_chat_message(as_dict(message)) for message in request["messages"]])


def _chat_message(message: Json) -> Json:
    kept = {name: message[name] for name in ("role", "name", "tool_call_id") if message.get(name) is not None}
    if message.get("tool_calls"):
        kept["tool_calls"] = [as_dict(call) for call in message["tool_calls"]]
    return {**kept, "content": plain(message.get("content"), message.get("role", ""))}


def chat_with_memory(request: Mapping[str, Any], text: str) -> Json:
    """Puts `text` at the beginning of the user's last message: what stands before stays the same, and is cached."""
    return {**request, "messages": _with_block(request["messages"], text, "text")}


def _with_block(messages: Iterable[Any], text: str, kind: str) -> list[Any]:
    made = list(messages)
    for index in reversed(range(len(made))):
        message = as_dict(made[index])
        if message.get("role") == "user":
            content = message["content"]
            joined = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": kind, "text": text}, *content]
            made[index] = {**message, "content": joined}
            break
    return made


def chat_answer(completion: Any) -> list[Json]:
    """The first choice, as a message."""
    if not completion.choices:
        return []
    message = completion.choices[0].message
    return _answer(message.content or message.refusal, [as_dict(call) for call in message.tool_calls or ()])


def _answer(text: str | None, calls: list[Json]) -> list[Json]:
    if not (text or "").strip() and not calls:
        return []
    kept = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    return [{"role": "assistant", "content": text or "", **({"tool_calls": kept} if kept else {})}]


@dataclass
class ChatChunks:
    """A streamed chat answer. Only the first choice is kept."""

    text: str = ""
    calls: dict[int, Json] = field(default_factory=dict)

    def add(self, chunk: Any) -> None:
        for choice in chunk.choices or ():
            if choice.index == 0 and choice.delta is not None:
                self.text += choice.delta.content or choice.delta.refusal or ""
                for call in choice.delta.tool_calls or ():
                    self._add_call(call)

    def _add_call(self, call: Any) -> None:
        known = self.calls.setdefault(call.index, {"id": "", "type": "function", "function": _function()})
        known["id"] = call.id or known["id"]
        if call.function is not None:
            known["function"]["name"] += call.function.name or ""
            known["function"]["arguments"] += call.function.arguments or ""

    def answer(self) -> list[Json]:
        return _answer(self.text, [self.calls[index] for index in sorted(self.calls)])


def _function(name: str = "", arguments: str = "") -> Json:
    return {"name": name, "arguments": arguments}


# ---------------------------------------------------------------- responses


def responses_turn(request: Mapping[str, Any]) -> Turn:
    given = request.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else [as_dict(item) for item in given]
    turn = turn_of([message for item in items if (message := _item_message(item)) is not None])
    linked = bool(request.get("previous_response_id") or request.get("conversation"))
    return Turn(turn.query, turn.new, turn.has_history or linked)


def _item_message(item: Json) -> Json | None:
    """A message; None for what nobody said, as the model's reasoning."""
    kind = item.get("type", "message")
    if kind == "message" and "role" in item:
        return {"role": item["role"], "content": plain(item.get("content"), item["role"])}
    if kind == "function_call":
        function = _function(item["name"], item["arguments"])
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": plain(item["output"])}
    return None


def responses_with_memory(request: Mapping[str, Any], text: str) -> Json:
    """Puts `text` at the beginning of the user's last message."""
    given = request["input"]
    return {
        **request,
        "input": f"{text}\n\n{given}" if isinstance(given, str) else _with_block(given, text, "input_text"),
    }


def responses_answer(response: Any) -> list[Json]:
    messages = [_item_message(as_dict(item)) for item in response.output]
    said = [message for message in messages if message is not None]
    calls = [call for message in said for call in message.get("tool_calls", ())]
    return _answer("\n".join(message["content"] for message in said if message["content"]), calls)


@dataclass
class ResponseEvents:
    """A streamed response. Its last event holds all of it; before that, the text so far is kept."""

    text: str = ""
    whole: Any = None

    def add(self, event: Any) -> None:
        if event.type == "response.output_text.delta":
            self.text += event.delta
        elif event.type in ("response.completed", "response.incomplete"):
            self.whole = event.response

    def answer(self) -> list[Json]:
        return _answer(self.text, []) if self.whole is None else responses_answer(self.whole)


# ---------------------------------------------------------------- Anthropic's messages


def anthropic_turn(request: Mapping[str, Any]) -> Turn:
    return turn_of([one for message in request["messages"] for one in _anthropic_messages(as_dict(message))])


def _anthropic_messages(message: Json) -> list[Json]:
    """A message: the results of tools that it has stand before what is said beside them."""
    blocks = message["content"]
    blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else [as_dict(block) for block in blocks]
    made: list[Json] = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": plain(block.get("content"))}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    said = plain(blocks, message["role"])
    calls = [
        {"id": block["id"], "type": "function", "function": _function(block["name"], json.dumps(block["input"]))}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    if said or calls:
        made.append({"role": message["role"], "content": said, **({"tool_calls": calls} if calls else {})})
    return made


def anthropic_with_memory(request: Mapping[str, Any], text: str) -> Json:
    """Puts `text` at the beginning of the user's last words. Results of tools must come first in their message."""
    messages = [as_dict(message) for message in request["messages"]]
    index = max(at for at, message in enumerate(messages) if message["role"] == "user")
    content = messages[index]["content"]
    if not isinstance(content, str):
        blocks = [as_dict(block) for block in content]
        results = [block for block in blocks if block["type"] == "tool_result"]
        said = [block for block in blocks if block["type"] != "tool_result"]
        messages[index] = {**messages[index], "content": [*results, {"type": "text", "text": text}, *said]}
        return {**request, "messages": messages}
    return {**request, "messages": _with_block(messages, text, "text")}


def anthropic_answer(message: Any) -> list[Json]:
    said = _anthropic_messages({"role": "assistant", "content": list(message.content)})
    return _answer(said[-1]["content"], said[-1].get("tool_calls", [])) if said else []


@dataclass
class AnthropicEvents:
    """A streamed answer: text as it comes, and the blocks of tools with the JSON of their input."""

    blocks: dict[int, Json] = field(default_factory=dict)

    def add(self, event: Any) -> None:
        if event.type == "content_block_start":
            block = as_dict(event.content_block)
            self.blocks[event.index] = {**block, "json": ""}
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self.blocks[event.index]["text"] += event.delta.text
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            self.blocks[event.index]["json"] += event.delta.partial_json

    def answer(self) -> list[Json]:
        made = [self.blocks[index] for index in sorted(self.blocks)]
        calls = [
            {"id": block["id"], "type": "function", "function": _function(block["name"], block["json"] or "{}")}
            for block in made
            if block["type"] == "tool_use"
        ]
        return _answer(plain(made, "assistant"), calls)


@dataclass(frozen=True)
class Api:
    """One of the APIs, as the wrapper uses it."""

    turn: Callable[[Mapping[str, Any]], Turn]
    with_memory: Callable[[Mapping[str, Any], str], Json]
    answer: Callable[[Any], list[Json]]
    chunks: Callable[[], ChatChunks | ResponseEvents | AnthropicEvents]


CHAT = Api(chat_turn, chat_with_memory, chat_answer, ChatChunks)
RESPONSES = Api(responses_turn, responses_with_memory, responses_answer, ResponseEvents)
ANTHROPIC = Api(anthropic_turn, anthropic_with_memory, anthropic_answer, AnthropicEvents)
