from collections.abc import AsyncIterator

import pytest

from app.embedding.embedder import BatchingEmbedder, BatchQueue
from app.embedding.onnx import TAUGHT, OnnxModel, load_packaged


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def minilm() -> OnnxModel:
    return load_packaged(TAUGHT)


@pytest.fixture
async def embedder(minilm: OnnxModel) -> AsyncIterator[BatchingEmbedder]:
    embedder = BatchingEmbedder(BatchQueue(minilm))
    yield embedder
    await embedder.close()
