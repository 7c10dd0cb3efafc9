"""What an encoder learns of another one: how near its teacher holds a question and each memory of a batch.

The teacher's vectors may be of any width and lie as close together as they like: only the order of its cosines and
their gaps are learned, as a softmax over the memories of the batch (Hinton et al. 2015). The scale of its cosines is
the one at which that softmax tells the answers best.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.train.measure import Encode, encoders

Batch: TypeAlias = tuple[Sequence[str], Sequence[str], Any]
"""Questions, memories whose first ones answer them in this order, and where a memory is no negative."""
SCALES = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0)


class TeacherVectors:
    """The vectors that a teacher gives texts, each made once."""

    def __init__(self, queries: dict[str, Any], memories: dict[str, Any], scale: float = 20.0) -> None:
        self.queries, self.memories, self.scale = queries, memories, scale

    @classmethod
    def of(cls, model: str, queries: Sequence[str], memories: Sequence[str]) -> "TeacherVectors":
        of_queries, of_memories = encoders(model)
        return cls(_by_text(of_queries, queries), _by_text(of_memories, memories))

    def targets(self, queries: Sequence[str], memories: Sequence[str], blocked: Any) -> Any:
        """(queries, memories): which memory the teacher takes for the answer. Each row adds up to 1."""
        return torch.softmax(self._scores(queries, memories, blocked) * self.scale, dim=1)

    def fit(self, batches: Sequence[Batch]) -> None:
        """Sets the scale at which the teacher's own loss on the answers is least."""
        scores = [self._scores(*batch) for batch in batches]

        def loss(scale: float) -> float:
            losses = [torch.nn.functional.cross_entropy(rows * scale, torch.arange(len(rows))) for rows in scores]
            return float(torch.stack(losses).mean())

        self.scale = min(SCALES, key=loss)

    def _scores(self, queries: Sequence[str], memories: Sequence[str], blocked: Any) -> Any:
        asked = torch.stack([self.queries[text] for text in queries])
        told = torch.stack([self.memories[text] for text in memories])
        return (asked @ told.T).masked_fill(blocked, -1e4)


def _by_text(encode: Encode, texts: Sequence[str]) -> dict[str, Any]:
    distinct = sorted(set(texts))
    return dict(zip(distinct, torch.tensor(np.asarray(encode(distinct))), strict=True))
