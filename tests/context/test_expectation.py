"""What a query expects of memory, by numbers made up for the test: which rule decides, not where it was fitted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.context.candidates import Candidate
from app.context.expectation import Rest, more_features
from app.context.packing_weights import PackingWeights, packing_weights_for
from app.context.stop_rule import NEAREST_TOKENS, StopRule
from app.retrieval.query_evidence import QueryEvidence

ANY = PackingWeights(0.5, (0.0,) * 6 + (9.0,), 0.5, (0.0,) * 5 + (9.0,), 0.5)
"""A query that likely asks for something needs more than the nearest entries, and all the rest."""
NOTHING = (0.0,) * 6 + (-9.0,)
EVIDENCE = QueryEvidence(best=0.5, words=2.0, covered=0.2, count=50, asks=0.9)
SMALL_TALK = replace(EVIDENCE, asks=0.1)


def entries(*scores: float) -> list[Candidate]:
    return [Candidate(f"m{at}", "message", "words", score) for at, score in enumerate(scores)]


def begun(rule: StopRule, items: Sequence[Candidate]) -> StopRule:
    rule.begin(items)
    return rule


def packed(weights: PackingWeights, *evidence: QueryEvidence, count: int = 20) -> int:
    """How many entries of 50 tokens are packed."""
    rule = begun(StopRule(evidence, weights), entries(*[0.5] * count))
    return next((at for at in range(count) if rule.is_enough(at, 50 * at, 50)), count)


def test_a_query_that_asks_for_nothing_gets_nothing() -> None:
    assert packed(ANY, EVIDENCE) == 20
    assert packed(ANY, SMALL_TALK) == 0


@pytest.mark.parametrize(
    "evidence",
    [replace(SMALL_TALK, best=1.0, covered=0.8), replace(SMALL_TALK, asks=None)],
    ids=["a name that an entry has", "no vector"],
)
def test_what_may_ask_for_something_gets_it(evidence: QueryEvidence) -> None:
    assert packed(ANY, evidence) == 20


def test_one_collection_that_has_it_is_enough() -> None:
    assert packed(ANY, SMALL_TALK, EVIDENCE) == 20


def test_what_nothing_surely_answers_gets_the_nearest_entries() -> None:
    assert packed(replace(ANY, more=NOTHING), EVIDENCE) == NEAREST_TOKENS // 50


def test_the_first_entry_is_packed_however_long() -> None:
    rule = begun(StopRule([EVIDENCE], replace(ANY, more=NOTHING)), entries(0.5, 0.4))
    assert not rule.is_enough(0, 0, 10 * NEAREST_TOKENS)
    assert rule.is_enough(1, 10 * NEAREST_TOKENS, 1)


def test_packing_ends_when_little_is_left() -> None:
    by_share = replace(ANY, rest=(0.0, 0.0, 1.0, 0.0, 0.0, 3.0))  # the log of the share of the scores that is left
    rest = Rest([0.9, 0.5, 0.01, 0.001], by_share)
    assert [rest.is_needed(at, 50 * at) for at in range(4)] == [True, True, False, False]


def test_packing_ends_earlier_where_the_turns_have_what_was_found() -> None:
    by_share = replace(ANY, rest=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0), least_rest=0.02)
    falling = entries(*(0.5**at for at in range(20)))

    def taken(cached_share: float) -> int:
        rule = begun(StopRule([EVIDENCE], by_share, cached_share=cached_share), falling)
        return next(at for at in range(20) if rule.is_enough(at, 50 * at, 50))

    assert taken(0.0) > taken(0.5) > taken(1.0) > 0


def test_entries_that_stand_out_differ_from_a_flat_row() -> None:
    def stands_out(scores: Sequence[float]) -> float:
        return more_features(EVIDENCE, scores)[-1]

    assert stands_out([0.6] * 12) == 0
    assert stands_out([0.6, *[0.01] * 11]) > 3
    assert stands_out([]) == 0


def test_the_packaged_model_has_numbers_and_an_unknown_one_fills() -> None:
    assert packing_weights_for("all-MiniLM-L6-v2:onnx-int8-x") is not None
    assert packing_weights_for("recalld-minilm-1:onnx-int8-x") is not None
    assert packing_weights_for("somebody/else") is None
