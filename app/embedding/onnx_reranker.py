"""The local reranker, an ONNX model that reads query and text together, and the choice of a reranker by settings."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from app.core.tuning import Tuning
from app.embedding.onnx import narrow, read_folder, read_session
from app.embedding.reranking import HttpReranker, Reranker, RerankerInvalid, RerankingFailed, SecondStage
from app.errors import EmbeddingUnavailable
from app.settings import Settings

MAX_TOKENS = 512
"""Maximum tokens of query and text together. A lower limit in tokenizer.json applies instead."""
BATCH_TOKENS = 2_048
"""Maximum tokens of one run of the model, padding included. Cancellation takes effect between two runs."""
INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class OnnxReranker:
    """A reranker that runs an ONNX graph.

    The graph has the inputs `input_ids` and `attention_mask` (and perhaps `token_type_ids`) and returns one logit for
    each pair, shaped (n, 1) or (n,).
    """

    at_once = 1

    def __init__(self, name: str, session: Any, tokenizer: Tokenizer) -> None:
        """Creates the reranker and tests it on two texts. Raises RerankerInvalid."""
        self.name = name
        self._session, self._tokenizer = session, tokenizer
        self._inputs = {entry.name for entry in session.get_inputs()}
        if not {"input_ids", "attention_mask"} <= self._inputs <= INPUTS:
            raise RerankerInvalid(f"the model's inputs are {sorted(self._inputs)}, not among {sorted(INPUTS)}")
        padding, truncation = tokenizer.padding or {}, tokenizer.truncation or {}
        self._pad = int(padding.get("pad_id", 0)), int(padding.get("pad_type_id", 0))
        tokenizer.enable_truncation(min(int(truncation.get("max_length", MAX_TOKENS)), MAX_TOKENS))
        tokenizer.no_padding()  # `_run` pads, to the longest text of the batch
        try:
            self.score_now("which word?", ["word", "another word"], Event())
        except RerankingFailed as error:
            raise RerankerInvalid(str(error)) from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reranking")

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        cancelled = Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self.score_now, query, texts, cancelled
            )
        finally:
            cancelled.set()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def score_now(self, query: str, texts: Sequence[str], cancelled: Event) -> list[float]:
        """Scores like `score`, in the calling thread."""
        try:
            encodings = self._tokenizer.encode_batch([(narrow(query), narrow(text)) for text in texts])
            scores = np.empty(len(texts), np.float32)
            for batch in _batches([len(encoding.ids) for encoding in encodings]):
                if cancelled.is_set():
                    raise RerankingFailed("The search ended before the reranker answered.")
                scores[batch] = self._run([encodings[index] for index in batch])
        except RerankingFailed:
            raise
        except Exception as error:  # ONNX Runtime and the tokenizers library raise types of their own
            raise RerankingFailed(f"The reranker's model failed ({type(error).__name__}).") from error
        listed: list[float] = scores.tolist()
        return listed

    def _run(self, encodings: Sequence[Encoding]) -> Any:
        shape = len(encodings), max(len(encoding.ids) for encoding in encodings)
        ids, types = (np.full(shape, pad, np.int64) for pad in self._pad)
        mask = np.zeros(shape, np.int64)
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            ids[row, :length], types[row, :length], mask[row, :length] = encoding.ids, encoding.type_ids, 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        logits = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        if logits.shape not in ((len(encodings), 1), (len(encodings),)):
            raise RerankingFailed(f"The reranker's model gave {logits.shape} for {len(encodings)} pairs, not one each.")
        return logits.reshape(len(encodings))


def load_reranker(folder: Path, *, threads: int = 1) -> OnnxReranker:
    """Loads a reranker from `model.onnx` or `onnx/model.onnx` beside `tokenizer.json`. Raises RerankerInvalid.

    The name ends in the hash of the weights.
    """
    try:
        graph, digest, tokenizer = read_folder(folder)
        session = read_session(str(folder), str(graph), threads)
    except EmbeddingUnavailable as error:  # raised by the functions shared with embedding models
        raise RerankerInvalid(error.detail) from error
    try:
        return OnnxReranker(f"{folder.resolve().name}:onnx-{digest[:8]}", session, tokenizer)
    except RerankerInvalid as error:
        raise RerankerInvalid(f"{folder}: {error}") from error


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields indices in batches of similar length, which reduces padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


async def open_reranker(settings: Settings) -> Reranker | None:
    """Returns the reranker of the settings, or None if none is set. A folder is loaded in a thread.

    Raises RerankerInvalid with the name of the setting.
    """
    wanted, chosen = settings.reranker, settings.rerank
    if not wanted:
        return None
    try:
        if wanted.startswith(("http://", "https://")):
            return HttpReranker(wanted, chosen.model, chosen.api_key.get_secret_value())
        return await asyncio.to_thread(lambda: load_reranker(Path(wanted).expanduser()))
    except RerankerInvalid as error:
        raise RerankerInvalid(f"RECALLD_RERANKER names a reranker that cannot be used: {error}.") from error


def second_stage(reranker: Reranker, settings: Settings, tuning: Tuning) -> SecondStage:
    return SecondStage(reranker, seconds=settings.rerank.seconds, hits=tuning.rerank_hits)
