"""How much of a query short texts have, by words alone: a request embeds nothing for an agent's lessons and a user's
interactions."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from app.core.caches import kept_by_digest
from app.storage.text import text_ids


class Overlap(NamedTuple):
    """What a text has of a query: the share of its terms, 0 to 1, and whether it has one that is rare."""

    share: float
    has_rare: bool


def overlaps(query: str, texts: Sequence[str]) -> list[Overlap]:
    """Returns what each text has of the query's terms.

    A term weighs log(1 + n / texts with it), so common terms weigh little: where every text is about parcels, a text
    about refunds has more of "refund a parcel" than the others. One of at least half of the largest weight is rare.
    """
    term_sets, query_terms = [_terms(text) for text in texts], frozenset(text_ids(query).tolist())
    often = Counter(term for terms in term_sets for term in terms & query_terms)
    weights = {term: math.log(1 + len(texts) / max(often[term], 1)) for term in query_terms}
    whole = sum(weights.values()) or 1.0
    rare = {term for term, weight in weights.items() if 2 * weight >= math.log(1 + len(texts))}
    return [
        Overlap(sum(weights[term] for term in terms & query_terms) / whole, not rare.isdisjoint(terms))
        for terms in term_sets
    ]


@kept_by_digest(16 << 20, lambda ids: 100 * len(ids))
def _terms(text: str) -> frozenset[int]:
    """Kept, because to analyse the 350 lessons of a full experience takes tens of milliseconds. No text of a lesson
    stays in the process after it was erased."""
    return frozenset(text_ids(text).tolist())
