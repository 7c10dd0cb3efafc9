"""Messages with texts over the limit: they are kept short instead of refused, and the answer says what was cut.

    {"role": "tool", "content": "<90,000 characters>"}
    → {"role": "tool", "content": "<the beginning>\n[… 58,048 characters left out …]\n<the end>"}

    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0…"}}
    → {"type": "image_url", "image_url": {"url": {"type": "image/png", "size": 48213, "sha256": "9f86d0…"}}}

All else of such a message stays as it was sent: other parts, ids, and whatever lies within the limit.
"""

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypedDict
from urllib.parse import unquote_to_bytes

from pydantic import JsonValue

from app.core.schemas import Json, JsonObject
from app.core.work import off_loop
from app.sessions.schemas import MessageIn, is_text_part

_MARK_CHARS = 48
"""What the mark of a cut takes at most, with its line breaks."""
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,255})(?P<parameters>(?:;[^;,]{0,255}){0,8}),", re.IGNORECASE)
_TYPE_NAMES = ("media_type", "mimeType", "mime_type")
"""Where APIs say of which type the data beside are."""
_UNKNOWN_TYPE = "application/octet-stream"
_CALLS = ("tool_calls", "function_call")


class MessageWarningAnswer(TypedDict):
    """What of a message was not kept, as `schemas.MessageWarning` describes it."""

    code: Literal["text_shortened", "file_not_kept"]
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class KeptMessages:
    """Messages within the limit, and a warning for each text and file that was cut."""

    messages: Sequence[MessageIn]
    warnings: list[MessageWarningAnswer]


async def within_limit(messages: Sequence[MessageIn], limit: int) -> KeptMessages:
    """Returns the messages with no text of more than `limit` characters. The text parts of a message are one text."""
    sent = [message.model_dump(exclude_unset=True) for message in messages]
    sizes = [_characters(fields) for fields in sent]
    if all(size <= limit for size in sizes):  # all texts of a message together, as of nearly all messages
        return KeptMessages(messages, [])
    return await off_loop(sum(sizes), _within_limit, messages, sent, limit)


def _characters(value: JsonValue) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def _within_limit(messages: Sequence[MessageIn], sent: Sequence[Json], limit: int) -> KeptMessages:
    shortened_messages, warnings = list(messages), list[MessageWarningAnswer]()
    for number, fields in enumerate(sent):
        shortening = _Shortening(limit)
        short = shortening.message(fields, f"/messages/{number}")
        if shortening.warnings:
            shortened_messages[number] = MessageIn.model_validate(short)
            warnings += shortening.warnings
    return KeptMessages(shortened_messages, warnings)


