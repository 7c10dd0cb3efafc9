"""Services that stand what stress tests do to them."""

from collections.abc import AsyncIterator

import pytest

from app.setting_groups import LimitSettings
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """No rate limit, no jobs by the clock, and little patience with a locked file."""
    chosen = {
        "jobs": JobSettings(enabled=False),
        "limits": LimitSettings(requests_per_second=0, wrong_keys=0),
        "busy_timeout_ms": 300,
    }
    return settings.model_copy(update=chosen)


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings) as made:
        yield made
