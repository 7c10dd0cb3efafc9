"""A service whose language model says what a test lets it say."""

from collections.abc import AsyncIterator, Iterator

import pytest

from app.settings import JobSettings, LLMSettings, Settings
from tests.conftest import Service, Starter
from tests.support.model import Model, scripted_model


@pytest.fixture
def llm() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def settings(settings: Settings, llm: Model) -> Settings:
    """Jobs run when a test says so."""
    asked = LLMSettings(base_url=llm.server.url, model="scripted", timeout_seconds=5)
    return settings.model_copy(update={"llm": asked, "jobs": JobSettings(enabled=False)})


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings) as made:
        yield made
