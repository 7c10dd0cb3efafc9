"""Source of facts: those that the search finds, and those linked with entities that the query names."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.searching import search
from app.core.clock import rfc3339
from app.facts.graph import Graph, Walk
from app.facts.models import FACTS, sentence
from app.facts.repository import FactRepository, View
from app.retrieval.retriever import Hit
from app.storage.filters import Range, both
from app.storage.schema import Doc
from app.storage.text import content_hash, normalise_content

HOPS, MAX_NODES = 2, 100
"""`HOPS`: steps from an entity that the query names ("Where does Ada's boss live?" needs a boss, and where she lives).
`MAX_NODES`: maximum entities that a walk visits."""
MAX_CHARACTERS = 1_000
MAX_WORDS = 25
NAME_WORDS = 4
LINKED_SCORE = 0.05
"""Score of a fact that is linked with an entity that the query names."""

_EDGES = re.compile(r"^\W+|(?:['\u2019]s?)?\W*$")


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns found and linked facts alternately, best first."""
    body = request.body
    view = View(body.as_of or rfc3339(request.now), body.known_at)
    trusted = None if body.min_trust is None else Range("trust", ge=body.min_trust)
    repository = FactRepository(request.resources.store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    graph = Graph(repository, pairs, view, trusted)
    retrieved, walk = await asyncio.gather(
        search(request, FACTS, both(view.believed(), trusted), request.limit),
        graph.walk(names(body.query), HOPS, max_nodes=MAX_NODES),
    )
    scores = {hit.doc["fact_id"]: hit.score for hit in retrieved.hits}
    found = _in_turn(retrieved.hits, _linked(walk))
    return [_item(fact, max(scores.get(fact["fact_id"], 0.0), _by_links(fact, walk))) for fact in found]


def names(query: str) -> list[str]:
    """Returns possible names of entities, normalised: each run of up to four words in the beginning of the query."""
    words = [_EDGES.sub("", word) for word in normalise_content(query[:MAX_CHARACTERS]).split()[:MAX_WORDS]]
    runs = (words[at : at + size] for size in range(1, NAME_WORDS + 1) for at in range(len(words) - size + 1))
    return list(dict.fromkeys(" ".join(run) for run in runs if all(run)))


def _linked(walk: Walk) -> list[Doc]:
    """Returns the facts nearest to each named entity, in turn, so that no entity displaces the others."""
    named: dict[str, str] = {}  # for each entity, the named entity from which the walk reached it
    links: dict[str, list[Doc]] = {}
    for _, fact in walk.edges.values():
        ends = [fact["subject_key"], fact["object_key"]]
        begun = [end for end in ends if end in named or end not in walk.nodes]
        start = named.get(begun[0], begun[0])
        named |= {end: start for end in ends if end not in named}
        links.setdefault(start, []).append(fact)
    return [fact for row in zip_longest(*links.values()) for fact in row if fact is not None]


def _by_links(fact: Doc, walk: Walk) -> float:
    """Returns the score of a fact for its link with an entity of the query, whatever its words are."""
    return LINKED_SCORE if any(one["fact_id"] == fact["fact_id"] for _, one in walk.edges.values()) else 0.0


def _in_turn(hits: Sequence[Hit], linked: Sequence[Doc]) -> Iterable[Doc]:
    both_kinds = zip_longest([hit.doc for hit in hits], linked)
    return {fact["fact_id"]: fact for pair in both_kinds for fact in pair if fact is not None}.values()


def _item(fact: Doc, score: float) -> Candidate:
    text = sentence(fact)
    same = frozenset({f"text:{content_hash(text)}"})
    return Candidate(fact["fact_id"], "fact", f"{text}{_span(fact)}", score, same=same)


def _span(fact: Doc) -> str:
    begun, ended = (fact[name] and str(fact[name])[:10] for name in ("valid_from", "valid_until"))
    if begun and ended:
        return f" ({begun} to {ended})"
    return f" (since {begun})" if begun else f" (until {ended})" if ended else ""


FACTS_SOURCE = ContextSource("facts", "Facts", gather, default_limit=40)
