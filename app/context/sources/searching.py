"""The search that sources share."""

from app.context.candidates import SourceRequest
from app.core.clock import to_ms
from app.memories.decay_settings import Decays
from app.retrieval.retriever import RetrievalQuery, RetrievalResult, Retriever
from app.storage.filters import Filter
from app.storage.schema import Collection


async def search(
    asked: SourceRequest,
    collection: Collection,
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
    partners: bool = False,
) -> RetrievalResult:
    """The best k for the query among what the agent may know of the user; warnings of the search go into `asked`.

    The query's vector may take half of the source's time, and the second stage a quarter, so that a slow one costs
    quality and not the source.
    """
    body, held = asked.body, asked.held
    pairs = asked.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    wanted = RetrievalQuery(
        body.query,
        pairs,
        where,
        to_ms(asked.now),
        k,
        decays=decays,
        vector_seconds=held.settings.context.arm_seconds / 2,
        rerank_seconds=held.settings.context.arm_seconds / 4,
        interval=asked.interval,
        partners=partners,
    )
    looked = await Retriever(held.store, asked.scope, held.embedder, collection, held.second_stage).find(wanted)
    asked.warnings += looked.warnings
    return looked
