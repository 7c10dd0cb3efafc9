"""Stores of earlier releases are brought up to date at the start, and those of newer ones are refused untouched."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from bson import json_util
from pydantic import SecretStr

from app import VERSION
from app.embedding.onnx import MINILM, load_packaged
from app.errors import StoreUnavailable
from app.lifespan import COLLECTIONS
from app.setting_groups import MongodbSettings
from app.settings import Settings
from app.storage.factory import open_store, where_of
from app.storage.mongo import schema as mongo_schema
from app.storage.mongo.connection import META, Database
from app.storage.mongo.connection import connect as connect_mongo
from app.storage.schema import Written
from app.storage.sqlite import schema as sqlite_schema
from app.storage.sqlite.backup import backup
from app.storage.sqlite.connections import WITH_CHECKSUMS, connect
from tests.cli.conftest import Run
from tests.conftest import ENGINES, TestParts, TurnedClock, running, settings_of
from tests.support.mongodb import Deployment
from tests.support.old_store import ASKED_AT, OWNER, answers, dumped, read, releases, restore_embedded, restore_mongodb
from tests.support.server import recalld

pytestmark = pytest.mark.anyio

NEWER = "9.1.0"


@pytest.fixture(params=releases())
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def old(engine: str, release: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """The settings of a service on the store that a release left."""
    if engine == "embedded":
        settings = settings_of(tmp_path)
        restore_embedded(release, settings)
        yield settings
        return
    deployment: Deployment = request.getfixturevalue("mongodb")
    with deployment.database() as name:
        restore_mongodb(release, deployment, name)
        own = MongodbSettings(database=name, deadline_seconds=30)
        yield settings_of(tmp_path, store=SecretStr(deployment.uri), mongodb=own)


async def test_a_store_of_an_earlier_release_answers_as_it_did(old: Settings, engine: str, release: str) -> None:
    before = json.loads(read(release, f"{engine}-answers"))
    parts = TestParts(load_packaged(MINILM), TurnedClock())
    async with running(old, parts) as service:
        service.clock.time = ASKED_AT
        service.client.headers.update(before["key"])
        after = await answers(service.client)
        for was, now in zip(before["answers"], after, strict=True):
            assert now == grown(was, now)
        assert any(item["memory"]["content"] == "Lives in Boston" for item in after[3]["items"])
        checked = {found.name: found for found in await service.resources.store.check(deep=True)}
        assert [found for found in checked.values() if not found.ok] == []
        assert checked["version"].detail == f"layout {NOW[engine]}, last started by Recalld {VERSION}"
        told = {"messages": [{"role": "user", "name": "Ada", "content": "My sister Cleo sails."}]}
        added = await service.client.post("/v1/sessions/chat-1/messages", json=told)
        assert [one["seq"] for one in added.json()["items"]] == [7], "numbers go on where they were"
        query = {**OWNER, "query": "who sails?", "top_k": 1}
        (hit,) = (await service.client.post("/v1/memories/search", json=query)).json()["items"]
        assert "Cleo sails" in hit["memory"]["content"]
    async with running(old, parts) as again:
        assert all(found.ok for found in await again.resources.store.check(deep=True))


NOW = {"embedded": WITH_CHECKSUMS, "mongodb": mongo_schema.LAYOUT}


def hardly_answers(hit: Any) -> bool:
    return isinstance(hit, dict) and hit.get("score", 1) < 0.05


def grown(was: Any, now: Any) -> Any:
    """An earlier answer with the fields that answers have got since: what was said must still be said, in the same
    order. Scores are fitted anew between releases, and hits that hardly answer change their places with them."""
    if isinstance(was, dict) and isinstance(now, dict):
        said = {
            name: grown(value, now.get(name)) for name, value in was.items() if name != "score" or "score" not in now
        }
        return {**now, **said}
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [other if hardly_answers(other) else grown(one, other) for one, other in zip(was, now, strict=True)]
    return was


# --- Newer than this release ------------------------------------------------------------------------------------------


def refusal(layout: int) -> tuple[str, ...]:
    return (
        f"Recalld {NEWER} (layout {layout})",
        f"This is Recalld {VERSION}, which knows layouts up to {layout - 1}",
        f"Start {NEWER} or later, or restore a backup from before the upgrade (docs/operations/upgrading.md)",
    )


def made_newer(data: Path) -> None:
    """As a later release with one layout more would leave the store."""
    with closing(connect(data / "recalld.db", 1_000)) as connection:
        connection.execute("UPDATE store_info SET value = ? WHERE name = 'release'", (NEWER,))
        connection.pragma("user_version", WITH_CHECKSUMS + 1)


def content(folder: Path) -> dict[str, bytes]:
    """Every file but SQLite's index of the log, which readers keep, too."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.name.endswith("-shm")}


def test_a_newer_embedded_store_is_refused_by_every_command_untouched(tmp_path: Path, data: Path, run: Run) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    made_newer(data)
    before = content(data)
    served = recalld(data, "serve")
    said = [run("keys", "list"), run("doctor"), run("backup", str(tmp_path / "b")), run("add-checksums")]
    for code, printed in [
        (served.returncode, served.stderr),
        *((one.returncode, one.stderr + one.stdout) for one in said),
    ]:
        assert code == 1
        for sentence in refusal(WITH_CHECKSUMS + 1):
            assert sentence in printed
        assert "Traceback" not in printed
    assert content(data) == before
    assert not (tmp_path / "b").exists()


