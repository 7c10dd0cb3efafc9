"""What every engine has to do, on a store of each; of MongoDB also where search indexes answer for all scopes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.core.tuning import USUAL, Tuning
from app.memories.schemas import MEMORIES
from app.settings import MongodbSettings, Settings
from app.storage.protocol import Store
from tests.conftest import ENGINES, PATIENT_SECONDS, settings_of
from tests.support.atlas import start_atlas
from tests.support.declared import COUNTED, DIM, ENTRIES, NUMBERED, THINGS
from tests.support.mongodb import Deployment, Emptied, SecantusDB, emptied
from tests.support.stores import Open as Open
from tests.support.stores import closed_in_the_end, opener_of

COLLECTIONS = (THINGS, NUMBERED, COUNTED, ENTRIES, MEMORIES)
ATLAS = "mongodb with search indexes"


@pytest.fixture(params=[*ENGINES, *([ATLAS] if "mongodb" in ENGINES else [])])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def atlas(mongodb: Deployment) -> Iterator[Deployment]:
    """A deployment that was named has its own search; the other one has a double in front."""
    if not isinstance(mongodb, SecantusDB):
        yield mongodb
        return
    with start_atlas(mongodb.port) as made:
        yield made


@pytest.fixture(scope="session")
def atlas_database(atlas: Deployment) -> Iterator[Emptied]:
    with emptied(atlas) as database:
        yield database


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    if engine == "embedded":
        yield settings_of(tmp_path)
        return
    deployment, lasting = ("atlas", "atlas_database") if engine == ATLAS else ("mongodb", "lasting_database")
    database: Emptied = request.getfixturevalue(lasting)
    own = MongodbSettings(database=database.name, deadline_seconds=PATIENT_SECONDS)
    yield settings_of(tmp_path, store=SecretStr(request.getfixturevalue(deployment).uri), mongodb=own)
    database.empty()


@pytest.fixture
async def open_store(settings: Settings, engine: str, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens the test's store: of the collections declared here."""
    opener = opener_of(settings, COLLECTIONS, DIM, Tuning(exact_up_to=0) if engine == ATLAS else USUAL)

    async def open_one() -> Store:
        store = await opener()
        while "exact where" in str(await store.check()):  # noqa: ASYNC110 (until its search indexes are there)
            await asyncio.sleep(0.05)
        return store

    async with closed_in_the_end(open_one) as opened:
        yield opened


@pytest.fixture
async def second_store(store: Store, open_store: Open) -> Store:
    """Another opener of the data of `store`."""
    return await open_store()
