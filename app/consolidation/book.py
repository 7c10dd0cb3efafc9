"""Facts that were drawn from something, into the book of facts: the same from conversations and from what was done."""

from collections.abc import Sequence

from app.clock import rfc3339, to_ms
from app.consolidation.merge import Dropped
from app.consolidation.tools import ALWAYS, Tools
from app.facts.models import FACTS
from app.facts.query import View
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate
from app.facts.service import FactService
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup, Wanted
from app.storage.collection import Change, Doc
from app.storage.scope import Pair, Scope

KNOWN_FACTS = 30


async def known(tools: Tools, scope: Scope, near: str, pairs: tuple[Pair, ...]) -> list[Doc]:
    """What the pairs' book holds near to a text, so that names and predicates stay the same."""
    now = tools.clock.now()
    lookup = Lookup(tools.store, scope, tools.embedder, FACTS)
    looked = await lookup.find(Wanted(near, pairs, View(rfc3339(now), None).held(), to_ms(now), KNOWN_FACTS))
    return [{name: hit.doc[name] for name in ("subject", "predicate", "object")} for hit in looked.hits]


async def asserted(
    tools: Tools,
    scope: Scope,
    drawn: Sequence[tuple[FactCreate, list[str]]],
    dropped: Dropped,
    source: Doc,
    cites: str,
) -> tuple[Doc, list[Change]]:
    """What to tell of it and the changes that assert `drawn`: facts, each with the ids of what it comes from, which go
    into the source's field `cites`."""
    if not drawn:
        return {"fact_ids": [], "dropped": dict(dropped)}, []
    cited = list(dict.fromkeys(each for _, ids in drawn for each in ids))
    lookup = Lookup(tools.store, scope, tools.embedder, FACTS)
    service = FactService(FactRepository(tools.store, scope), Embeddings(tools.embedder), lookup, tools.clock)
    outcome = await service.assert_all([body for body, _ in drawn], ALWAYS, {**source, cites: cited})
    fact_ids = [fact["fact_id"] for fact in outcome.body["items"]]
    return {"fact_ids": fact_ids, "dropped": dict(dropped)}, list(outcome.changes)
