"""Messages with texts over the limit: they are kept short instead of refused, and the answer says what was cut.

    {"role": "tool", "content": "<90,000 characters>"}
    → {"role": "tool", "content": "<the beginning>\
[… 58,048 characters left out …]\
<the end>"}

    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0…"}}
    → {"type": "image_url", "image_url": {"url": {"type": "image/png", "size": 48213, "sha256": "9f86d0…"}}}

Only what a message says is cut. What it carries besides, such as metadata, signatures and fields of its vendor, is kept
whole or left out. All else of such a message stays as it was sent.
"""

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from pydantic import JsonValue, ValidationError

from app.core.schemas import OBJECT_BYTES, Json, JsonObject, TextWarning
from app.core.work import off_loop
from app.sessions import schemas

_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,255})(?P<parameters>(?:;[^;,]{0,255}){0,8}),", re.IGNORECASE)
_TYPE_NAMES = ("media_type", "mimeType", "mime_type", "format")
"""Where APIs say of which type the data beside are: `{"media_type": "image/png", "data": …}`, `{"format": "wav"}`."""
_UNKNOWN_TYPE = "application/octet-stream"
_OPAQUE_CHARS = OBJECT_BYTES
"""Most characters of what a field carries besides texts."""
_AS_SENT = frozenset({"role", "name", "tool_call_id", "timestamp"})
"""Fields of a message that have limits of their own and stay as they were sent."""


WarningCode = Literal["text_shortened", "file_not_kept", "not_kept", "no_text"]


@dataclass(frozen=True, slots=True)
class KeptMessages:
    """Messages within the limit, and a warning for each text and file that was cut."""

    messages: Sequence[schemas.MessageIn]
    warnings: list[TextWarning]
    length: int
    """About how much was sent, in characters and values, as far as it matters to `off_loop`."""


async def within_limit(messages: Sequence[schemas.MessageIn], limit: int) -> KeptMessages:
    """Returns the messages with no text of more than `limit` characters. Texts of a message's parts are one text."""
    length = sum(message.length() for message in messages)
    kept, warnings = await off_loop(length, _within_limit, messages, limit)
    return KeptMessages(kept, warnings, length)


def _characters(value: JsonValue) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values())) + sum(map(len, value))
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def _within_limit(
    messages: Sequence[schemas.MessageIn], limit: int
) -> tuple[list[schemas.MessageIn], list[TextWarning]]:
    kept, warnings = list(messages), list[TextWarning]()
    for number, message in enumerate(messages):
        fields = message.model_dump(exclude_unset=True)
        size = _characters(fields)
        if size <= limit and isinstance(message.content, str) and not message.left_out:
            continue
        shortening = _Shortening(limit)
        for place, detail in message.left_out.items():
            shortening.warn("not_kept", f"/messages/{number}{place}", detail)
        if size > limit:  # all texts of a message together
            kept[number] = _message(shortening.message(fields, f"/messages/{number}"))
        _name_what_has_no_text(message, fields, shortening, f"/messages/{number}")
        warnings += shortening.warnings
    return kept, warnings


def _message(fields: Json) -> schemas.MessageIn:
    """Returns the message; one of which nothing could be kept has a part that says so."""
    try:
        return schemas.MessageIn.model_validate(fields)
    except ValidationError:
        return schemas.MessageIn.model_validate({**fields, "content": [{"type": "not_kept"}]})


def _name_what_has_no_text(message: schemas.MessageIn, fields: Json, notes: "_Shortening", pointer: str) -> None:
    """Warns of parts that only the message keeps: a picture, a call. Thoughts are never said, empty texts say
    nothing."""
    content = fields.get("content")
    named = {warning["pointer"] for warning in notes.warnings}
    for number, part in enumerate(content if isinstance(content, list) else ()):
        place = f"{pointer}/content/{number}"
        if place not in named and not (
            part.get("text") is not None or schemas.is_thought(part) or any(schemas.said_in([part], 0))
        ):
            what = f"A part of type {str(part['type'])[:64]!r}" if part.get("type") else "This part"
            detail = f"{what} has no text: the message keeps it, memories and prompts have nothing of it."
            notes.warn("no_text", place, detail)
    silent = message.role in schemas.SPEAKING and not content and not message.text()
    if silent and not (message.tool_calls or message.function_call or message.result):
        notes.warn("no_text", pointer, "The message has no text: memories and prompts have nothing of it.")


