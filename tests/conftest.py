"""The real service on real stores of both engines and the real model; only the clock is ours to turn.

`RECALLD_TEST_ENGINES` (default: `embedded,mongodb`) says on which engines the tests of the service run.
"""

import asyncio
import gc
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck
from hypothesis import settings as property_settings
from pydantic import SecretStr

from app.auth.keys import Keys, NewKey
from app.core.tuning import Tuning
from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.embedding.factory import load_model
from app.embedding.model import Vectors
from app.embedding.onnx import OnnxModel
from app.embedding.reranking import Reranker
from app.lifespan import COLLECTIONS, RealParts
from app.main import create_app
from app.resources import Resources
from app.settings import MongodbSettings, Settings
from app.storage.protocol import Store
from tests.support.command import data as data  # fixtures, for every folder
from tests.support.command import new_store as new_store
from tests.support.command import run as run
from tests.support.mongodb import Deployment, Emptied, emptied
from tests.support.mongodb import mongodb as mongodb
from tests.support.mongodb import mongodb_database as mongodb_database
from tests.support.selection import mark
from tests.support.server import RESERVE_BYTES
from tests.support.stores import Open, Watched, closed_in_the_end, opener_of

gc.disable()  # until all is collected, which makes millions of objects and hardly any garbage
HERE = Path(__file__).parent
W = TypeVar("W")
PATIENT_SECONDS = 120
"""How long a service waits for MongoDB, which shares a busy machine with the tests."""
for _profile in ("default", "ci"):  # a busy machine makes and tries examples slowly, and that is no fault of theirs
    property_settings.register_profile(
        _profile,
        property_settings.get_profile(_profile),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
property_settings.register_profile("ci", property_settings.get_profile("ci"), max_examples=50)  # the same in each run
property_settings.register_profile("thorough", property_settings.get_profile("default"), max_examples=1_000)
property_settings.register_profile("quick", property_settings.get_profile("default"), max_examples=25)
property_settings.load_profile(property_settings.get_current_profile_name())


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def model() -> OnnxModel:
    return load_model("recalld-minilm-1")


class TurnedClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)  # so that creation orders lists
        return self.time

    def move(self, **by: float) -> None:
        self.time += timedelta(**by)


class RememberingModel:
    """The real model, which works out a text once in a session: tests say the same things again and again."""

    _known: ClassVar[dict[str, Vectors]] = {}

    def __init__(self, model: OnnxModel) -> None:
        self._model, self.name, self.dim = model, model.name, model.dim
        self.piece_tokens, self.prompts = model.piece_tokens, model.prompts
        self.runs_beside_itself = False  # what is known is not locked

    def split(self, text: str) -> list[str]:
        return self._model.split(text)

    def encode(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._model.encode(new), strict=True))
        return np.stack([self._known[text] for text in texts])


class TestParts(RealParts):
    """Real parts but for the clock; `wrap` may put something around the embedder, `wrap_store` around the store.
    `own_reranker` takes the place of the settings' one."""

    __test__ = False
    wrap: Callable[[Embedder], Embedder] = staticmethod(lambda embedder: embedder)
    wrap_store: Callable[[Store], Store] = staticmethod(lambda store: store)
    own_reranker: Reranker | None = None
    tuning = Tuning(section_seconds=30)
    """Patient with a machine that does much else."""

    def __init__(self, model: OnnxModel, clock: TurnedClock) -> None:
        self._model, self._clock = RememberingModel(model), clock

    async def store(self, settings: Settings, dim: int) -> Store:
        return self.wrap_store(await super().store(settings, dim))

    async def embedder(self, settings: Settings) -> Embedder:
        return self.wrap(BatchingEmbedder(BatchQueue(self._model)))

    async def reranker(self, settings: Settings) -> Reranker | None:
        return self.own_reranker or await super().reranker(settings)

    def clock(self) -> TurnedClock:
        return self._clock


