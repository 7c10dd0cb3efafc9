"""What sessions that have ended came to where nobody wrote a summary: the lines that say most of what was talked about.

A line is the memory of a message, so what was forgotten, replaced or is not trusted enough is none, and a prompt that
shows it does not repeat it. The lines of a session are statements of the user, those first whose vectors are nearest to
the mean of all that the user said in it: beside "The van's in for its MOT on Friday" and "The MOT comes to 54 pounds",
"Ta" stands for nothing, and neither does a question. It is the same choice each time, whatever the query.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.context.candidates import Candidate
from app.context.passages import passage
from app.context.source import SourceRequest
from app.context.sources.searched import memory_item, visible
from app.memories.schemas import MEMORIES
from app.sessions.schemas import SessionRecord
from app.storage.schema import Eq, In, Range, both
from app.storage.search import Columns, Floats, SearchQuery
from app.storage.text import IS_QUESTION, SAID_BY_USER

LINES = 3
"""Lines of a session. On 22 lives that nothing was fitted on, three of the nearest to the mean hold .53 of the
statements that later questions needed, three others .48; those that hold more are longer by as much."""

LONGEST_LINE = 40
"""Maximum tokens of a line; of a longer message its beginning is shown."""


async def last_lines(request: SourceRequest, sessions: Sequence[SessionRecord]) -> dict[str, list[Candidate]]:
    """Returns the lines of each session that has some, by its id: the best first. Only what was known at the request's
    `known_at` is looked at."""
    body, scope, resources = request.body, request.scope, request.resources
    pairs = scope.partitions(body.agent_id, body.user_id, include_shared=False)
    if not sessions or not pairs:
        return {}
    where, keep = visible(request)
    known = None if body.known_at is None else Range("created_at", le=body.known_at)
    named = In("source.session_id", tuple(session["session_id"] for session in sessions))
    where = both(where, named, Eq("memory_type", "message"), known)
    no_terms = np.empty(0, np.uint32)
    model = resources.embedder.name
    columns = await resources.store.search(
        MEMORIES, SearchQuery(scope.tenant, pairs, where, None, model, no_terms, vectors=True)
    )
    rows = columns.rows[_best(columns)]
    fetched = await resources.store.fetch(MEMORIES, scope.tenant, rows) if len(rows) else []
    lines: dict[str, list[Candidate]] = {}
    for memory in (row.doc for row in fetched if row is not None and scope.sees(row.doc)):
        if (session_id := memory["source"]["session_id"]) is not None and (keep is None or keep(memory)):
            item = memory_item(memory, passage(memory["content"], {}, LONGEST_LINE), None, request)
            assert item.heading is not None
            line = replace(item, heading=replace(item.heading, conversation=False))
            lines.setdefault(session_id, []).append(line)
    return lines


def _best(columns: Columns) -> list[int]:
    """Returns the places of the lines in the columns, the best of each session first."""
    is_statement = (columns.flags & SAID_BY_USER != 0) & (columns.flags & IS_QUESTION == 0)
    of_user = np.flatnonzero(columns.matched & is_statement & (columns.session >= 0))
    best: list[int] = []
    for session in dict.fromkeys(columns.session[of_user].tolist()):
        spoken = of_user[columns.session[of_user] == session]
        order = np.lexsort((columns.rows[spoken], columns.time[spoken], -_nearness(columns, spoken)))
        best += spoken[order[:LINES]].tolist()
    return best


def _nearness(columns: Columns, spoken: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Returns the cosine of each of these documents with their mean; 0 without a vector."""
    if columns.vectors is None:
        return np.zeros(len(spoken), np.float32)
    vectors = columns.vectors[spoken].astype(np.float32)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    return np.asarray(units @ units.mean(axis=0), np.float32)


def placed(lines: Sequence[Candidate], last: str) -> list[Candidate]:
    """Returns the lines of a session, whose last message came then, where the latest session is shown first, and each
    in the order of its talk."""
    return [replace(line, place=(last, -line.place[1])) for line in lines]
