"""The search that sources share."""

from app.context.candidates import SourceRequest
from app.core.clock import to_ms
from app.memories.decay_settings import Decays
from app.retrieval.retriever import RetrievalQuery, RetrievalResult, Retriever
from app.storage.filters import Filter
from app.storage.schema import Collection


async def search(
    request: SourceRequest,
    collection: Collection,
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
    partners: bool = False,
) -> RetrievalResult:
    """The best k for the query among what the agent may know of the user; warnings of the search go into `request`.

    The query's vector may take half of the source's time, and the second stage a quarter, so that a slow one costs
    quality and not the source.
    """
    body, resources = request.body, request.resources
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    wanted = RetrievalQuery(
        body.query,
        pairs,
        where,
        to_ms(request.now),
        k,
        decays=decays,
        vector_seconds=resources.settings.context.arm_seconds / 2,
        rerank_seconds=resources.settings.context.arm_seconds / 4,
        interval=request.interval,
        partners=partners,
    )
    retrieved = await Retriever(
        resources.store, request.scope, resources.embedder, collection, resources.second_stage
    ).find(wanted)
    request.warnings += retrieved.warnings
    return retrieved
