"""Services that stand what stress tests do to them."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.settings import JobSettings, LimitSettings, Settings
from tests.conftest import Service, Starter, TestParts


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """No rate limit, and no jobs by the clock."""
    chosen = {
        "jobs": JobSettings(enabled=False),
        "limits": LimitSettings(requests_per_second=0, wrong_keys=0),
    }
    return settings.model_copy(update=chosen)


@pytest.fixture
def parts(parts: TestParts) -> TestParts:
    """They have little patience with a locked file."""
    parts.tuning = replace(parts.tuning, busy_timeout_ms=300)
    return parts


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings) as made:
        yield made
