"""What is remembered and matters for the query."""

from app.clock import rfc3339
from app.context.arms.searching import search
from app.context.items import Arm, Asked, Item
from app.memories.decays import Decays
from app.memories.lookup import Hit
from app.memories.models import MEMORIES
from app.memories.recall import search_filter
from app.memories.schemas import SearchRequest
from app.storage.text import content_hash

SPARE = 2
"""So many times the limit is looked for, since some repeat what other sections hold."""
WINDOW = 24
"""More, where the session's last turns may all be among what is found."""


async def gather(asked: Asked) -> list[Item]:
    body = asked.body
    request = SearchRequest(
        query=body.query, agent_id=body.agent_id, user_id=body.user_id, min_trust=body.min_trust, as_of=body.as_of
    )
    k = SPARE * asked.limit + (WINDOW if body.session_id is not None else 0)
    decays = Decays(asked.held.agents, asked.scope.tenant)
    hits = await search(asked, MEMORIES, search_filter(request, rfc3339(asked.now)), k, decays)
    return [_item(hit) for hit in hits if not _is_query(hit, asked)]


def _is_query(hit: Hit, asked: Asked) -> bool:
    """The query as this session has said it already tells nothing."""
    in_session = asked.body.session_id is not None and hit.doc["source"]["session_id"] == asked.body.session_id
    return in_session and content_hash(hit.doc["content"]) == content_hash(asked.body.query)


def _item(hit: Hit) -> Item:
    doc, source = hit.doc, hit.doc["source"]
    happened = str(doc["event_at"] or doc["created_at"])[:10]
    speaker = f" {source['speaker']}:" if source["speaker"] else ""
    same = {f"text:{content_hash(doc['content'])}"}
    if doc["memory_type"] == "message" and source["session_id"] is not None:
        same.add(f"message:{source['session_id']}:{source['message_seq']}")
    text = doc["content"] if not doc["context"] else f"{doc['content']} ({doc['context']})"
    return Item(
        doc["memory_id"],
        doc["memory_type"],
        text,
        hit.score,
        prefix=f"{happened}{speaker} ",
        same=frozenset(same),
        memory_id=doc["memory_id"],
    )


MEMORIES_ARM = Arm("memories", "Memories", 0.35, {"general": 3, "recall": 5}, gather)
