"""Facts that a model learns: the known ones that it is shown, and how those that it found are asserted."""

from collections.abc import Sequence
from typing import TypedDict

from app.core.clock import rfc3339, to_ms
from app.facts.profile import field_of
from app.facts.repository import View
from app.facts.schemas import FACTS, USER, FactCreate
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import DerivationResult
from app.learning.extraction import DroppedCounts
from app.memories.schemas import Source
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.storage.changes import Change
from app.storage.scope import Partition, Scope

KNOWN_FACTS = 30


class KnownFact(TypedDict):
    """A fact as the model is shown it."""

    subject: str
    predicate: str
    object: str


async def known_facts(
    tools: Tools, scope: Scope, near: str, pairs: tuple[Partition, ...], user_name: str
) -> list[KnownFact]:
    """Returns facts of the partitions that are near to a text, so that the model reuses names and predicates. Those
    about the user have `user_name` as subject."""
    now = tools.clock.now()
    lookup = Retriever(tools.store, scope, tools.embedder, FACTS)
    retrieved = await lookup.find(
        RetrievalQuery(near, pairs, View(rfc3339(now), None).believed(), to_ms(now), KNOWN_FACTS)
    )
    return [
        {
            "subject": user_name if hit.doc["subject"] == USER else hit.doc["subject"],
            "predicate": hit.doc["predicate"],
            "object": hit.doc["object"],
        }
        for hit in retrieved.hits
        if field_of(hit.doc) != "name"
    ]


async def asserted(
    tools: Tools,
    scope: Scope,
    drawn: Sequence[tuple[FactCreate, Source]],
    dropped: DroppedCounts,
    source: Source,
) -> tuple[DerivationResult, list[Change]]:
    """Returns a result for the report and the changes that assert `drawn`: facts, each with further fields of its
    source."""
    if not drawn:
        return {"fact_ids": [], "dropped": dict(dropped)}, []
    service = tools.facts(scope)
    sources: list[Source] = [{**source, **more} for _, more in drawn]
    outcome = await service.assert_all([body for body, _ in drawn], ALWAYS, sources)
    fact_ids = [fact["fact_id"] for fact in outcome.body["items"]]
    return {"fact_ids": fact_ids, "dropped": dict(dropped)}, list(outcome.changes)
