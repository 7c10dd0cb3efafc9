"""Near records are paired by the store's vectors, scored by what tells them apart, and bounded."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.learning.dependencies import Tools
from app.reflection.candidates import (
    FEATURES,
    NEIGHBOURS,
    CandidatePair,
    PairSide,
    candidates,
    comparable,
    features,
    likely,
    probability,
)
from app.reflection.finders import Owner, look_at, near_pairs
from app.storage.search import Scope
from tests.conftest import Service
from tests.reflection.test_comparing import record
from tests.reflection.test_reflection import settings
from tests.support.findings import memory

__all__ = ["settings"]

TRAINING = Path("tests/data/reflection_training.jsonl")


async def pairs_of(service: Service, user: str = "u") -> list[CandidatePair]:
    look = await look_at(_tools(service), Scope("default"), Owner("default", "a", user))
    return await near_pairs(look, [])


def _tools(service: Service) -> Tools:
    held = service.resources
    return Tools(held.store, held.embedder, held.clock, held.settings)


@pytest.mark.anyio
async def test_near_memories_and_facts_of_one_user_are_paired_and_of_no_other(service: Service) -> None:
    mine = {await memory(service, "I play chess on Mondays."), await memory(service, "I gave up chess for go.")}
    other = await memory(service, "I play chess on Mondays as well.", user_id="v")
    fact = {"agent_id": "a", "user_id": "u", "subject": "user", "predicate": "plays", "object": "chess"}
    made = (await service.client.post("/v1/facts", json=fact)).json()["fact_id"]
    found = {one for pair in await pairs_of(service) for one in (pair.earlier.id, pair.later.id)}
    assert found == mine | {made}
    assert other not in found


@pytest.mark.anyio
async def test_each_record_is_paired_with_its_nearest_ones(service: Service) -> None:
    for at in range(NEIGHBOURS + 6):
        await memory(service, f"I planted {at + 2} apple trees in the garden near the house.")
    found = await pairs_of(service)
    assert len(found) <= (NEIGHBOURS + 6) * NEIGHBOURS
    assert all(pair.earlier.said_at <= pair.later.said_at for pair in found)
    assert sorted((pair.score for pair in found), reverse=True) == [pair.score for pair in found]


@pytest.mark.anyio
async def test_the_vectors_of_the_store_are_those_of_the_texts(service: Service) -> None:
    texts = ["I play chess on Mondays.", "I gave up chess for go.", "My aunt sells umbrellas."]
    for text in texts:
        await memory(service, text)
    vectors = np.array(await service.resources.embedder.embed_texts(texts))
    wanted = {frozenset((texts[i], texts[j])): float(vectors[i] @ vectors[j]) for i in range(3) for j in range(i)}
    look = await look_at(_tools(service), Scope("default"), Owner("default", "a", "u"))
    held = service.resources
    found = await candidates(held.store, "default", look.owner.pairs, held.embedder.name, look.records)
    assert found
    for pair in found:
        assert pair.cosine == pytest.approx(wanted[frozenset((pair.earlier.text, pair.later.text))], abs=0.02)


TEXTS = st.text("abc AB.?,0123 äñ", max_size=60)


@given(TEXTS, TEXTS, st.floats(-1, 1))
def test_any_texts_have_features_and_a_score(one: str, other: str, cosine: float) -> None:
    values = features(PairSide.of(one), PairSide.of(other), cosine)
    assert values.shape == (len(FEATURES),)
    assert np.isfinite(values).all()
    assert 0 <= probability(values) <= 1


def test_a_mere_answer_or_a_question_is_not_shown_without_a_judge() -> None:
    quit_choir = PairSide.of("I no longer sing in the choir, Mondays are free now.")
    assert not comparable(PairSide.of("Fingers crossed."), quit_choir, 0.9)
    assert comparable(PairSide.of("I sing in the big choir every Monday."), quit_choir, 0.5)
    assert not comparable(PairSide.of("I sing in the big choir every Monday."), PairSide.of("Which choir is big?"), 0.9)
    wedding = PairSide.of("We married in the town hall in 1987.")
    assert comparable(wedding, PairSide.of("Which hymn suits our wedding in the town hall in 1989?"), 0.5)


def test_one_pair_is_shown_of_each_later_record() -> None:
    first, second, later = record("I sing alto."), record("I sing in Leeds.", 2), record("I quit singing.", 3)
    pairs = [CandidatePair(second, later, 0.5, 0.9), CandidatePair(first, later, 0.5, 0.8)]
    assert likely(pairs) == pairs[:1]
    assert likely([CandidatePair(first, later, 0.5, 0.2)]) == []
    assert likely([CandidatePair(first, later, 0.5, 0.9, plain=False)]) == []


def test_the_training_pairs_are_of_three_languages_and_both_kinds() -> None:
    pairs = [json.loads(line) for line in TRAINING.read_text(encoding="utf-8").splitlines()]
    counts = {(one["language"], one["conflict"]) for one in pairs}
    assert counts == {(language, kind) for language in ("en", "de", "es") for kind in (True, False)}
    assert len({(one["earlier"], one["later"]) for one in pairs}) == len(pairs)
