"""The search that several sources use."""

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
    """Searches a collection for the request's query, within what the agent may see of the user. Adds warnings to
    `request`.

    The query's vector may take half of the source's time, and the second stage a quarter, so that a slow model reduces
    the quality and does not make the source fail.
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
