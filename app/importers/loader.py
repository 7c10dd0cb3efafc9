"""Imports the records of another memory system's file with the same API calls as any client.

A reader yields records to import, and skipped ones with reasons. A record that the API refuses is reported and does not
stop the others.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict
from urllib.parse import quote

from pydantic import JsonValue

from app.core.clock import rfc3339
from app.core.schemas import MAX, Json, identifier
from app.core.work import characters

RecordKind: TypeAlias = Literal["memory", "fact", "message", "action"]

MAX_TAG = 128
"""The maximum length of a tag."""
MAX_KEY = 256
ONE_PAGE = "this is one page of several: import the others, too"


class RecordOwner(TypedDict):
    """The agent and the user of a record: one of them at least."""

    agent_id: str | None
    user_id: str | None


class ImportedSession(RecordOwner):
    """The session of a message, as it is posted."""

    session_id: str | None
    metadata: NotRequired[Json]


class SpokenMessage(TypedDict):
    """What another system has of a message."""

    role: str
    content: str
    name: NotRequired[Any]
    timestamp: str | None
    metadata: NotRequired[Json]


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A record to import. `body` is the body of its POST request; a message and an action also have their session."""

    kind: RecordKind
    where: str
    body: Json
    session: ImportedSession | None = None


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """A part of the file that is not imported. `where` is a JSON pointer into the file. `is_memory`: it is a record of
    memory that was left out, and not a part that holds none, such as a system prompt."""

    where: str
    reason: str
    is_memory: bool = True


ImportResult: TypeAlias = ImportRecord | SkippedEntry
Reader: TypeAlias = Callable[[Any, "DefaultOwner"], Iterator[ImportResult]]
"""Reads a parsed file and yields its records."""


class Unreadable(Exception):
    """The reason why a part of the file cannot become a record."""

    is_memory = True


class NoMemory(Unreadable):
    """The reason why a part of the file holds no memory."""

    is_memory = False


@dataclass(frozen=True, slots=True)
class DefaultOwner:
    """The owners of records that name none. `now` decides which records have expired. `mapped` collects the ids of the
    source that are none here, with the ids that stand for them."""

    agent_id: str | None
    user_id: str | None
    now: str
    mapped: dict[str, str] = field(default_factory=dict)

    def id_of(self, name: Any) -> str | None:
        """Returns an id of the source as one of ours, or None if it is empty. Raises Unreadable if it is no text or
        number."""
        if name is None or name == "":
            return None
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise Unreadable(f"its id is neither text nor number: {str(name)[:40]}")
        mapped = mapped_id(str(name))
        if mapped != composed(str(name)):
            self.mapped[str(name)] = mapped
        return mapped

    def source(self, session: Any) -> Json | None:
        return {"session_id": found} if (found := self.id_of(session)) else None

    def of(self, agent_id: Any = None, user_id: Any = None) -> RecordOwner:
        """Returns the owners of a record. Raises Unreadable if there is none."""
        owner: RecordOwner = {
            "agent_id": self.id_of(agent_id) or self.agent_id,
            "user_id": self.id_of(user_id) or self.user_id,
        }
        if owner["agent_id"] is None and owner["user_id"] is None:
            raise Unreadable("it names neither user nor agent: say which with --user or --agent")
        return owner


def memory(system: str, where: str, record: Mapping[str, JsonValue], text: Any, **fields: Any) -> ImportRecord:
    """Returns a memory with a key made of its original id, so that a repeated import updates it. Raises Unreadable if
    it has no text."""
    if not isinstance(text, str) or not text.strip():
        raise NoMemory("it has no text")
    identity = record.get("id") or record.get("uuid")
    key = {} if identity is None else {"key": f"{system}:{identity}"[:MAX_KEY]}
    given = {name: value for name, value in fields.items() if value is not None}
    metadata = {**given.pop("metadata", {}), "imported_from": {"system": system, "id": identity}}
    return ImportRecord("memory", where, {"content": text, **key, **given, "metadata": metadata})


DEEPEST = 200
"""Levels of a file: more than any record may have, and few enough for every parser."""
MOST_DIGITS = 4_000
"""Python makes no integer of more."""
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
"""A string without an end is the rest of the text, which else would be read again from each quotation mark."""


