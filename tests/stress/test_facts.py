"""Long random stories about facts, told to the service and to an independent model of the rules, which must agree.

After each story, every row that was ever stored is compared with the model (tests/support/facts_oracle.py): at every
moment at which anything changed, and for every span of valid time that anybody named.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.conftest import Service, TestParts, running
from tests.stress.size import size
from tests.support.facts_machine import STEPS, Step, Story
from tests.support.facts_telling import Bookkeeper, Still, StoppedClock, Teller

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

STORIES = size(10, 500)
LONG = st.lists(STEPS, min_size=50, max_size=50)
QUIET = profile(max_examples=STORIES, deadline=None, database=None, suppress_health_check=[*HealthCheck])


@pytest.fixture
async def service(settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[Service]:
    """Its clock stands still, and its embedding model is left out."""
    parts = TestParts(model, StoppedClock())
    parts.wrap = Still
    async with running(settings, parts) as made:
        yield made


async def test_long_stories_leave_what_the_oracle_saw(service: Service) -> None:
    stories: list[list[Step]] = []

    @profile(QUIET, phases=[Phase.generate])
    @given(LONG)
    def draw(steps: list[Step]) -> None:
        stories.append(steps)

    draw()
    for number, steps in enumerate(stories[:STORIES]):
        await Story(Teller(service, f"user-{number}")).run(steps)


@QUIET
@given(LONG)
def test_long_stories_leave_what_the_oracle_saw_of_the_rules_alone(steps: list[Step]) -> None:
    asyncio.run(Story(Bookkeeper()).run(steps))
