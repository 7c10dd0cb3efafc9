"""The service in this process, on a store of its own, with the real model."""

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from pydantic import SecretStr

from app.embedding.factory import load_model
from app.embedding.onnx import OnnxModel
from app.settings import JobSettings, LimitSettings, Settings
from tests.conftest import Service, TestParts, TurnedClock, running


@cache
def model() -> OnnxModel:
    return load_model("minilm-int8")


@asynccontextmanager
async def service(directory: Path | None = None, store: str = "embedded") -> AsyncIterator[Service]:
    """`store`: as RECALLD_STORE; of MongoDB, a database of its own, on a deployment of its own."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="recalld-battery-") as made:
        settings = Settings(
            data_dir=(directory or Path(made)) / "data",
            store=SecretStr(store),
            jobs=JobSettings(enabled=False),
            limits=LimitSettings(requests_per_second=0),
            busy_timeout_ms=300,
            _env_file=None,
        )
        async with running(settings, TestParts(model(), TurnedClock())) as started:
            yield started
