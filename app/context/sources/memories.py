"""Source of memories that answer the query, each with its partner turn."""

from collections.abc import Mapping

from app.context.candidates import Candidate, ContextSource, Heading, SourceRequest
from app.context.passages import passage
from app.context.sources.searching import search
from app.core.clock import rfc3339, to_ms
from app.memories.decay_settings import Decays
from app.memories.models import MEMORIES
from app.memories.records import standing
from app.memories.schemas import SearchRequest
from app.memories.search import search_filter
from app.profiles.schemas import status_of
from app.retrieval.retriever import Hit
from app.storage.filters import Filter
from app.storage.schema import Doc
from app.storage.text import content_hash

MOST = 100
SPARE = 24
"""Added to the limit, because some items repeat items of other sections."""
PARTNER_WORTH = 0.5
"""Score of a partner as a share of its hit's score."""


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns memories, best first. It leaves out those below the minimum importance."""
    decays = Decays(request.resources.agents, request.scope.tenant)
    retrieved = await search(request, MEMORIES, visible(request), request.limit + SPARE, decays, partners=True)
    least, found = await _least_importance(request, decays), list[Candidate]()
    for hit in retrieved.hits:
        if _is_query(hit.doc, request):
            continue
        exempt = least == 0 or standing(hit.doc) is not None
        if not exempt and await decays.importance(hit.doc, to_ms(request.now)) < least:
            request.hidden.append(hit.doc["memory_id"])
            continue
        found.append(_item(hit, retrieved.weights, request))
    return found


def visible(request: SourceRequest) -> Filter:
    """Returns the filter for memories that are active, valid and trusted enough at the request's time."""
    body = request.body
    search_request = SearchRequest(
        query=body.query, agent_id=body.agent_id, user_id=body.user_id, min_trust=body.min_trust, as_of=body.as_of
    )
    return search_filter(search_request, rfc3339(request.now))


async def _least_importance(request: SourceRequest, decays: Decays) -> float:
    """Returns the minimum importance of the request, or else of the agent."""
    given = request.body.min_importance
    return await decays.least_importance(request.body.agent_id) if given is None else given


def _is_query(doc: Doc, request: SourceRequest) -> bool:
    """Returns whether the memory is the query itself, as a message of this session."""
    in_session = request.body.session_id is not None and doc["source"]["session_id"] == request.body.session_id
    return in_session and content_hash(doc["content"]) == content_hash(request.body.query)


def _item(hit: Hit, weights: Mapping[int, float], request: SourceRequest) -> Candidate:
    partner = hit.partner
    beside = None
    if partner is not None and not _is_query(partner, request):
        beside = memory_item(partner, passage(partner["content"], weights), hit.score * PARTNER_WORTH)
    return memory_item(hit.doc, passage(hit.doc["content"], weights), hit.score, beside)


def memory_item(doc: Doc, text: str, score: float | None, partner: Candidate | None = None) -> Candidate:
    """Returns a memory as a candidate. `text`: its content, or a passage of it."""
    source, happened = doc["source"], str(doc["event_at"] or doc["created_at"])
    speaker = f"{source['speaker']}: " if source["speaker"] else ""
    status = status_of(doc)
    context = f" ({doc['context']})" if doc["context"] else ""
    session, seq = source["session_id"], source["message_seq"]
    spoken = session is not None and seq is not None
    dated = f":{happened[:10]}" if doc["event_at"] else ""  # the same event may happen again on another day
    origin = f"message:{session}:{seq}" if spoken else f"text:{doc['content_hash']}{dated}"
    return Candidate(
        doc["memory_id"],
        doc["memory_type"],
        f"{text}{context}",
        score,
        prefix=speaker if status is None else f"[{status}] {speaker}",
        same=frozenset((f"memory:{doc['memory_id']}", origin)),
        memory_id=doc["memory_id"],
        heading=Heading(f"{session}:{happened[:10]}" if spoken else happened[:10], happened[:10], conversation=spoken),
        place=(happened, seq or 0),
        partner=partner,
    )


MEMORIES_SOURCE = ContextSource("memories", "Memories", gather, MOST)