def test_a_backup_of_a_newer_store_is_not_restored(tmp_path: Path, data: Path, run: Run) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    made_newer(data)
    file, target = tmp_path / "b", tmp_path / "restored"
    backup(data / "recalld.db", file, 1_000)
    refused = run("restore", str(file), RECALLD_DATA_DIR=str(target))
    assert refused.returncode == 1
    assert f"(layout {WITH_CHECKSUMS + 1})" in refused.stderr
    assert not list(target.iterdir())


@pytest.mark.skipif("mongodb" not in ENGINES, reason="of MongoDB")
async def test_a_newer_database_is_refused_untouched(tmp_path: Path, mongodb: Deployment) -> None:
    with mongodb.database() as name, mongodb.client() as client:
        own = MongodbSettings(database=name, deadline_seconds=30)
        where = where_of(settings_of(tmp_path, store=SecretStr(mongodb.uri), mongodb=own))
        await (await open_store(where, COLLECTIONS, dim=1)).close()
        noted = {"version": mongo_schema.LAYOUT + 1, "release": NEWER}
        client[name][META].update_one({"_id": "layout"}, {"$set": noted})
        before = dumped(mongodb, name)
        with pytest.raises(StoreUnavailable) as refused:
            await open_store(where, COLLECTIONS, dim=1)
        for sentence in refusal(mongo_schema.LAYOUT + 1):
            assert sentence in refused.value.detail
        assert dumped(mongodb, name) == before
        assert json_util.loads(before)[META]["documents"]


# --- Steps to a newer layout ------------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], apsw.Connection]]:
    """Connections to an embedded store of release 1.0.0."""
    settings = settings_of(tmp_path)
    restore_embedded("1.0.0", settings)
    made: list[apsw.Connection] = []

    def connection() -> apsw.Connection:
        made.append(connect(settings.data_dir / "recalld.db", 1_000))
        return made[-1]

    yield connection
    for one in made:
        one.close()


def test_a_step_is_taken_once_and_wholly_or_not_at_all(opened: Callable[[], apsw.Connection]) -> None:
    taken: list[int] = []

    def step(connection: apsw.Connection) -> None:
        connection.execute("UPDATE audit SET doc = json_set(doc, '$.marked', 1)")
        taken.append(1)

    def failing(connection: apsw.Connection) -> None:
        step(connection)
        raise apsw.FullError("no room")

    def marked() -> int:
        return len(opened().execute("SELECT 1 FROM audit WHERE doc ->> '$.marked'").fetchall())

    first, second = WITH_CHECKSUMS + 1, WITH_CHECKSUMS + 2
    with pytest.raises(StoreUnavailable):
        sqlite_schema.migrate(opened(), COLLECTIONS, {first: step, second: failing})
    assert sqlite_schema.written(opened()).layout == WITH_CHECKSUMS
    assert (marked(), len(taken)) == (0, 2)
    for _ in range(2):
        sqlite_schema.migrate(opened(), COLLECTIONS, {first: step, second: step})
        assert sqlite_schema.written(opened()) == Written(second, VERSION)
    assert len(taken) == 4
    assert marked() > 0
    with pytest.raises(StoreUnavailable, match=f"layouts up to {WITH_CHECKSUMS}"):
        sqlite_schema.migrate(opened(), COLLECTIONS)


def test_a_store_without_checksums_gets_them_before_a_newer_layout(opened: Callable[[], apsw.Connection]) -> None:
    opened().pragma("user_version", sqlite_schema.LAYOUT)
    with pytest.raises(StoreUnavailable, match="add-checksums"):
        sqlite_schema.migrate(opened(), COLLECTIONS, {WITH_CHECKSUMS + 1: lambda connection: None})
    sqlite_schema.migrate(opened(), COLLECTIONS)
    assert sqlite_schema.written(opened()).layout == sqlite_schema.LAYOUT


@pytest.mark.skipif("mongodb" not in ENGINES, reason="of MongoDB")
async def test_a_step_on_mongodb_goes_on_after_it_was_cut_short(mongodb: Deployment) -> None:
    taken: list[str] = []

    async def step(database: Database) -> None:
        await database["audit"].update_many({}, {"$set": {"marked": 1}})
        taken.append("step")

    async def failing(database: Database) -> None:
        taken.append("failing")
        raise ConnectionError

    first, second = mongo_schema.LAYOUT + 1, mongo_schema.LAYOUT + 2
    with mongodb.database() as name:
        restore_mongodb("1.0.0", mongodb, name)
        client = connect_mongo(mongodb.uri, 30)
        database = client[name]
        with pytest.raises(ConnectionError):
            await mongo_schema.reconcile(database, COLLECTIONS, {first: step, second: failing})
        assert (await mongo_schema.written(database)) == Written(first, VERSION)
        for _ in range(2):
            await mongo_schema.reconcile(database, COLLECTIONS, {first: step, second: step})
        assert taken == ["step", "failing", "step"]
        assert (await mongo_schema.written(database)) == Written(second, VERSION)
        with pytest.raises(StoreUnavailable, match=f"layouts up to {mongo_schema.LAYOUT}"):
            await mongo_schema.reconcile(database, COLLECTIONS)
        await client.close()
