"""A model that takes no time unless told to, and remembers its batches."""

import threading
from collections.abc import Sequence

import numpy as np

from app.embedding.model import Prompts, Vectors


class FakeModel:
    """The vector of a text points along (its length, 1). A text that holds `poison` raises."""

    name: str = "fake"
    dim = 2
    piece_tokens: int | None = None
    runs_beside_itself = False
    prompts = Prompts()

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = threading.Event()  # closed: a batch waits inside the model
        self.open.set()
        self.entered = threading.Event()

    def split(self, text: str) -> list[str]:
        if "poison" in text:
            raise ValueError("poison")
        return text.split("|")

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.entered.set()
        assert self.open.wait(60)
        if any("poison" in text for text in texts):
            raise ValueError("poison")
        rows = np.array([self.vector(text) for text in texts], np.float32)
        return rows[:, :1] if "short" in texts else rows

    @staticmethod
    def vector(text: str) -> Vectors:
        if text in ("nan", "zero"):
            return np.full(2, np.nan if text == "nan" else 0, np.float32)
        pair = np.array([len(text), 1], np.float32)
        return np.asarray(pair / np.linalg.norm(pair), np.float32)