def wrapped_stores(parts: TestParts, wrapper: Callable[[Store], W]) -> list[W]:
    """What `wrapper` makes of the store of each service started with `parts`, the latest last."""
    made: list[W] = []

    def wrap(store: Store) -> Store:
        made.append(wrapper(store))
        return cast(Store, made[-1])

    parts.wrap_store = wrap
    return made


class Service:
    """A running service: `client` calls it as anybody on this machine does, `resources` are its own."""

    def __init__(self, app: FastAPI, client: httpx.AsyncClient, resources: Resources, clock: TurnedClock) -> None:
        self.app, self.client, self.resources, self.clock = app, client, resources, clock

    async def key(self, tenant: str = "default", verbs: str = "read,write", **bindings: Any) -> dict[str, str]:
        """Headers of a new key. From the first one on, nobody is served without."""
        keys = Keys(self.resources.store, self.resources.clock)
        key, _ = await keys.create(NewKey(tenant, "test", verbs.split(","), **bindings))
        return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def running(settings: Settings, parts: TestParts) -> AsyncIterator[Service]:
    app = create_app(settings, parts)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        transport = httpx.ASGITransport(_with_state(app, state), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            yield Service(app, client, state["resources"], parts.clock())


def _with_state(app: FastAPI, state: Any) -> Any:
    """What a server does with lifespan's state, which the transport leaves out."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": dict(state)}, receive, send)

    return call


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


ENGINES = os.environ.get("RECALLD_TEST_ENGINES", "embedded,mongodb").split(",")


LONGEST = (
    "cli/test_encryption.py",
    "console/test_looks.py",
    "console/test_owners.py",
    "console/test_overview.py",
    "console/test_memories.py",
    "clients/test_generators.py",
    "test_book.py",
    "test_workers.py",
    "integrations/test_frameworks.py",
    "faults/test_full_disk.py",
    "contract/test_second_store.py",
    "contract/test_metadata_filters.py",
    "contract/test_record_filters.py",
    "api/test_broken_records.py",
    "test_operating.py",
    "console/test_keyboard.py",
    "faults/test_mongodb_faults.py",
    "stress/test_requests.py",
    "stress/test_races.py",
    "stress/test_schemathesis.py",
    "test_isolation.py",
    "console/test_operations.py",
    "api/test_bad_input.py",
    "auth/test_streams.py",
    "cli/test_archive.py",
    "storage/mongo/test_large_scopes.py",
    "auth/test_views.py",
    "console/test_sessions.py",
    "stress/test_processes.py",
    "clients/test_typescript.py",
    "test_packages.py",
    "console/test_findings.py",
    "console/test_prompt.py",
    "console/test_first_view.py",
    "api/test_strict.py",
    "benchmarks/learned/test_learning.py",
    "stress/test_facts.py",
    "core/test_caches.py",
    "cli/test_doctor.py",
    "console/test_tasks.py",
    "test_shifted_clock.py",
    "stress/test_kills.py",
    "storage/mongo/test_abandoned_transactions.py",
    "stress/test_migration_under_load.py",
    "stress/test_changes.py",
)
"""Run first: where files go to several processes, none is left alone with one of these in the end."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module that is left out whole is not imported: `openai` alone, or an agent framework, takes a second."""
    left_out = re.findall(r"not (slow|stress|release)\b", config.option.markexpr)
    if not left_out or collection_path.suffix != ".py":
        return None
    marks = rf"^pytestmark = .*\bpytest\.mark\.({'|'.join(left_out)})\b"
    return True if re.search(marks, collection_path.read_text(encoding="utf-8"), re.MULTILINE) else None


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no search for garbage goes through it."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that never reach the store run on the first engine only. Marks the others by what they need."""
    again = [
        item for item in items if item.get_closest_marker("before_store") and _engine_of(item) not in (None, ENGINES[0])
    ]
    config.hook.pytest_deselected(items=again)
    left_out = set(again)
    items[:] = sorted((item for item in items if item not in left_out), key=_place)
    for item in items:
        mark(item, _engine_of(item), item.path.relative_to(HERE))


def _place(item: pytest.Item) -> int:
    return LONGEST.index(path) if (path := item.path.relative_to(HERE).as_posix()) in LONGEST else len(LONGEST)


def _engine_of(item: pytest.Item) -> str | None:
    """None: the test has no engine."""
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    name: str | None = params.get("engine", params.get("shared_settings"))
    return name


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


USUAL = Settings(disk_reserve_bytes=RESERVE_BYTES, _env_file=None)
"""With little of the disk kept back for each store. Read once: that takes longer than to open a store."""


def settings_of(folder: Path, **given: Any) -> Settings:
    """The usual ones in this folder, or with what is given."""
    if given:
        return Settings(
            **{"data_dir": folder / "data", "disk_reserve_bytes": RESERVE_BYTES, "_env_file": None, **given}
        )
    return USUAL.model_copy(update={"data_dir": folder / "data"})


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an embedded store without documents, to copy: making its tables takes longer than most tests."""
    made = settings_of(tmp_path_factory.mktemp("empty"))

    async def make() -> None:
        await (await opener_of(made, COLLECTIONS, dim=1)()).close()

    asyncio.run(make())
    return made.data_dir


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Those of a service on a store of the test's own."""
    if engine == "embedded":
        shutil.copytree(request.getfixturevalue("empty_store"), tmp_path / "data")
        return settings_of(tmp_path)
    deployment: Deployment = request.getfixturevalue("mongodb")
    return on_mongodb(tmp_path, deployment, request.getfixturevalue("emptied_database"))


def on_mongodb(folder: Path, deployment: Deployment, database: str) -> Settings:
    """The usual settings with another store."""
    own = MongodbSettings(database=database, deadline_seconds=PATIENT_SECONDS)
    return settings_of(folder).model_copy(update={"store": SecretStr(deployment.uri), "mongodb": own})


@pytest.fixture(scope="module", params=ENGINES)
def shared_settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Those of a service that the tests of a module share and leave as it is."""
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "embedded":
        shutil.copytree(request.getfixturevalue("empty_store"), folder / "data")
        yield settings_of(folder)
        return
    deployment: Deployment = request.getfixturevalue("mongodb")
    database: Emptied = request.getfixturevalue("shared_database")
    yield on_mongodb(folder, deployment, database.name)
    database.empty()


@pytest.fixture(scope="session")
def shared_database(mongodb: Deployment) -> Iterator[Emptied]:
    """Beside that of the tests with a service of their own: a module may have both."""
    with emptied(mongodb) as database:
        yield database


@pytest.fixture(scope="session")
def lasting_database(mongodb: Deployment) -> Iterator[Emptied]:
    with emptied(mongodb) as database:
        yield database


@pytest.fixture
def emptied_database(lasting_database: Emptied) -> Iterator[str]:
    yield lasting_database.name
    lasting_database.empty()


@pytest.fixture
async def open_store(settings: Settings, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens the test's store, without a model."""
    async with closed_in_the_end(opener_of(settings, COLLECTIONS, dim=1)) as opener:
        yield opener


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store()


@pytest.fixture
def parts(model: OnnxModel, clock: TurnedClock) -> TestParts:
    return TestParts(model, clock)


@pytest.fixture
def watched(parts: TestParts) -> list[Watched]:
    """The store of each service started, the latest last."""
    return wrapped_stores(parts, Watched)


@pytest.fixture
async def service(settings: Settings, parts: TestParts, anyio_backend: str) -> AsyncIterator[Service]:
    async with running(settings, parts) as made:
        yield made


@pytest.fixture
def api(service: Service) -> httpx.AsyncClient:
    return service.client


Starter = Callable[[Settings], AbstractAsyncContextManager[Service]]


@pytest.fixture
def start(parts: TestParts) -> Starter:
    """Starts services by hand: with other settings, twice on one store, or again after a stop."""
    return lambda settings: running(settings, parts)


def body_of(response: httpx.Response) -> Any:
    return json.loads(response.content)
