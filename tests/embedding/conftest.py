from collections.abc import AsyncIterator

import pytest

from app.embedding.batching import BatchQueue
from app.embedding.embedder import BatchingEmbedder
from app.embedding.onnx import OnnxModel, load_minilm


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def minilm() -> OnnxModel:
    return load_minilm()


@pytest.fixture
async def embedder(minilm: OnnxModel) -> AsyncIterator[BatchingEmbedder]:
    embedder = BatchingEmbedder(BatchQueue(minilm))
    yield embedder
    await embedder.close()
