"""Stories told to the real service on its store, and several at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from hypothesis import Phase, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from app.embedding.onnx import OnnxModel
from app.facts.schemas import FACT_GROUPS, FACTS
from app.settings import JobSettings, Settings
from app.storage.schema import Eq
from tests.conftest import Service, TestParts, running
from tests.support.facts import HOME, listed
from tests.support.facts_machine import STEPS, Step, Story
from tests.support.facts_telling import Still, StoppedClock, Teller
from tests.support.memories import OWNER

pytestmark = pytest.mark.anyio

FEW = profile(max_examples=6, deadline=None, phases=[Phase.generate], derandomize=True, database=None)
RACERS = 8


@pytest.fixture
async def services(settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[list[Service]]:
    """Two on one store, as two processes would be, whose clock stands still."""
    idle = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    parts = TestParts(model, StoppedClock())
    parts.wrap = Still
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(idle, parts)) for _ in range(2)]


def drawn() -> list[list[Step]]:
    """A few stories, drawn before they are told: they are told in the loop of the services."""
    stories: list[list[Step]] = []

    @FEW
    @given(st.lists(STEPS, min_size=8, max_size=12))
    def draw(steps: list[Step]) -> None:
        stories.append(steps)

    draw()
    return stories


async def test_every_story_leaves_what_the_oracle_saw(services: list[Service]) -> None:
    for number, steps in enumerate(drawn()):
        await Story(Teller(services[number % 2], f"user-{number}")).run(steps)


async def test_of_many_at_once_one_is_known_and_none_is_lost(services: list[Service]) -> None:
    names = [f"City {number}" for number in range(RACERS)]
    posts = [
        services[number % 2].client.post("/v1/facts", json={**HOME, "object": name, "valid_from": None})
        for number, name in enumerate(names)
    ]
    made = await asyncio.gather(*posts)
    assert {answer.status_code for answer in made} == {201}
    api = services[0].client
    every = await listed(api, status="any", timeline=True)
    assert sorted(fact["object"] for fact in every) == names
    moments = sorted(fact["known_from"] for fact in every)
    assert len(set(moments)) == RACERS, "each is a change of its own"
    for moment in moments:
        assert len(await listed(api, known_at=moment)) == 1
    assert len(await listed(api, status="superseded", timeline=True)) == RACERS - 1
    assert await services[1].resources.store.count(FACT_GROUPS, None) == 1


async def test_an_assertion_and_its_retraction_at_once_leave_one_story(services: list[Service]) -> None:
    one, two = (service.client for service in services)
    for number in range(3):
        user = {**OWNER, "user_id": f"user-{number}"}
        body = {**HOME, **user, "valid_from": None}
        first = (await one.post("/v1/facts", json={**body, "object": "New York"})).json()
        retracted, asserted = await asyncio.gather(
            one.post(f"/v1/facts/{first['fact_id']}/retract"),
            two.post("/v1/facts", json={**body, "object": "Boston", "trust": 0.5}),
        )
        assert (retracted.status_code, asserted.status_code) == (200, 201)
        docs = await services[0].resources.store.find(FACTS, "default", Eq("user_id", user["user_id"]))
        boston = next(doc for doc in docs if doc["object"] == "Boston")
        before = boston["known_from"] < retracted.json()["known_until"]
        assert boston["standing"] == ("disputed" if before else "held"), "as the moments say, so it was decided"
