"""The search that arms share: by meaning and words, or by words alone while the embedding model is away."""

from dataclasses import replace

from app.clock import to_ms
from app.context.items import Asked
from app.errors import EmbeddingUnavailable
from app.memories.decays import Decays
from app.memories.lookup import Hit, Lookup, Wanted
from app.storage.collection import Collection
from app.storage.filters import Filter


async def search(
    asked: Asked,
    collection: Collection,
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
    least_spread: float = 0.0,
) -> list[Hit]:
    """The best k for the query among what the agent may know of the user; what it did without is noted in `asked`."""
    body, held = asked.body, asked.held
    pairs = asked.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    wanted = Wanted(body.query, pairs, where, to_ms(asked.now), k, decays=decays, least_spread=least_spread)
    lookup = Lookup(held.store, asked.scope, held.embedder, collection)
    try:
        return (await lookup.find(wanted)).hits
    except EmbeddingUnavailable as fault:
        asked.faults.append(fault)
        return (await lookup.find(replace(wanted, mode="text", needs_vector=False))).hits