def parsed(text: str) -> Any:
    """Returns the value of a JSON text of any depth. Raises ValueError or RecursionError."""
    whole = _flattened(text)
    return json.loads(whole, parse_int=lambda digits: int(digits) if len(digits) < MOST_DIGITS else float(digits))


def _flattened(text: str) -> str:
    """Returns the JSON with null in the place of what is nested deeper than `DEEPEST`: with 2, `[[[1], 2]]` becomes
    `[[null, 2]]`."""
    kept, depth, shown = list[str](), 0, 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += text[shown : match.start()], "null"
        elif match[0] in "]}":
            shown = match.end() if depth == DEEPEST + 1 else shown
            depth -= 1
    return "".join([*kept, text[shown:]])


def listed(items: Any) -> list[Any]:
    """Returns the items of a list, or of a page: `{"items": […], "next_cursor": "…"}`. None of anything else."""
    inside = items.get("items") if isinstance(items, dict) else items
    return inside if isinstance(inside, list) else []


def read_each(items: Any, where: str, read: Callable[[Json, str], Iterator[ImportResult]]) -> Iterator[ImportResult]:
    """Yields the records of each item of a list or a page. An unreadable item is skipped and does not affect the
    others."""
    page = items if isinstance(items, dict) else {}
    if not isinstance(page.get("items", items), list):
        yield SkippedEntry(where, "it is no list")
        return
    for index, item in enumerate(listed(items)):
        place = f"{where}/items/{index}" if page else f"{where}/{index}"
        if not isinstance(item, dict):
            yield SkippedEntry(place, "it is no object")
            continue
        try:
            yield from read(item, place)
        except Unreadable as error:
            yield SkippedEntry(place, str(error), error.is_memory)
    if page.get("next_cursor"):
        yield SkippedEntry(f"{where}/next_cursor", ONE_PAGE)


def time(value: Any) -> str | None:
    """Returns a time of another system as RFC 3339 in UTC. Accepts times with or without a zone (then UTC), and dates.
    Raises Unreadable."""
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(str(value))
        return rfc3339(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)
    except (ValueError, OverflowError):
        raise Unreadable(f"its time cannot be read: {str(value)[:40]!r}") from None


def words(values: Any) -> list[str]:
    return [value[:MAX_TAG] for value in listed(values) if isinstance(value, str) and value][:64]


def composed(name: str) -> str:
    """Returns the name in Unicode's composed form."""
    return unicodedata.normalize("NFC", name)


def mapped_id(name: str) -> str:
    """Returns an id of another system as one of ours: itself where it is one, and otherwise a name of its own.

    What an id cannot have becomes `-`, and a hash of the whole keeps two such names apart: `a/b` is `a-b~c14cddc0`.
    """
    try:
        return identifier(name)
    except ValueError:
        plain = "".join(char if char.isprintable() and char != "/" else "-" for char in composed(name[: 4 * MAX]))
        mark = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        return f"{plain[: MAX - len(mark) - 1].strip()}~{mark}"


def message(
    where: str, owner: RecordOwner, session_id: str | None, spoken: SpokenMessage, about: Json | None = None
) -> ImportRecord:
    """Returns a message of the session with this id of ours. `about`: the metadata of a new session. Raises Unreadable
    if no session can contain it."""
    if owner["agent_id"] is None or owner["user_id"] is None:
        raise Unreadable("a conversation needs both: say which with --agent and --user")
    if spoken["role"] not in ("user", "assistant"):
        raise NoMemory("its role is neither user nor assistant: prompts and tools' own words are not taken")
    if not spoken["content"].strip():
        raise NoMemory("it has no text")
    body = {name: value for name, value in spoken.items() if value}
    session: ImportedSession = {"session_id": session_id, "agent_id": owner["agent_id"], "user_id": owner["user_id"]}
    if about is not None:
        session["metadata"] = about
    return ImportRecord("message", where, body, session)


class ImportTarget(Protocol):
    """The service that records are imported into."""

    async def post(self, path: str, body: Json) -> str | None:
        """Posts a body to a path. Returns None, or the reason of a refusal."""

    async def get(self, path: str) -> Json | None:
        """Returns the answer for a path, or None if there is none."""


