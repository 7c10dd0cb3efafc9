"""Very many requests: of strangers, of bad input, and of callers whose records are known by heart.

tests/api/test_tenancy.py and tests/api/test_bad_input.py test in small that these checks find a planted bug.
"""

import random
from itertools import cycle, islice

import pytest

from tests.api.test_bad_input import begin, faults, stored
from tests.conftest import Service
from tests.stress.size import size
from tests.stress.walk import Walk
from tests.support import bad_input
from tests.support.contract import Contract
from tests.support.tenancy import OPEN, Strangers

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

STEPS = 50


@pytest.mark.parametrize("engine", ["embedded"])
async def test_strangers_in_four_tenants_learn_and_change_nothing(service: Service) -> None:
    strangers = await Strangers.among(service, 4)
    before = await strangers.held()
    found = await strangers.run(size(1_000, 20_000))
    assert (found.leaks, found.five_hundreds) == ([], 0)
    assert set(found.statuses) == {op.name for op in Contract(service.app).operations()} - OPEN
    assert await strangers.held() == before


@pytest.mark.parametrize("engine", ["embedded"])
async def test_bad_input_in_any_order_is_refused(service: Service) -> None:
    await begin(service)
    contract, before = Contract(service.app), await stored(service)
    ours = [op for op in contract.operations() if "operating" not in op.spec["tags"]]
    every = [case for op in ours for part in bad_input.PARTS for case in part(contract, op)]
    random.Random(1).shuffle(every)
    assert await faults(service, islice(cycle(every), size(2_000, 20_000))) == []
    assert await stored(service) == before


async def test_random_walks_leave_what_a_model_says(service: Service) -> None:
    """The same walks on both engines, each beside dictionaries that say what must come back."""
    for seed in range(size(10, 500)):
        assert await Walk(service, seed).run(STEPS) == []


@pytest.mark.parametrize("engine", ["embedded"])
async def test_a_walk_finds_a_service_that_forgets(service: Service) -> None:
    """The model is wrong on purpose: it never forgets what was deleted."""
    assert await Walk(service, -1, forgets=True).run(STEPS) != []
