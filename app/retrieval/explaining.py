"""What a hit's score is made of: its features, and what each of them adds to its log-odds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import orjson

from app.retrieval.features import FEATURES
from app.retrieval.query_analysis import QueryText
from app.retrieval.ranking import Ranked, Weights, foreign_weights, weight_columns
from app.storage.search import Columns, Floats


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a score is made of."""

    scores: dict[str, float]
    """The features by name, before their weights; with `rerank`, the score of the second stage, if there was one."""
    contributions: dict[str, float]
    """The log-odds that each feature adds, by name, in a hybrid search; else empty. Their sum orders the hits."""


def explained(
    ranked: Ranked,
    columns: Columns,
    query: QueryText,
    weights: Weights,
    index: int,
    reranked: float | None,
) -> Explanation:
    """Returns what the score of one document is made of.

    Args:
        ranked: The ranking.
        columns: The columns that were ranked.
        query: The query.
        weights: The weights of the ranking.
        index: The index of the document in the columns.
        reranked: The document's score in the second stage, if there was one.
    """
    scores = {name: values[index] for name, values in ranked.parts.items()}
    if reranked is not None:
        scores["rerank"] = reranked
    return Explanation(_short(scores), _short(contributions(ranked, columns, query, weights, index)))


def contributions(ranked: Ranked, columns: Columns, query: QueryText, weights: Weights, index: int) -> dict[str, float]:
    """Returns the log-odds that each feature adds to one document; those that add nothing are left out.

    `kind` is what the document has by its kind alone: a turn of a person, a turn of an assistant, a plain memory, a
    summary.
    """
    if ranked.known is None or ranked.lasting is None:
        return {}
    each, rest, base = (_of(one, index) for one in weight_columns(columns, weights))
    if query.foreign:
        each = each + query.foreign * (foreign_weights(each, weights.foreign) - each)
    values = np.concatenate((ranked.known[:, index], ranked.lasting[:, index]))
    found = {"kind": float(base)}
    found |= dict(zip(FEATURES, (values * np.concatenate((each, rest))).tolist(), strict=True))
    for name in ("echo", "filler", "when", "latest"):
        if name in ranked.plain:
            found[name] = float(ranked.plain[name][index]) * float(getattr(weights, name))
    return {name: value for name, value in found.items() if value}


def _of(weights: Floats, index: int) -> Floats:
    """Returns the weights of one document. `weights` has one column for each document or one for all."""
    found: Floats = weights[..., index if weights.shape[-1] > 1 else 0]
    return found


def _short(values: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(values, as_short(np.array(list(values.values()), np.float32)), strict=True))


def as_short(values: Floats) -> list[float]:
    """Returns the values with the digits of a float32, so that small scores stay distinct.

    orjson writes and reads them in this form faster than Python formats one number.
    """
    found: list[float] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return found