@dataclass(frozen=True, slots=True)
class _Shortening:
    """Shortens a message, and notes what was cut. `pointer` names the place in the request."""

    limit: int
    warnings: list[MessageWarningAnswer] = field(default_factory=list)

    def message(self, fields: Json, pointer: str) -> Json:
        short = dict(fields)
        for name, value in fields.items():
            place = f"{pointer}/{name}"
            if isinstance(value, str):
                short[name] = self._text(value, place)
            elif name == "content" and isinstance(value, list):
                short[name] = self._parts(value, place)
            else:
                short[name] = self._value(value, place, file=name == "audio", has_files=name not in _CALLS)
        return short

    def _parts(self, parts: Sequence[Json], pointer: str) -> list[Json]:
        """The texts of all parts together stay within the limit, the line breaks between them included."""
        texts = [part["text"] for part in parts if is_text_part(part["type"]) and part.get("text")]
        fitting = iter(fitted(texts, self.limit - max(len(texts) - 1, 0)))
        short = list[Json]()
        for number, part in enumerate(parts):
            place, text = f"{pointer}/{number}", None
            if is_text_part(part["type"]) and part.get("text"):
                text = next(fitting)
                self._note(part["text"], text, f"{place}/text")
            others = {name: value for name, value in part.items() if text is None or name != "text"}
            short_others = self._object(others, place, file=not is_text_part(part["type"]))
            short.append({name: short_others.get(name, text) for name in part})
        return short

    def _value(self, value: JsonValue, pointer: str, *, file: bool = False, has_files: bool = True) -> JsonValue:
        """`file`: data in base64 are a file even if nothing beside says of which type. `has_files`: a text may become
        the reference of a file, which is an object."""
        if isinstance(value, list):
            return [
                self._value(item, f"{pointer}/{at}", file=file, has_files=has_files) for at, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return self._object(value, pointer, file=file, has_files=has_files)
        return self._text(value, pointer) if isinstance(value, str) else value

    def _object(self, value: JsonObject, pointer: str, *, file: bool = False, has_files: bool = True) -> JsonObject:
        short = dict(value)
        for name, item in value.items():
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if not isinstance(item, str):
                short[name] = self._value(item, place, file=file, has_files=has_files)
            elif len(item) > self.limit:
                may_be_file = has_files and name not in ("type", "text")  # these are texts wherever they stand
                reference = _reference(item, value, file=file) if may_be_file else None
                if reference is not None:
                    short[name] = reference
                    self._warn("file_not_kept", place, "The file is not kept, only its type, size and SHA-256.")
                else:
                    short[name] = self._arguments(item, place) if name == "arguments" else self._text(item, place)
        return short

    def _text(self, text: str, pointer: str) -> str:
        short = shortened(text, self.limit)
        self._note(text, short, pointer)
        return short

    def _arguments(self, text: str, pointer: str) -> str:
        """Arguments of a call are JSON, and stay so if their long texts can be cut."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self._text(text, pointer)
        size = self.limit
        while size > _MARK_CHARS:
            short = json.dumps(_with_short_texts(value, size), ensure_ascii=False)
            if len(short) <= self.limit:
                self._note(text, short, pointer)
                return short
            size //= 2
        return self._text(text, pointer)

    def _note(self, text: str, short: str, pointer: str) -> None:
        if short != text:
            detail = f"The text has {len(text)} characters: its beginning and end are kept, {self.limit} at most."
            self._warn("text_shortened", pointer, detail)

    def _warn(self, code: Literal["text_shortened", "file_not_kept"], pointer: str, detail: str) -> None:
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
    return [shortened(text, most) for text in texts]


def shortened(text: str, limit: int) -> str:
    """Returns the beginning and the end of a text, at most `limit` characters with the mark between them."""
    if len(text) <= limit:
        return text
    if limit <= _MARK_CHARS:
        return text[: max(limit, 0)]
    left = limit - _MARK_CHARS
    end = left // 2
    return f"{text[: left - end]}\n[… {len(text) - left:,} characters left out …]\n{text[len(text) - end :]}"


def _with_short_texts(value: JsonValue, limit: int) -> JsonValue:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, dict):
        return {name: _with_short_texts(item, limit) for name, item in value.items()}
    return [_with_short_texts(item, limit) for item in value] if isinstance(value, list) else value


def _reference(text: str, beside: JsonObject, *, file: bool) -> JsonObject | None:
    """Returns what stays of a file's data: its type, bytes and digest. None: the text is no data of a file."""
    url = _DATA_URL.match(text)
    if url is not None:
        kind, written = url["type"] or "text/plain", text[url.end() :]
        data = _decoded(written) if url["parameters"].lower().endswith(";base64") else unquote_to_bytes(written)
    else:
        named = (beside.get(name) for name in _TYPE_NAMES)
        declared = next((name for name in named if isinstance(name, str)), None)
        kind = declared or _UNKNOWN_TYPE
        data = _decoded(text) if file or declared else None
    return None if data is None else {"type": kind, "size": len(data), "sha256": sha256(data).hexdigest()}


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text.translate(_URL_SAFE), validate=True)
    except ValueError:
        return None


_URL_SAFE = str.maketrans("-_", "+/", "\r\n")
