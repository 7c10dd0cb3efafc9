"""Creates the embedder from the settings."""

import asyncio
import os
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # before the import; the library sends telemetry even for cached files
import huggingface_hub

from app.embedding.embedder import BatchingEmbedder, BatchQueue, ObserveBatch
from app.embedding.model import ExtraOptions, Model
from app.embedding.onnx import TAUGHT, TOKENIZER, OnnxModel, load_folder, load_packaged, packaged_tokenizer
from app.errors import EmbeddingUnavailable

AUTO = "auto"
"""`DEFAULT_MODEL`."""
DEFAULT_MODEL = "recalld-minilm-1"
MULTILINGUAL = "multilingual"
MODELS = Path(__file__).resolve().parents[2] / ".models"
"""Folder of the models that `scripts/extra` creates."""
MULTILINGUAL_FOLDER = "multilingual-e5-small-aligned"
OPENAI = "openai:"
SENTENCE_TRANSFORMERS = "sentence-transformers:"

THREADS = 1
"""Threads of a model. More of them make one text faster, and requests that come together wait for each other."""
BATCH_TOKENS = 2048
"""Most tokens in one batch, padding included. Models on the CPU take smaller pieces, and queries come between them."""
QUERY_CACHE = 2048
"""Query vectors kept: what an agent asks, it asks again in other searches of the same turn."""

_begun: dict[tuple[str, int, ExtraOptions], Future[Model]] = {}


def begin_loading(model: str, options: ExtraOptions | None = None) -> None:
    """Starts to load the model in a thread, while the rest of the program is imported.

    The next `open_embedder` with the same model and options uses it.
    """
    loaded = _begun[model, THREADS, options or ExtraOptions()] = Future[Model]()

    def load() -> None:
        try:
            loaded.set_result(load_any(model, options=options))
        except Exception as error:  # noqa: BLE001 (`open_embedder` raises it)
            loaded.set_exception(error)

    Thread(target=load, name="recalld-model", daemon=True).start()


def read_tokenizer(model: str) -> None:
    """Reads the packaged model's tokenizer: workers that are forked from this process share it. Nothing more of a model
    may be loaded before a fork."""
    if model in (AUTO, DEFAULT_MODEL):
        packaged_tokenizer(TOKENIZER)


async def open_embedder(
    model: str = DEFAULT_MODEL,
    *,
    threads: int = THREADS,
    batch_tokens: int = BATCH_TOKENS,
    query_cache: int = QUERY_CACHE,
    observe_batch: ObserveBatch | None = None,
    options: ExtraOptions | None = None,
) -> BatchingEmbedder:
    """Loads a model in a thread and starts the embedder, which the caller has to close. Raises EmbeddingUnavailable.

    `model`: `auto`, `recalld-minilm-1`, `multilingual`, a folder, `owner/name` on the Hugging Face hub
    (downloaded once), `openai:NAME` or `sentence-transformers:NAME_OR_FOLDER`. `options` apply to the last two.
    `threads`: threads of the runtime. `batch_tokens`: maximum tokens of one batch, padding included. `query_cache`:
    number of cached vectors.
    """
    begun = _begun.pop((model, threads, options or ExtraOptions()), None)
    if begun is None:
        loaded = await asyncio.to_thread(load_any, model, threads=threads, options=options)
    else:
        loaded = await asyncio.wrap_future(begun)
    beside = loaded.runs_beside_itself
    queue = BatchQueue(loaded, batch_tokens=batch_tokens, observe=observe_batch, gives_way=beside)
    queries = BatchQueue(loaded, batch_tokens=batch_tokens, observe=observe_batch) if beside else None
    return BatchingEmbedder(queue, queries=queries, query_cache=query_cache)


def load_any(model: str, *, threads: int = THREADS, options: ExtraOptions | None = None) -> Model:
    """Loads a model of any runtime. Raises EmbeddingUnavailable."""
    if model.startswith(OPENAI):
        from app.embedding.openai import OpenAIModel  # noqa: PLC0415 (its client takes half a second to import)

        return OpenAIModel(model.removeprefix(OPENAI), options)
    if model.startswith(SENTENCE_TRANSFORMERS):
        try:
            from app.embedding.sentence_transformers import SentenceTransformersModel  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            raise EmbeddingUnavailable(
                f"a model {SENTENCE_TRANSFORMERS}… needs the extra sentence-transformers, which is not installed "
                f"({error.name} is missing): install it with `scripts/extra sentence-transformers`, or "
                "`pip install 'recalld[sentence-transformers]'`"
            ) from error
        wanted = model.removeprefix(SENTENCE_TRANSFORMERS)
        return SentenceTransformersModel(wanted, threads=threads, options=options)
    return load_model(model, threads=threads)


def load_model(model: str, *, threads: int = THREADS, models: Path = MODELS) -> OnnxModel:
    """Loads a model for ONNX Runtime. `models`: folder of the models that `scripts/extra` creates.

    Raises EmbeddingUnavailable.
    """
    if model in (AUTO, DEFAULT_MODEL):
        return load_packaged(TAUGHT, threads=threads)
    if model == MULTILINGUAL:
        folder = models / MULTILINGUAL_FOLDER
        if not folder.is_dir():
            raise EmbeddingUnavailable(
                f"the model {MULTILINGUAL} needs the extra {MULTILINGUAL}, which is not installed: "
                f"install it with `scripts/extra {MULTILINGUAL}` ({folder} is missing)"
            )
        return load_folder(folder, threads=threads)
    if (folder := Path(model).expanduser()).is_dir():
        return load_folder(folder, threads=threads)
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        return load_folder(_download(model), threads=threads, name=model.rpartition("/")[2])
    raise EmbeddingUnavailable(
        f"{model!r} is neither {AUTO}, nor {DEFAULT_MODEL}, nor {MULTILINGUAL}, nor a folder, nor owner/name on the "
        f"hub, nor {OPENAI}NAME or {SENTENCE_TRANSFORMERS}NAME"
    )


def _download(repository: str) -> Path:
    wanted = ["model.onnx", "onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json"]
    wanted += ["1_Pooling/config.json", "config_sentence_transformers.json"]
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=wanted))
    except Exception as error:  # the hub's own errors, those of its HTTP client, OSError
        raise EmbeddingUnavailable(f"{repository} is not here and cannot be downloaded: {error}") from error
