"""Source of procedures for the task that the query describes, with their record of success."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.searching import search
from app.procedures.models import PROCEDURES
from app.procedures.search import LEAST_CANDIDATES, ProcedureHit, ranked, searched, track_record
from app.storage.text import content_hash

SPARE = 2
"""Factor of the limit. More items are returned because some repeat items of other sections."""
SHOWN_NOTES = 3
"""Number of notes that are shown, the latest ones."""


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns procedures, best first."""
    where = searched(min_trust=request.body.min_trust, until=request.body.as_of)
    k = max(LEAST_CANDIDATES, SPARE * request.limit)
    retrieved = await search(request, PROCEDURES, where, k)
    return [_item(one) for one in ranked(retrieved.hits, request.now)[: SPARE * request.limit]]


def _item(found: ProcedureHit) -> Candidate:
    doc = found.hit.doc
    same = frozenset({f"procedure:{content_hash(' '.join([doc['name'], *doc['steps']]))}"})
    return Candidate(doc["procedure_id"], "procedure", _text(found), found.score, same=same)


def _text(found: ProcedureHit) -> str:
    """Returns the procedure as lines with labels.

    Each part is one line, so that none passes for another step or record.
    """
    doc, of = found.hit.doc, found.standing
    record = track_record(doc["success_count"], doc["failure_count"], of)
    lines = [_line(doc["name"]), f"when: {_line(doc['trigger'])}"]
    lines += [f"needs: {_line(one)}" for one in doc["preconditions"]]
    lines += [f"{number}. {_line(step)}" for number, step in enumerate(doc["steps"], 1)]
    lines.append(f"record: {record}{f', unused for {int(of.idle_days)} days' if of.stale else ''}")
    lines += [f"note: {_line(one)}" for one in doc["notes"][-SHOWN_NOTES:]]
    return "\n".join(lines)


def _line(text: str) -> str:
    return " ".join(text.split())


PROCEDURES_SOURCE = ContextSource("procedures", "Procedures", gather, default_limit=5)
