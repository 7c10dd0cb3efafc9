from collections.abc import AsyncIterator, Iterator

import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.findings import judging
from tests.support.model import Model, scripted_model


@pytest.fixture
def llm() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Jobs run when a test says so."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


@pytest.fixture
async def judged(start: Starter, settings: Settings, llm: Model) -> AsyncIterator[Service]:
    """A service with a scripted model, which judges pairs."""
    async with start(judging(settings, llm)) as made:
        yield made
