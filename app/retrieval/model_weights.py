"""The ranking's weights and the calibration of its score, by the embedding model whose vectors they were fitted with.

Models differ in how far apart their cosines lie, and in how much a cosine adds to the words.
"""

from dataclasses import dataclass
from functools import lru_cache

from app.retrieval.calibration import DEFAULT_CALIBRATION, Calibration, Terms
from app.retrieval.ranking import DEFAULT_WEIGHTS, Blend, Foreign, Weights


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The fitted numbers of one embedding model."""

    weights: Weights
    calibration: Calibration


DEFAULT = ModelWeights(DEFAULT_WEIGHTS, DEFAULT_CALIBRATION)
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

_OF_MODEL = {"multilingual-e5-small-aligned": MULTILINGUAL}
"""Fitted numbers by the part of a model's name before the runtime."""


@lru_cache(maxsize=16)
def weights_for(model: str) -> ModelWeights:
    """Returns the numbers for an embedder's name, `DEFAULT` if it has none."""
    return _OF_MODEL.get(model.partition(":")[0], DEFAULT)
