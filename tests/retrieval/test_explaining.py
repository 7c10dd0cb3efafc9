"""What a score is made of."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.model_weights import DEFAULT
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import SearchMode, contributions, document_features, explained, log_odds, query_features
from app.storage.search import Columns
from tests.support.columns import NOBODY, NOW, SPOKEN, rank, scopes

FOREIGN = replace(NOBODY, foreign=0.6)
NOW_ASKED = replace(NOBODY, order="present")
WITHOUT_SUBJECT = replace(NOBODY, order="earliest", subject=False)
PAST = (NOW - 40 * 86_400_000, NOW)


@given(scopes(), st.sampled_from((NOBODY, SPOKEN, FOREIGN, NOW_ASKED, WITHOUT_SUBJECT)), st.sampled_from(((), (PAST,))))
def test_the_contributions_are_the_log_odds_that_order_the_hits(
    columns: Columns, query: SettledQuery, readings: tuple[tuple[int, int], ...]
) -> None:
    ranked = rank(columns, query, "hybrid", NOW, readings=readings)
    text = ranked.parts["text"]
    features = query_features(columns, query, text), document_features(columns, NOW)
    odds, _ = log_odds(columns, query, *features, DEFAULT.weights, readings)
    for index in range(len(odds)):
        found = contributions(ranked, columns, query, DEFAULT.weights, index)
        assert sum(found.values()) == pytest.approx(float(odds[index]), rel=1e-4, abs=1e-3)
        assert all(found.values())
    ordered = odds[ranked.order]
    assert np.all(ordered[:-1] >= ordered[1:])


@pytest.mark.parametrize("mode", ["vector", "text"])
@given(scopes())
def test_one_feature_alone_has_no_contributions(mode: SearchMode, columns: Columns) -> None:
    ranked = rank(columns, NOBODY, mode, NOW)
    for index in ranked.order.tolist():
        why = explained(ranked, columns, NOBODY, DEFAULT.weights, index, None)
        assert list(why.scores) == [mode]
        assert why.contributions == {}
