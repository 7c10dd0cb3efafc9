"""What was done before that resembles what is asked now, with how it went."""

from app.actions.models import ACTIONS
from app.clock import rfc3339
from app.context.arms.searching import search
from app.context.items import Arm, Asked, Item
from app.memories.lookup import Hit
from app.storage.filters import Range
from app.storage.text import content_hash


async def gather(asked: Asked) -> list[Item]:
    until = Range("timestamp", le=asked.body.as_of or rfc3339(asked.now))
    return [_item(hit) for hit in await search(asked, ACTIONS, until, 2 * asked.limit)]


def _item(hit: Hit) -> Item:
    doc = hit.doc
    outcome = f" ({doc['outcome']})" if doc["outcome"] else ""
    same = frozenset({f"text:{content_hash(doc['content'])}"})
    prefix = f"{str(doc['timestamp'])[:10]} {doc['action_type']}{outcome}: "
    return Item(doc["action_id"], "action", doc["content"], hit.score, prefix, same)


EPISODES = Arm("episodes", "Past actions", 0.15, {"general": 2, "recall": 5, "execute": 5}, gather)
