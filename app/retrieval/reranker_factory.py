"""From the settings to a second stage."""

import asyncio
from pathlib import Path

from app.retrieval.onnx_reranker import OnnxReranker, load_reranker
from app.retrieval.reranking import Reranker, RerankerInvalid, SecondStage
from app.settings import Settings


async def open_reranker(settings: Settings) -> Reranker | None:
    """None where none is set. A folder is loaded in a thread. Raises RerankerInvalid with the setting's name."""
    wanted, chosen = settings.reranker, settings.rerank
    if not wanted:
        return None
    try:
        if wanted.startswith(("http://", "https://")):
            # Its HTTP client takes a tenth of a second to import, which only those pay who use it.
            from app.retrieval.http_reranker import HttpReranker  # noqa: PLC0415

            return HttpReranker(wanted, chosen.model, chosen.api_key.get_secret_value())
        return await asyncio.to_thread(_load_folder, wanted, chosen.threads)
    except RerankerInvalid as error:
        raise RerankerInvalid(f"RECALLD_RERANKER names a reranker that cannot be used: {error}.") from error


def _load_folder(folder: str, threads: int) -> OnnxReranker:
    return load_reranker(Path(folder).expanduser(), threads=threads)


def second_stage(reranker: Reranker, settings: Settings) -> SecondStage:
    return SecondStage(reranker, seconds=settings.rerank.seconds, hits=settings.rerank.hits)
