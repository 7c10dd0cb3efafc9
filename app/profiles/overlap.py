"""How much of a query short texts have, by words alone: a request embeds nothing for an agent's lessons and a user's
interactions."""

import math
from collections import Counter
from collections.abc import Sequence

from app.core.caches import kept_by_digest
from app.storage.text import text_ids


def shares(query: str, texts: Sequence[str]) -> list[float]:
    """Returns the share of the query's terms that each text has, 0 to 1.

    A term weighs log(1 + n / texts with it), so common terms weigh little: where every text is about parcels, a text
    about refunds has more of "refund a parcel" than the others.
    """
    term_sets, query_terms = [_terms(text) for text in texts], frozenset(text_ids(query).tolist())
    often = Counter(term for terms in term_sets for term in terms & query_terms)
    weights = {term: math.log(1 + len(texts) / max(often[term], 1)) for term in query_terms}
    whole = sum(weights.values()) or 1.0
    return [sum(weights[term] for term in terms & query_terms) / whole for terms in term_sets]


@kept_by_digest(16 << 20, lambda ids: 100 * len(ids))
def _terms(text: str) -> frozenset[int]:
    """Kept, because to analyse the 350 lessons of a full experience takes tens of milliseconds. No text of a lesson
    stays in the process after it was erased."""
    return frozenset(text_ids(text).tolist())
