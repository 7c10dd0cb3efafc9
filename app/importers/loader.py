"""Imports records with the same API calls as any client. A record that the API refuses is reported and does not stop
the others."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol
from urllib.parse import quote

from app.core.schemas import Json
from app.importers.models import ImportRecord, ImportResult, SkippedRecord


class ImportTarget(Protocol):
    """The service that records are imported into."""

    async def post(self, path: str, body: Json) -> str | None:
        """Posts a body to a path. Returns None, or the reason of a refusal."""
        ...

    async def get(self, path: str) -> Json | None:
        """Returns the answer for a path, or None if there is none."""
        ...


ImportStep = Callable[[int], None]
"""Called with the number of records that were just processed."""
AT_ONCE = 100
"""The number of records in one request."""
SHOWN = 3
"""The number of examples for each reason."""


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `taken` counts records that came in, `there` messages that an earlier import had
    brought. In `shown`, `left` lists the records that stayed out by reason, the most frequent first, with examples of
    their places in the file, and `not_memory` the parts of the file that hold no memory."""

    taken: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    _skipped: list[SkippedRecord] = field(default_factory=list)

    def leave(self, where: str, reason: str, *, is_memory: bool = True) -> None:
        """Notes that a part of the file was skipped."""
        self._skipped.append(SkippedRecord(where, reason, is_memory))

    def shown(self) -> Json:
        """Returns counts and reasons as the command prints them."""
        return {
            "taken": dict(self.taken),
            "there": dict(self.there),
            "left": _by_reason([one for one in self._skipped if one.is_memory]),
            "not_memory": _by_reason([one for one in self._skipped if not one.is_memory]),
        }


def _by_reason(skipped: Sequence[SkippedRecord]) -> list[Json]:
    places: dict[str, list[str]] = {}
    for one in skipped:
        places.setdefault(one.reason, []).append(one.where)
    ordered = sorted(places.items(), key=lambda one: -len(one[1]))
    return [{"reason": reason, "count": len(where), "such_as": where[:SHOWN]} for reason, where in ordered]


async def bring(
    found: Iterable[ImportResult], service: ImportTarget, step: ImportStep = lambda number: None
) -> ImportReport:
    """Posts all records: memories, facts, and then messages by session. Returns the report."""
    report, taken = ImportReport(), list[ImportRecord]()
    for one in found:
        if isinstance(one, SkippedRecord):
            report.leave(one.where, one.reason, is_memory=one.is_memory)
        else:
            taken.append(one)
    for kind, path in (("memory", "/v1/memories"), ("fact", "/v1/facts")):
        for some in _some([one for one in taken if one.kind == kind]):
            await _records(some, path, service, report)
            step(len(some))
    messages = sorted((one for one in taken if one.kind == "message"), key=_session)
    for _, said in groupby(messages, key=_session):
        spoken = list(said)
        await _conversation(spoken, service, report)
        step(len(spoken))
    return report


def _some(taken: Sequence[ImportRecord]) -> Iterator[Sequence[ImportRecord]]:
    return (taken[at : at + AT_ONCE] for at in range(0, len(taken), AT_ONCE))


def _session(one: ImportRecord) -> str:
    assert one.session is not None
    return str(one.session["session_id"])


async def _records(some: Sequence[ImportRecord], path: str, service: ImportTarget, report: ImportReport) -> None:
    """Posts records as one batch or, if the batch is refused, one by one. Their source says that they were imported."""
    bodies = [{**one.body, "origin": "import"} for one in some]
    if await service.post(f"{path}/batch", {"items": bodies}) is None:
        report.taken.update(one.kind for one in some)
        return
    for one, body in zip(some, bodies, strict=True):
        refused = await service.post(path, body)
        if refused is None:
            report.taken[one.kind] += 1
        else:
            report.leave(one.where, refused)


async def _conversation(said: Sequence[ImportRecord], service: ImportTarget, report: ImportReport) -> None:
    """Posts a conversation. If an earlier import was cut short in it, the rest follows; a session that holds anything
    else stays as it is."""
    session: Any = said[0].session
    path = f"/v1/sessions/{quote(session['session_id'], safe='')}"
    ordered = sorted(said, key=lambda one: one.body.get("timestamp") or "")
    refused = await service.post("/v1/sessions", session)
    if refused is not None:
        there = await _brought(path, session, service)
        if there is None or len(there) > len(ordered) or not all(map(_is_same, there, ordered)):
            for one in ordered:
                report.leave(one.where, f"its session: {refused}")
            return
        report.there["message"] += len(there)
        ordered = ordered[len(there) :]
    for some in _some(ordered):
        if await service.post(f"{path}/messages", {"messages": [one.body for one in some]}) is None:
            report.taken["message"] += len(some)
            continue
        for one in some:
            refused = await service.post(f"{path}/messages", {"messages": [one.body]})
            if refused is None:
                report.taken["message"] += 1
            else:
                report.leave(one.where, refused)


async def _brought(path: str, session: Json, service: ImportTarget) -> list[Json] | None:
    """Returns the messages of a session of the same agent and user, in order, or None if there is none."""
    stored = await service.get(path)
    if stored is None or any(stored[name] != session[name] for name in ("agent_id", "user_id")):
        return None
    found, after = list[Json](), 0
    while page := (await service.get(f"{path}/messages?limit=100&after_seq={after}") or {}).get("items"):
        found += page
        after = page[-1]["seq"]
    return found


def _is_same(stored: Json, record: ImportRecord) -> bool:
    """Returns whether a stored message is this one. The service gives a time to messages without one."""
    return all(
        stored[name] == record.body[name] for name in ("role", "content", "name", "timestamp") if name in record.body
    )
