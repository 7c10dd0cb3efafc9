"""What was done before that resembles what is asked now, with how it went."""

from app.actions.models import ACTIONS
from app.clock import rfc3339, to_ms
from app.context.items import Arm, Asked, Item
from app.errors import EmbeddingUnavailable
from app.memories.lookup import Hit, Lookup, Wanted
from app.memories.ranking import Mode
from app.storage.filters import Range
from app.storage.text import content_hash


async def gather(asked: Asked) -> list[Item]:
    try:
        hits = await _find(asked, "hybrid")
    except EmbeddingUnavailable as fault:
        asked.faults.append(fault)
        hits = await _find(asked, "text")
    return [_item(hit) for hit in hits]


async def _find(asked: Asked, mode: Mode) -> list[Hit]:
    body, held = asked.body, asked.held
    wanted = Wanted(
        query=body.query,
        pairs=asked.scope.pairs(body.agent_id, body.user_id, include_shared=True),
        where=Range("timestamp", le=body.as_of or rfc3339(asked.now)),
        now_ms=to_ms(asked.now),
        k=2 * asked.limit,
        mode=mode,
        needs_vector=mode != "text",
    )
    return (await Lookup(held.store, asked.scope, held.embedder, ACTIONS).find(wanted)).hits


def _item(hit: Hit) -> Item:
    doc = hit.doc
    outcome = f" ({doc['outcome']})" if doc["outcome"] else ""
    same = frozenset({f"text:{content_hash(doc['content'])}"})
    prefix = f"{str(doc['timestamp'])[:10]} {doc['action_type']}{outcome}: "
    return Item(doc["action_id"], "action", doc["content"], hit.score, prefix, same)


EPISODES = Arm("episodes", "Past actions", 0.15, {"general": 2, "recall": 5, "execute": 5}, gather)
