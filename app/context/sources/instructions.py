"""Source of rules that apply to every query: pinned memories and instructions."""

import numpy as np

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.memories import visible
from app.core.clock import to_ms
from app.memories.decay_settings import Decays
from app.memories.models import MEMORIES, STANDING
from app.storage.filters import Eq, Or, both
from app.storage.schema import Doc
from app.storage.search import SearchQuery
from app.storage.text import content_hash

MOST = 50


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the rules: pinned ones first, then by trust and importance."""
    body, resources = request.body, request.resources
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    rules = Or(
        (Eq("standing", STANDING), Eq("memory_type", "instruction"))
    )  # earlier versions stored no field `standing`
    where = both(rules, visible(request))
    none = np.empty(0, np.uint32)
    columns = await resources.store.search(
        MEMORIES, SearchQuery(request.scope.tenant, pairs, where, None, resources.embedder.name, none)
    )
    rows = columns.rows[columns.matched]
    found = await resources.store.fetch(MEMORIES, request.scope.tenant, rows) if len(rows) else []
    docs = [one.doc for one in found if one is not None and request.scope.sees(one.doc)]
    decays, now = Decays(resources.agents, request.scope.tenant), to_ms(request.now)
    importance = {doc["memory_id"]: await decays.importance(doc, now) for doc in docs}
    docs.sort(key=lambda doc: (not doc["pinned"], -doc["trust"], -importance[doc["memory_id"]], doc["memory_id"]))
    return [_item(doc) for doc in docs]


def _item(doc: Doc) -> Candidate:
    text = doc["content"] if not doc["context"] else f"{doc['content']} ({doc['context']})"
    same = frozenset({f"memory:{doc['memory_id']}", f"rule:{content_hash(text)}"})
    return Candidate(doc["memory_id"], doc["memory_type"], text, same=same, memory_id=doc["memory_id"])


INSTRUCTIONS = ContextSource("instructions", "Rules set by the user or the operator", gather, MOST, share=0.25)
