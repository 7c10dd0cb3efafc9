"""Imports records with the same API calls as any client. A record that the API refuses is reported and does not stop
the others."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from app.core.schemas import Json
from app.importers.models import ImportRecord, ImportResult, SkippedRecord

Post = Callable[[str, Json], Awaitable[str | None]]
"""Posts a body to a path. Returns None, or the reason of a refusal."""
ImportStep = Callable[[int], None]
"""Called with the number of records that were just processed."""
AT_ONCE = 100
"""The number of records in one request."""
SHOWN = 3
"""The number of examples for each reason."""


@dataclass(slots=True)
class ImportReport:
    """The result of an import. In `shown`, `left` lists the skipped records by reason, the most frequent first, with
    examples of their places in the file."""

    taken: Counter[str] = field(default_factory=Counter)
    _left: list[SkippedRecord] = field(default_factory=list)

    def leave(self, where: str, reason: str) -> None:
        """Notes that a record was skipped."""
        self._left.append(SkippedRecord(where, reason))

    def shown(self) -> Json:
        """Returns counts and reasons as the command prints them."""
        reasons = Counter(left.reason for left in self._left)
        places = {reason: [left.where for left in self._left if left.reason == reason][:SHOWN] for reason in reasons}
        left = [
            {"reason": reason, "count": count, "such_as": places[reason]} for reason, count in reasons.most_common()
        ]
        return {"taken": dict(self.taken), "left": left}


async def bring(found: Iterable[ImportResult], post: Post, step: ImportStep = lambda number: None) -> ImportReport:
    """Posts all records: memories, facts, and then messages by session. Returns the report."""
    report, taken = ImportReport(), list[ImportRecord]()
    for one in found:
        if isinstance(one, SkippedRecord):
            report.leave(one.where, one.reason)
        else:
            taken.append(one)
    for kind, path in (("memory", "/v1/memories"), ("fact", "/v1/facts")):
        for some in _some([one for one in taken if one.kind == kind]):
            await _records(some, path, post, report)
            step(len(some))
    messages = sorted((one for one in taken if one.kind == "message"), key=_session)
    for _, said in groupby(messages, key=_session):
        spoken = list(said)
        await _conversation(spoken, post, report)
        step(len(spoken))
    return report


def _some(taken: Sequence[ImportRecord]) -> Iterator[Sequence[ImportRecord]]:
    return (taken[at : at + AT_ONCE] for at in range(0, len(taken), AT_ONCE))


def _session(one: ImportRecord) -> str:
    assert one.session is not None
    return str(one.session["session_id"])


async def _records(some: Sequence[ImportRecord], path: str, post: Post, report: ImportReport) -> None:
    """Posts records as one batch or, if the batch is refused, one by one. Their source says that they were imported."""
    bodies = [{**one.body, "origin": "import"} for one in some]
    if await post(f"{path}/batch", {"items": bodies}) is None:
        report.taken.update(one.kind for one in some)
        return
    for one, body in zip(some, bodies, strict=True):
        refused = await post(path, body)
        if refused is None:
            report.taken[one.kind] += 1
        else:
            report.leave(one.where, refused)


async def _conversation(said: Sequence[ImportRecord], post: Post, report: ImportReport) -> None:
    """Posts a conversation. An existing session stays as it is, since its messages have no ids to recognize them by."""
    session: Any = said[0].session
    refused = await post("/v1/sessions", session)
    if refused is not None:
        for one in said:
            report.leave(one.where, f"its session: {refused}")
        return
    path = f"/v1/sessions/{session['session_id']}/messages"
    ordered = sorted(said, key=lambda one: one.body.get("timestamp") or "")
    for some in _some(ordered):
        if await post(path, {"messages": [one.body for one in some]}) is None:
            report.taken["message"] += len(some)
            continue
        for one in some:
            refused = await post(path, {"messages": [one.body]})
            if refused is None:
                report.taken["message"] += 1
            else:
                report.leave(one.where, refused)
