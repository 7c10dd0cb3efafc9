"""Rerankers that do as a test tells them, and the folders of small real ones."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from app.embedding import onnx

DATA = Path(__file__).parents[1] / "embedding" / "data"


def by_length(query: str, texts: Sequence[str]) -> list[float]:
    """The shortest text is best."""
    return [-float(len(text)) for text in texts]


class ScriptedReranker:
    """Scores by `rule`, which may raise; while `open` is not set, calls wait."""

    name = "scripted"

    def __init__(self, rule: Callable[[str, Sequence[str]], list[float]] = by_length, at_once: int = 1) -> None:
        self.rule, self.at_once = rule, at_once
        self.calls: list[tuple[str, list[str]]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls.append((query, list(texts)))
        await self.open.wait()
        return self.rule(query, texts)

    async def close(self) -> None:
        self.closed = True


def model_folder(folder: Path, graph: str) -> Path:
    """A folder as RECALLD_RERANKER names one, with a graph of make_rerankers.py."""
    folder.mkdir(parents=True)
    shutil.copy(DATA / f"{graph}.onnx", folder / "model.onnx")
    shutil.copy(onnx.DATA / "tokenizer.json", folder / "tokenizer.json")
    return folder