@dataclass(frozen=True, slots=True)
class _Shortening:
    """Shortens a message, and notes what was cut. `pointer` names the place in the request."""

    limit: int
    warnings: list[TextWarning] = field(default_factory=list)

    def message(self, fields: Json, pointer: str) -> Json:
        short = dict(fields)
        for name, value in fields.items():
            place = f"{pointer}/{schemas.step(name)}"
            if name == "content" and isinstance(value, list):
                short[name] = self._parts(value, place)
            elif name in ("content", "refusal") and isinstance(value, str):
                short[name] = self._text(value, place)
            elif name in ("tool_calls", "function_call"):
                short[name] = self._calls(value, place)
            elif name == "result":
                result = self._result(self._file(fields, name, place), place)
                short[name] = result if self._fits(result, place) else None
            elif name == "metadata" and isinstance(value, dict):
                short[name] = self._entries(value, place)
            elif name not in _AS_SENT:
                short[name] = self._files(value, place, file=True) if name == "audio" else value
                if not self._fits(short[name], place):
                    del short[name]
        return short

    def _fits(self, value: JsonValue, pointer: str) -> bool:
        """Returns whether a value is small enough to be kept whole."""
        size = _characters(value)
        if size > _OPAQUE_CHARS:
            self.warn("not_kept", pointer, f"It has {size} characters, over {_OPAQUE_CHARS}: it was left out.")
        return size <= _OPAQUE_CHARS

    def _entries(self, metadata: JsonObject, pointer: str) -> JsonObject:
        """The largest entries go first, until the others fit together."""
        kept, size = dict(metadata), _characters(metadata)
        for name in sorted(metadata, key=lambda name: _characters(metadata[name]), reverse=True):
            if size <= _OPAQUE_CHARS:
                break
            own = _characters(kept.pop(name)) + len(name)
            detail = f"It has {own} characters, and the metadata over {_OPAQUE_CHARS}: it was left out."
            self.warn("not_kept", f"{pointer}/{schemas.step(name)}", detail)
            size -= own
        return kept

    def _parts(self, parts: Sequence[Json], pointer: str) -> list[Json]:
        """The texts of all parts together stay within the limit, the line breaks between them included."""
        kept, places = list[Json](), list[schemas.TextPlace]()
        for number, part in enumerate(parts):
            short = self._files(part, f"{pointer}/{number}")
            said = [
                one for one in schemas.said_in([short], 0, f"{pointer}/{number}") if isinstance(one[0][one[1]], str)
            ]
            size = _characters(short) - sum(len(holder[key]) for holder, key, _ in said)
            if size > _OPAQUE_CHARS:
                detail = f"It has {size} characters besides its text, over {_OPAQUE_CHARS}: it was left out."
                self.warn("not_kept", f"{pointer}/{number}", detail)
            else:
                kept.append(short)
                places += said
        texts = [holder[key] for holder, key, _ in places]
        cut = fitted(texts, self.limit - max(len(texts) - 1, 0))
        for (holder, key, place), text in zip(places, cut, strict=True):
            self._note(holder[key], text, place)
            holder[key] = text
        return kept

    def _files(self, value: Any, pointer: str, *, file: bool = False) -> Any:
        """Puts references in the place of files. `file`: `data` are a file even if nothing beside says of which
        type."""
        if isinstance(value, list):
            return [self._files(item, f"{pointer}/{at}", file=file) for at, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        return {name: self._file(value, name, f"{pointer}/{schemas.step(name)}", file=file) for name in value}

    def _file(self, holder: JsonObject, name: str, pointer: str, *, file: bool = False) -> Any:
        value = holder[name]
        if not isinstance(value, str):
            return self._files(value, pointer, file=file)
        if len(value) <= self.limit or name in ("type", "text") or holder.get("type") == "text":
            return value
        # What stays of a file's data: its type, bytes and digest. None: the text is no data of a file.
        url = _DATA_URL.match(value)
        if url is not None:
            kind, written = url["type"] or "text/plain", value[url.end() :]
            data = _decoded(written) if url["parameters"].lower().endswith(";base64") else unquote_to_bytes(written)
        else:
            named = (holder.get(name) for name in _TYPE_NAMES)
            declared = next((name for name in named if isinstance(name, str)), None)
            kind = declared if declared and "/" in declared else _UNKNOWN_TYPE
            data = _decoded(value) if file or declared else None
        reference = None if data is None else {"type": kind, "size": len(data), "sha256": sha256(data).hexdigest()}
        if reference is None:
            return value
        self.warn("file_not_kept", pointer, "The file is not kept, only its type, size and SHA-256.")
        return reference

    def _result(self, value: Any, pointer: str) -> Any:
        """A result in JSON: its long texts are cut, and what is no text stays."""
        if isinstance(value, list):
            return [self._result(item, f"{pointer}/{at}") for at, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._result(item, f"{pointer}/{schemas.step(name)}") for name, item in value.items()}
        return self._text(value, pointer) if isinstance(value, str) and not schemas.is_blob(value) else value

    def _calls(self, value: Any, pointer: str) -> Any:
        """A call that is too large keeps its place, and nothing else."""
        calls = value if isinstance(value, list) else [value]
        short = [self._arguments_in(call, f"{pointer}/{at}") for at, call in enumerate(calls)]
        kept = [call if self._fits(call, f"{pointer}/{at}") else {"id": None} for at, call in enumerate(short)]
        return kept if isinstance(value, list) else kept[0]

    def _arguments_in(self, call: Any, pointer: str) -> Any:
        if not isinstance(call, dict):
            return call
        return {
            name: self._arguments(item, f"{pointer}/{schemas.step(name)}")
            if name == "arguments" and isinstance(item, str)
            else self._arguments_in(item, f"{pointer}/{schemas.step(name)}")
            for name, item in call.items()
        }

    def _text(self, text: str, pointer: str) -> str:
        short = schemas.shortened(text, self.limit)
        self._note(text, short, pointer)
        return short

    def _arguments(self, text: str, pointer: str) -> str:
        """Arguments of a call are JSON, and stay so: their long texts are cut, or nothing is."""
        if len(text) <= self.limit:
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        size = self.limit
        while size > schemas.MARK_CHARS:
            short = json.dumps(_with_short_texts(value, size), ensure_ascii=False)
            if len(short) <= self.limit:
                self._note(text, short, pointer)
                return short
            size //= 2
        return text

    def _note(self, text: str, short: str, pointer: str) -> None:
        if short != text:
            detail = f"The text has {len(text)} characters: its beginning and end are kept, {self.limit} at most."
            self.warn("text_shortened", pointer, detail)

    def warn(self, code: WarningCode, pointer: str, detail: str) -> None:
        """Notes what was not kept, or has no text."""
        self.warnings.append({"code": code, "pointer": pointer, "detail": detail})


def fitted(texts: Sequence[str], limit: int) -> list[str]:
    """Returns the texts cut such that they have at most `limit` characters together. The longest are cut first, to one
    length: of 10, 40 and 90 characters within 100, the last two keep 45 and 40."""
    left, most = limit, limit
    for number, size in enumerate(sorted(map(len, texts))):
        share = left // (len(texts) - number)
        if size > share:
            most = share
            break
        left -= size
    return [schemas.shortened(text, most) for text in texts]


def _with_short_texts(value: JsonValue, limit: int) -> JsonValue:
    if isinstance(value, str):
        return value if schemas.is_blob(value) else schemas.shortened(value, limit)
    if isinstance(value, dict):
        return {name: _with_short_texts(item, limit) for name, item in value.items()}
    return [_with_short_texts(item, limit) for item in value] if isinstance(value, list) else value


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text.translate(_URL_SAFE), validate=True)
    except ValueError:
        return None


_URL_SAFE = str.maketrans("-_", "+/", "\r\n")
