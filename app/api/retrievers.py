"""The retriever of callers' searches."""

from app.resources import Resources
from app.retrieval.retriever import Retriever
from app.storage.schema import Collection, R
from app.storage.scope import Scope


def retriever_of(resources: Resources, scope: Scope, collection: Collection[R]) -> Retriever[R]:
    """Returns a retriever that reranks the first hits, if there is a second stage, and takes the names that aliases
    join for one. Background work does neither and makes its own."""
    return Retriever(resources.store, scope, resources.embedder, collection, resources.second_stage, resources.names)
