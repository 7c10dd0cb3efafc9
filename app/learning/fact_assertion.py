"""Asserts facts that were learned, and compares what two texts claim."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeAlias

from app.core.clock import rfc3339, to_ms
from app.facts.models import FACTS
from app.facts.repository import FactRepository, View
from app.facts.schemas import FactCreate
from app.facts.service import FactService
from app.learning.dependencies import ALWAYS, Tools
from app.learning.output_validation import DroppedCounts
from app.memories.indexing import Embeddings
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.storage.changes import Change
from app.storage.schema import Doc
from app.storage.scope import Partition, Scope

Claim: TypeAlias = tuple[str, ...]

SILENT = frozenset("a an the really truly indeed also please".split())
"""Words that add nothing to a claim, at any position."""
SUBJECT = ("user",)
"""A user's memory is about the user even if it does not begin with this word. If it does, its verb is in the third
person."""
_CONTRACTED = (
    (re.compile(r"\bcan't\b|\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"\bi'm\b"), "i am"),
)
_SPELLED = str.maketrans({**dict.fromkeys("\u2018\u2019\u02bc`", "'"), **dict.fromkeys("\u2010\u2011", "-")})
_END = re.compile(r"[.!\u2026\u3002\uff01]+(?=\s|$)")
_TOKEN = re.compile(r"\w+(?:[.,:/'-]\w+)*|[^\w\s]")
_THIRD_PERSON = {"has": "have", "does": "do", "goes": "go"}


def claim(text: str) -> Claim:
    """Returns the words of a claim in order, so that texts with the same claim compare equal."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_SPELLED)
    for contracted, whole in _CONTRACTED:
        plain = contracted.sub(whole, plain)
    plain = _END.sub(" ", plain)
    said = [token for token in _TOKEN.findall(plain) if token not in SILENT]
    if tuple(said[:1]) == SUBJECT and len(said) > 1:
        said = said[1:]
    if said:
        said[0] = _plural(said[0])
    return tuple(said) or (text,)


def _plural(verb: str) -> str:
    """Returns the base form of a first word, which is a verb if the subject is omitted: `prefers` becomes `prefer`."""
    if verb in _THIRD_PERSON:
        return _THIRD_PERSON[verb]
    return verb[:-1] if len(verb) > 3 and verb.isalpha() and verb.endswith("s") and verb[-2] not in "sui" else verb


KNOWN_FACTS = 30


async def known(tools: Tools, scope: Scope, near: str, pairs: tuple[Partition, ...]) -> list[Doc]:
    """Returns facts of the partitions that are near to a text, so that the model reuses names and predicates."""
    now = tools.clock.now()
    lookup = Retriever(tools.store, scope, tools.embedder, FACTS)
    retrieved = await lookup.find(
        RetrievalQuery(near, pairs, View(rfc3339(now), None).believed(), to_ms(now), KNOWN_FACTS)
    )
    return [{name: hit.doc[name] for name in ("subject", "predicate", "object")} for hit in retrieved.hits]


async def asserted(
    tools: Tools,
    scope: Scope,
    drawn: Sequence[tuple[FactCreate, list[str]]],
    dropped: DroppedCounts,
    source: Doc,
    cites: str,
) -> tuple[Doc, list[Change]]:
    """Returns a result for the report and the changes that assert `drawn`: facts, each with the ids of its sources,
    which are stored in the field `cites` of the fact's source."""
    if not drawn:
        return {"fact_ids": [], "dropped": dict(dropped)}, []
    cited = list(dict.fromkeys(each for _, ids in drawn for each in ids))
    lookup = Retriever(tools.store, scope, tools.embedder, FACTS)
    service = FactService(FactRepository(tools.store, scope), Embeddings(tools.embedder), lookup, tools.clock)
    outcome = await service.assert_all([body for body, _ in drawn], ALWAYS, {**source, cites: cited})
    fact_ids = [fact["fact_id"] for fact in outcome.body["items"]]
    return {"fact_ids": fact_ids, "dropped": dict(dropped)}, list(outcome.changes)
