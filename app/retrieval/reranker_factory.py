"""Creates the second stage from the settings."""

import asyncio
from pathlib import Path

from app.retrieval.onnx_reranker import OnnxReranker, load_reranker
from app.retrieval.reranking import Reranker, RerankerInvalid, SecondStage
from app.settings import Settings


async def open_reranker(settings: Settings) -> Reranker | None:
    """Returns the reranker of the settings, or None if none is set. A folder is loaded in a thread.

    Raises RerankerInvalid with the name of the setting.
    """
    wanted, chosen = settings.reranker, settings.rerank
    if not wanted:
        return None
    try:
        if wanted.startswith(("http://", "https://")):
            # Importing the HTTP client takes a tenth of a second, so it is imported only if it is used.
            from app.retrieval.http_reranker import HttpReranker  # noqa: PLC0415

            return HttpReranker(wanted, chosen.model, chosen.api_key.get_secret_value())
        return await asyncio.to_thread(_load_folder, wanted, chosen.threads)
    except RerankerInvalid as error:
        raise RerankerInvalid(f"RECALLD_RERANKER names a reranker that cannot be used: {error}.") from error


def _load_folder(folder: str, threads: int) -> OnnxReranker:
    return load_reranker(Path(folder).expanduser(), threads=threads)


def second_stage(reranker: Reranker, settings: Settings) -> SecondStage:
    """Returns the second stage of a reranker, with the limits of the settings."""
    return SecondStage(reranker, seconds=settings.rerank.seconds, hits=settings.rerank.hits)
