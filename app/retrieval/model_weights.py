"""The fitted numbers of the ranking and of the calibration of its score, by the embedding model whose vectors they were
fitted with.

Models differ in how far apart their cosines lie, and in how much a cosine adds to the words.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from app.embedding.model import without_runtime
from app.retrieval.query import AsksWeights


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


# Fitted by scripts/fit_ranking.py
DEFAULT_WEIGHTS = Weights(
    person=Blend(
        vector_scaled=2.21,
        text_scaled=0.32,
        vector_rank=13.03,
        coverage=3.47,
        repeats=-17.18,
        speaker=2.46,
        session=3.11,
        neighbour=3.47,
        number=0.66,
        question=-1.39,
        length=-2.12,
        long_question=1.28,
    ),
    assistant=Blend(
        base=-2.75,
        vector_scaled=4.07,
        text_scaled=1.54,
        session=1.71,
        neighbour=2.19,
        number=2.23,
        question=1.55,
        length=-1.57,
        long_question=-1.63,
    ),
    plain=Blend(
        base=-0.3, vector_scaled=6.04, coverage=4.93, repeats=-48.74, session=3.43, number=0.35, question=-0.49
    ),
    foreign=Foreign(vector_scaled=0.2, text_scaled=2.38, repeats=7.9),
    when=5.6,
)


@dataclass(frozen=True, slots=True)
class Terms:
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


class OfKind(NamedTuple):
    """Log-odds of a record that is no memory: `base + slope * z`, where `z` are those of a memory found alike."""

    base: float = 0.0
    slope: float = 1.0


LIKE_A_MEMORY = OfKind()
# Fitted on stores of 12 actions and 5 procedures each with questions that one of them answers or none does, over the
# log-odds of the default model: of actions that a memory's calibration gives .5 one of ten helps. Facts have that of a
# memory: what fits them best by themselves (-3.2, 1.5) loses the links of chains, 11 of 24 answered instead of 23.
# The figures stand in docs/contributing/context.md.
OF_KIND = {
    "action_logs": OfKind(-2.46, 1.38),
    "procedures": OfKind(-2.8, 1.2),
}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Terms for turns of conversations (`turn`) and for other memories (`plain`).

    They are mixed by the part of the odds that each of the two kinds has.
    """

    turn: Terms
    plain: Terms
    of_kind: OfKind = LIKE_A_MEMORY


# Fitted by scripts/fit_ranking.py
DEFAULT_CALIBRATION = Calibration(
    turn=Terms(
        base=-0.796, share=1.487, tail=0.741, nearest=1.368, coverage=1.103, foreign=0.07, foreign_coverage=5.153
    ),
    plain=Terms(
        base=-1.764, share=2.434, tail=0.699, nearest=7.421, coverage=-1.172, foreign=3.101, foreign_coverage=6.86
    ),
)


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The numbers of one embedding model.

    `asks`: by which it is told whether a query asks for anything (scripts/fit_asking.py); None: every query does.
    `related`: the cosine from which two texts have more in common than a language; one pair of 15 of a person's texts
    reaches it. `unrelated`: below it they have nothing in common; so lies half of the pairs. Models differ in both.
    """

    weights: Weights
    calibration: Calibration
    asks: AsksWeights | None = None
    related: float = 0.3
    unrelated: float = 0.1


DEFAULT = ModelWeights(DEFAULT_WEIGHTS, DEFAULT_CALIBRATION, AsksWeights(covered=3.526, base=4.506))
"""Numbers of all-MiniLM-L6-v2, also used for models without fitted numbers."""

# Fitted by `scripts/fit_ranking.py --model multilingual`
MULTILINGUAL = ModelWeights(
    Weights(
        person=Blend(
            vector_scaled=2.39,
            text_scaled=0.12,
            vector_rank=16.28,
            coverage=2.64,
            repeats=-18.02,
            speaker=2.37,
            session=3.43,
            neighbour=3.61,
            number=0.68,
            question=-1.59,
            length=-2.3,
            long_question=1.49,
        ),
        assistant=Blend(
            base=-3.07,
            vector_scaled=5.47,
            text_scaled=0.96,
            session=1.55,
            neighbour=2.3,
            number=2.08,
            question=1.44,
            length=-1.54,
            long_question=-1.56,
        ),
        plain=Blend(
            base=-0.61, vector_scaled=7.0, coverage=4.28, repeats=-53.54, session=3.33, number=0.51, question=-0.64
        ),
        foreign=Foreign(vector_scaled=0.2),
        when=5.14,
    ),
    Calibration(
        turn=Terms(base=-0.491, share=1.171, tail=0.826, nearest=1.069, coverage=0.872),
        plain=Terms(base=-1.085, share=2.045, tail=0.788, nearest=6.17, coverage=-0.082),
    ),
)

# Fitted by scripts/fit_ranking.py. `echo_cosine`, `related` and `unrelated` are where as many pairs of texts lie as
# with all-MiniLM-L6-v2
TAUGHT = ModelWeights(
    Weights(
        person=Blend(
            vector_scaled=3.02,
            text_scaled=0.81,
            vector_rank=18.77,
            coverage=2.81,
            repeats=-22.56,
            speaker=2.46,
            session=2.16,
            neighbour=2.49,
            number=0.59,
            question=-1.2,
            length=-1.42,
            long_question=1.06,
        ),
        assistant=Blend(
            base=-1.05,
            vector_scaled=5.1,
            text_scaled=0.83,
            session=1.93,
            neighbour=2.8,
            number=1.41,
            question=-0.56,
            length=-3.3,
            long_question=0.08,
        ),
        plain=Blend(
            base=-0.9, vector_scaled=6.93, coverage=4.4, repeats=-48.39, session=3.26, number=0.45, question=-0.52
        ),
        foreign=Foreign(vector_scaled=1.22, text_scaled=3.04, repeats=14.85),
        first_turns=FirstHitWeights(
            gap=-0.5, cosine=10.0, newness=3.0, statement=0.4, length=1.8, renewed=-2.0, second_hand=-2.0
        ),
        first_plain=FirstHitWeights(newness=0.6, replaced=-1.8),
        when=4.67,
        echo_cosine=0.68,
    ),
    Calibration(
        turn=Terms(
            base=-0.189, share=1.528, tail=0.671, nearest=1.149, coverage=0.511, foreign=0.279, foreign_coverage=2.789
        ),
        plain=Terms(
            base=-2.354, share=2.211, tail=0.603, nearest=7.176, coverage=-0.438, foreign=3.422, foreign_coverage=5.814
        ),
    ),
    asks=AsksWeights(covered=3.716, base=6.835),
    related=0.43,
    unrelated=0.21,
)

_OF_MODEL = {"multilingual-e5-small-aligned": MULTILINGUAL, "recalld-minilm-1": TAUGHT}
"""Fitted numbers by the part of a model's name before the runtime."""


@lru_cache(maxsize=16)
def weights_for(model: str) -> ModelWeights:
    """Returns the numbers for an embedder's name, `DEFAULT` if it has none."""
    return _OF_MODEL.get(without_runtime(model), DEFAULT)
