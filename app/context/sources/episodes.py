"""Source of past actions that resemble the query, with their outcome and the user's feedback."""

from app.actions.models import ACTIONS
from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.searching import search
from app.core.clock import rfc3339
from app.retrieval.retriever import Hit
from app.storage.filters import Range
from app.storage.schema import Doc
from app.storage.text import content_hash


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns actions up to the time of the request, best first."""
    until = Range("timestamp", le=request.body.as_of or rfc3339(request.now))
    return [_item(hit) for hit in (await search(request, ACTIONS, until, request.limit)).hits]


def _item(hit: Hit) -> Candidate:
    doc, feedback = hit.doc, hit.doc["feedback"]
    same = frozenset({f"text:{content_hash(doc['content'])}"})
    known = ", ".join([*([doc["outcome"]] if doc["outcome"] else []), *_judged(feedback)])
    prefix = f"{str(doc['timestamp'])[:10]} {doc['action_type']}{f' ({known})' if known else ''}: "
    correction = _line(feedback.get("correction") or "")
    text = f"{_line(doc['content'])}\ncorrection: {correction}" if correction else doc["content"]
    return Candidate(doc["action_id"], "action", text, hit.score, prefix, same)


def _line(text: str) -> str:
    """Returns the text on one line, so that no text can pass for a correction."""
    return " ".join(text.split())


def _judged(feedback: Doc) -> list[str]:
    """Returns the user's feedback in words: `rated 2 of 5`, `not helpful`."""
    rating, helpful = feedback.get("user_rating"), feedback.get("was_helpful")
    said = [] if helpful is None else ["helpful" if helpful else "not helpful"]
    return said if rating is None else [f"rated {rating} of 5", *said]


EPISODES = ContextSource("episodes", "Past actions", gather, default_limit=20)