ImportStep = Callable[[int], None]
"""Called with the number of records that were just processed."""
AT_ONCE = 100
"""The number of records in one request."""
CHARACTERS_AT_ONCE = 500_000
"""And the characters of their bodies: a request may have 4 MiB."""
OTHER_MESSAGES = "it holds other messages: it went on elsewhere, or another branch was shown when it was imported"
SHOWN = 3
"""The number of examples for each reason."""


class SkipReason(TypedDict):
    """Why records stayed out: how many, and examples of their places in the file."""

    reason: str
    count: int
    such_as: list[str]


class ShownReport(TypedDict):
    """The report as the command prints it."""

    taken: dict[str, int]
    there: dict[str, int]
    left: list[SkipReason]
    not_memory: list[SkipReason]


class RanImport(ShownReport):
    """What the command reports of an import. `agent`: the one that a history belongs to now. `mapped`: the ids here of
    ids of the source that had to change. `erased`: the records of each erased user that were left out;
    `erased_checked`: whether tombstones could be read; `secrets`: what the service found in the texts, by kind."""

    dry_run: bool
    agent: str | None
    mapped: dict[str, str]
    erased: dict[str, int]
    erased_checked: bool
    secrets: dict[str, int]


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `taken` counts records that came in, `there` messages that an earlier import had
    brought. In `shown`, `left` lists the records that stayed out by reason, the most frequent first, with examples of
    their places in the file, and `not_memory` the parts of the file that hold no memory."""

    taken: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    _skipped: dict[tuple[bool, str], SkipReason] = field(default_factory=dict)

    def leave(self, where: str, reason: str, *, is_memory: bool = True) -> None:
        """Notes that a part of the file was skipped."""
        empty: SkipReason = {"reason": reason, "count": 0, "such_as": []}
        skipped = self._skipped.setdefault((is_memory, reason), empty)
        skipped["count"] += 1
        if skipped["count"] <= SHOWN:
            skipped["such_as"].append(where)

    def shown(self) -> ShownReport:
        """Returns counts and reasons as the command prints them."""
        ordered = sorted(self._skipped.items(), key=lambda item: -item[1]["count"])
        return {
            "taken": dict(self.taken),
            "there": dict(self.there),
            "left": [skipped for (is_memory, _), skipped in ordered if is_memory],
            "not_memory": [skipped for (is_memory, _), skipped in ordered if not is_memory],
        }


async def bring(
    results: Iterable[ImportResult],
    service: ImportTarget,
    step: ImportStep = lambda number: None,
    report: ImportReport | None = None,
) -> ImportReport:
    """Posts all records: memories, facts, and then actions and messages by session. Returns the report, which goes on
    from `report`."""
    report, records = report or ImportReport(), list[ImportRecord]()
    for result in results:
        if isinstance(result, SkippedEntry):
            report.leave(result.where, result.reason, is_memory=result.is_memory)
        else:
            records.append(result)
    for kind, path in (("memory", "/v1/memories"), ("fact", "/v1/facts")):
        for batch in _batches([record for record in records if record.kind == kind]):
            await _post(batch, path, service, report)
            step(len(batch))
    of_sessions = sorted((record for record in records if record.session is not None), key=_session_id)
    for session_id, of_session in groupby(of_sessions, key=_session_id):
        conversation = list(of_session)
        await _post_conversation(session_id, conversation, service, report)
        step(len(conversation))
    return report


def _batches(records: Sequence[ImportRecord]) -> Iterator[Sequence[ImportRecord]]:
    batch, size = list[ImportRecord](), 0
    for record in records:
        size += characters(record.body, most=CHARACTERS_AT_ONCE)
        if batch and (len(batch) == AT_ONCE or size > CHARACTERS_AT_ONCE):
            yield batch
            batch, size = [], characters(record.body, most=CHARACTERS_AT_ONCE)
        batch.append(record)
    if batch:
        yield batch


def _session_id(record: ImportRecord) -> str:
    assert record.session is not None
    return str(record.session["session_id"])


async def _post(batch: Sequence[ImportRecord], path: str, service: ImportTarget, report: ImportReport) -> None:
    """Posts records as one batch or, if the batch is refused, one by one. Their source says that they were imported;
    an action's metadata does."""
    bodies = [record.body if record.kind == "action" else {**record.body, "origin": "import"} for record in batch]
    if await service.post(f"{path}/batch", {"items": bodies}) is None:
        report.taken.update(record.kind for record in batch)
        return
    for record, body in zip(batch, bodies, strict=True):
        refused = await service.post(path, body)
        if refused is None:
            report.taken[record.kind] += 1
        else:
            report.leave(record.where, refused)


