"""The fitted numbers of the ranking and of the calibration of its score, by the embedding model whose vectors they were
fitted with (`data/weights.toml`).

Models differ in how far apart their cosines lie, and in how much a cosine adds to the words.
"""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pydantic import TypeAdapter

from app.embedding.model import without_runtime
from app.retrieval.query import FOLDER


@dataclass(frozen=True, slots=True)
class Blend:
    """Fitted log-odds for each unit of the features, for one kind of memory.

    `base`: log-odds relative to the other kinds. The others are the features of `FITTED` (`ranking.py`): all but
    `importance` and `recency`, which are set by hand in `Weights`.
    """

    base: float = 0.0
    vector_scaled: float = 0.0
    text_scaled: float = 0.0
    vector_rank: float = 0.0
    coverage: float = 0.0
    repeats: float = 0.0
    speaker: float = 0.0
    session: float = 0.0
    neighbour: float = 0.0
    number: float = 0.0
    question: float = 0.0
    length: float = 0.0
    long_question: float = 0.0


@dataclass(frozen=True, slots=True)
class Foreign:
    """Changes of the weights for the share of a query in scripts that the embedding model does not support.
    `vector_scaled` replaces the weight of every kind; the weight of `vector_rank` becomes 0. The other fields are added
    to a blend's."""

    vector_scaled: float = 0.0
    text_scaled: float = 0.0
    repeats: float = 0.0


@dataclass(frozen=True, slots=True)
class FirstHitWeights:
    """Fitted log-odds for each unit of the properties that order the first hits (`order_first_hits`)."""

    gap: float = 0.0
    cosine: float = 0.0
    newness: float = 0.0
    statement: float = 0.0
    length: float = 0.0
    renewed: float = 0.0
    second_hand: float = 0.0
    replaced: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of the ranking.

    Fitted: `person`, for what a user or a named speaker says in a session; `assistant`, for what an assistant without a
    name says there; `plain`, for all other memories; `when`, for a memory inside the time that the query names; and
    `first_turns` and `first_plain`, for the order of the first hits.

    Set by hand: `importance` and `recency`, small priors; `latest`, for the newest or the oldest of the best documents
    if the query asks for it: no word moves the log-odds of a document by more than this, so it decides between near
    answers and is no switch; `summary`, negative because the messages that a summary covers are found as well;
    `passage` and `least_passage`, for passages of documents (`ranking.of_passages`);
    `echo`, for a question of a conversation that asks what the query asks and so answers nothing (`echoes`);
    `echo_cosine`, the minimum cosine of a question that asks the same in other words (it depends on the embedding
    model); and `filler`, for a turn that says no more than "Noted." (`fillers`).
    """

    person: Blend
    assistant: Blend
    plain: Blend
    foreign: Foreign
    first_turns: FirstHitWeights = FirstHitWeights()
    first_plain: FirstHitWeights = FirstHitWeights()
    importance: float = 0.5
    recency: float = 0.2
    when: float = 0.0
    latest: float = 2.0
    summary: float = -1.5
    passage: float = -1.4
    least_passage: float = -5.0
    echo: float = -12.0
    echo_cosine: float = 0.6
    filler: float = -2.0


@dataclass(frozen=True, slots=True)
class CalibrationFactors:
    """Fitted log-odds for each unit of the properties of a query.

    `share`: log of a document's share of the odds of all, down to `KNEE`; `tail`: the part below `KNEE`. `nearest`: the
    best cosine. `coverage`: the best share of the query's words. `foreign`: the share of the query in scripts that the
    model does not support.
    """

    base: float = 0.0
    share: float = 1.0
    tail: float = 1.0
    nearest: float = 0.0
    coverage: float = 0.0
    foreign: float = 0.0
    foreign_coverage: float = 0.0


class OfCollection(NamedTuple):
    """Log-odds of a record that is no memory: `base + slope * z`, where `z` are those of a memory found alike."""

    base: float = 0.0
    slope: float = 1.0


LIKE_A_MEMORY = OfCollection()
# Fitted on stores of 12 actions and 5 procedures each with questions that one of them answers or none does, over the
# log-odds of the default model: of actions that a memory's calibration gives .5 one of ten helps. Facts have that of a
# memory: what fits them best by themselves (-3.2, 1.5) loses the links of chains, 11 of 24 answered instead of 23.
# The figures stand in docs/contributing/context.md.
OF_COLLECTION = {
    "action_logs": OfCollection(-2.46, 1.38),
    "procedures": OfCollection(-2.8, 1.2),
}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors for turns of conversations (`turn`) and for other memories (`plain`).

    They are mixed by the part of the odds that each of the two kinds has.
    """

    turn: CalibrationFactors
    plain: CalibrationFactors
    of_collection: OfCollection = LIKE_A_MEMORY


@dataclass(frozen=True, slots=True)
class AsksWeights:
    """The numbers by which it is told whether a query asks for anything (`likely_asks`)."""

    covered: float
    """Log-odds for a word that a document has and hardly any other one."""
    base: float


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The numbers of one embedding model.

    `asks` is fitted by scripts/fit_asking.py; None: every query asks for something.
    `related`: the cosine from which two texts have more in common than a language; one pair of 15 of a person's texts
    reaches it. `unrelated`: below it they have nothing in common; so lies half of the pairs. Models differ in both.
    """

    weights: Weights
    calibration: Calibration
    asks: AsksWeights | None = None
    related: float = 0.3
    unrelated: float = 0.1


_OF_MODEL = TypeAdapter(dict[str, ModelWeights]).validate_python(
    tomllib.loads((FOLDER / "weights.toml").read_text(encoding="utf-8"))
)
"""Fitted numbers by the part of a model's name before the runtime."""
DEFAULT, MULTILINGUAL = _OF_MODEL["all-MiniLM-L6-v2"], _OF_MODEL["multilingual-e5-small-aligned"]


@lru_cache(maxsize=16)
def weights_for(model: str) -> ModelWeights:
    """Returns the numbers for an embedder's name, `DEFAULT` if it has none."""
    return _OF_MODEL.get(without_runtime(model), DEFAULT)
