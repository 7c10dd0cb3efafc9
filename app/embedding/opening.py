"""From the setting to a running embedder."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import huggingface_hub

from app.embedding.batching import BatchQueue, ObserveBatch
from app.embedding.embedder import BatchingEmbedder
from app.embedding.onnx import OnnxModel, load_folder, load_minilm
from app.errors import EmbeddingUnavailable

DEFAULT_MODEL = "minilm-int8"

_begun: dict[tuple[str, int], Future[OnnxModel]] = {}


def begin_loading(model: str, *, threads: int = 1) -> None:
    """In a thread, while the rest of the program is imported; the next `open_embedder` of the model takes it."""
    loaded = _begun[model, threads] = Future[OnnxModel]()

    def load() -> None:
        try:
            loaded.set_result(load_model(model, threads=threads))
        except Exception as fault:  # noqa: BLE001 (raised where the model is asked for)
            loaded.set_exception(fault)

    Thread(target=load, name="recalld-model", daemon=True).start()


async def open_embedder(
    model: str = DEFAULT_MODEL,
    *,
    threads: int = 1,
    batch_tokens: int = 256,
    query_cache: int = 1024,
    observe_batch: ObserveBatch | None = None,
) -> BatchingEmbedder:
    """Load in a thread, then start. Close it when done. Raises `EmbeddingUnavailable` with the reason.

    `model`: `minilm-int8`, a folder, or `owner/name` on the Hugging Face hub (downloaded once).
    `threads`: of ONNX Runtime. `batch_tokens`: cap of one batch, padding included. `query_cache`: vectors kept.
    """
    begun = _begun.pop((model, threads), None)
    loaded = await (asyncio.wrap_future(begun) if begun else asyncio.to_thread(load_model, model, threads=threads))
    queue = BatchQueue(loaded, batch_tokens=batch_tokens, observe=observe_batch)
    return BatchingEmbedder(queue, query_cache=query_cache)


def load_model(model: str, *, threads: int = 1) -> OnnxModel:
    if model == DEFAULT_MODEL:
        return load_minilm(threads=threads)
    if (folder := Path(model).expanduser()).is_dir():
        return load_folder(folder, threads=threads)
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        return load_folder(_download(model), threads=threads, name=model.rpartition("/")[2])
    raise EmbeddingUnavailable(f"{model!r} is neither {DEFAULT_MODEL}, nor a folder, nor owner/name on the hub")


def _download(repository: str) -> Path:
    wanted = ["model.onnx", "onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json", "1_Pooling/config.json"]
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=wanted))
    except Exception as error:  # the hub's own errors, those of its HTTP client, OSError
        raise EmbeddingUnavailable(f"{repository} is not here and cannot be downloaded: {error}") from error