async def _post_conversation(
    session_id: str, conversation: Sequence[ImportRecord], service: ImportTarget, report: ImportReport
) -> None:
    """Posts a conversation. If an earlier import was cut short in it, the rest follows; a session that holds anything
    else stays as it is."""
    session = conversation[0].session
    assert session is not None
    path = f"/v1/sessions/{quote(session_id, safe='')}"
    messages = [record for record in conversation if record.kind == "message"]
    ordered = sorted(messages, key=lambda message: message.body.get("timestamp") or "")
    there: list[Json] | None = []
    refused = await service.post("/v1/sessions", {**session})
    if refused is not None:
        there = None
        stored = await service.get(path)
        owner = {name: stored[name] for name in ("agent_id", "user_id")} if stored is not None else None
        if owner is not None and owner != {"agent_id": session["agent_id"], "user_id": session["user_id"]}:
            refused = "agent {agent_id} and user {user_id} have it: import with this --agent and --user".format(**owner)
        elif owner is not None:
            there = await _messages_there(path, service)
        missing, at = list[ImportRecord](), 0
        for known_message in there or ():
            while at < len(ordered) and not _is_same(known_message, ordered[at]):
                missing.append(ordered[at])
                at += 1
            at += 1
        if there is None or at > len(ordered):
            for record in conversation:
                report.leave(record.where, f"its session: {refused if there is None else OTHER_MESSAGES}")
            return
        report.there.update({"message": len(there)} if there else {})
        for record in missing:
            report.leave(record.where, "it was refused when those after it came in")
        ordered = ordered[at:]
    # actions come in before the messages after them: those up to the last message that is there are there, too, and
    # may have been rolled up since
    actions = [record for record in conversation if record.kind == "action"]
    until = str(there[-1]["timestamp"]) if there else ""
    known = await _actions_there(session_id, service) if actions and refused is not None else set()
    new = [one for one in actions if str(one.body["timestamp"]) > until and _identity(one.body) not in known]
    report.there.update({"action": len(actions) - len(new)} if len(new) < len(actions) else {})
    for batch in _batches(new):
        await _post(batch, "/v1/actions", service, report)
    for batch in _batches(ordered):
        if await service.post(f"{path}/messages", {"messages": [message.body for message in batch]}) is None:
            report.taken["message"] += len(batch)
            continue
        for message in batch:
            refused = await service.post(f"{path}/messages", {"messages": [message.body]})
            if refused is None:
                report.taken["message"] += 1
            else:
                report.leave(message.where, refused)


async def _messages_there(path: str, service: ImportTarget) -> list[Json]:
    messages, after = list[Json](), 0
    while page := (await service.get(f"{path}/messages?limit=100&after_seq={after}") or {}).get("items"):
        messages += page
        after = page[-1]["seq"]
    return messages


async def _actions_there(session_id: str, service: ImportTarget) -> set[str]:
    """Returns the ids in their source of the actions that a session has."""
    known, cursor = set[str](), ""
    while page := await service.get(f"/v1/actions?session_id={quote(session_id, safe='')}&limit=100{cursor}"):
        known.update(_identity(action) for action in page["items"])
        if not page["next_cursor"]:
            break
        cursor = f"&cursor={quote(page['next_cursor'], safe='')}"
    return known


def _identity(record: Json) -> str:
    """Returns the id that a record has in its source, as its metadata say; empty if they say none."""
    source = (record.get("metadata") or {}).get("imported_from")
    return str(source["id"]) if isinstance(source, dict) and "id" in source else ""


def _is_same(stored: Json, record: ImportRecord) -> bool:
    """Returns whether a stored message is this one. The service gives a time to messages without one, and may have
    shortened or redacted one with an id."""
    if identity := _identity(record.body):
        return identity == _identity(stored)
    return all(
        stored[name] == record.body[name] for name in ("role", "content", "name", "timestamp") if name in record.body
    )
