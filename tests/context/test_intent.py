"""The intent of a query follows from which kinds of memory answer it."""

from typing import get_args

import pytest

from app.context.layout import ANSWERS, intent_of
from app.context.schemas import Intent
from app.context.sources import SOURCES

HIGH, LOW = ANSWERS * 2, ANSWERS / 2


@pytest.mark.parametrize(
    ("best", "intent"),
    [
        ({}, "general"),
        ({"memories": LOW, "procedures": LOW}, "general"),
        ({"memories": ANSWERS}, "recall"),
        ({"facts": HIGH, "procedures": ANSWERS}, "recall"),
        ({"episodes": HIGH}, "recall"),
        ({"procedures": HIGH}, "execute"),
        ({"procedures": HIGH, "memories": ANSWERS}, "execute"),
        ({"procedures": LOW, "memories": LOW, "facts": HIGH}, "recall"),
    ],
)
def test_it_is_that_of_the_kind_of_memory_that_answers_best(best: dict[str, float], intent: Intent) -> None:
    assert intent_of(best, has_task=False) == intent
    assert intent_of(dict(reversed(best.items())), has_task=False) == intent


def test_with_a_task_it_is_to_execute() -> None:
    for best in ({}, {"memories": HIGH}, {"procedures": HIGH}):
        assert intent_of(best, has_task=True) == "execute"


def boosts(intent: Intent) -> dict[str, float]:
    return {source.section: source.boosts[intent] for source in SOURCES if intent in source.boosts}


@pytest.mark.parametrize("intent", get_args(Intent))
def test_an_intent_takes_worth_from_nothing(intent: Intent) -> None:
    assert all(boost >= 1 for boost in boosts(intent).values())


def test_each_intent_moves_other_sections_but_the_general_one() -> None:
    assert boosts("general") == {}
    assert set(boosts("recall")) == {"memories", "facts"}
    assert set(boosts("execute")) == {"procedures", "experience", "episodes"}
