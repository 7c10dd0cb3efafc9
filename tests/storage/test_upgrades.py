"""A store is brought to a newer layout by the steps of its engine, and one of a newer release is refused untouched."""

from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from bson import json_util
from pydantic import SecretStr

from app import VERSION
from app.errors import StoreUnavailable
from app.lifespan import COLLECTIONS
from app.settings import MongodbSettings
from app.storage.factory import open_store, where_of
from app.storage.mongo import schema as mongo_schema
from app.storage.mongo.connection import META, Database
from app.storage.mongo.connection import connect as connect_mongo
from app.storage.schema import Written
from app.storage.sqlite import sql as sqlite_schema
from app.storage.sqlite.connections import checkpoint, connect
from app.storage.sqlite.files import MARK
from tests.cli.conftest import Run
from tests.conftest import ENGINES, settings_of
from tests.support.mongodb import Deployment
from tests.support.server import recalld

pytestmark = pytest.mark.anyio

NEWER = "9.1.0"


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
        connection.pragma("user_version", sqlite_schema.LAYOUT + 1)


def content(folder: Path) -> dict[str, bytes]:
    """Every file but SQLite's index of the log, which readers keep, too."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.name.endswith("-shm")}


def test_a_newer_embedded_store_is_refused_by_every_command_untouched(tmp_path: Path, data: Path, run: Run) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    made_newer(data)
    before = content(data)
    served = recalld(data, "serve")
    said = [run("keys", "list"), run("doctor"), run("backup", str(tmp_path / "b"))]
    for code, printed in [
        (served.returncode, served.stderr),
        *((one.returncode, one.stderr + one.stdout) for one in said),
    ]:
        assert code == 1
        for sentence in refusal(sqlite_schema.LAYOUT + 1):
            assert sentence in printed
        assert "Traceback" not in printed
    assert content(data) == before
    assert not (tmp_path / "b").exists()


def test_a_backup_of_a_newer_store_is_not_restored(tmp_path: Path, data: Path, run: Run) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    made_newer(data)
    file, target = tmp_path / "b", tmp_path / "restored"
    with closing(connect(data / "recalld.db", 1_000)) as connection:
        assert checkpoint(connection, "TRUNCATE")
    whole = (data / "recalld.db").read_bytes()  # this release makes no backup of it
    file.write_bytes(whole + MARK + f"{len(whole):016x}{sha256(whole).hexdigest()}".encode())
    refused = run("restore", str(file), RECALLD_DATA_DIR=str(target))
    assert refused.returncode == 1
    assert f"(layout {sqlite_schema.LAYOUT + 1})" in refused.stderr
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


def dumped(deployment: Deployment, name: str) -> str:
    """Returns documents and indexes of a database as extended JSON."""
    with deployment.client() as client:
        kept = {
            collection: {
                "documents": list(client[name][collection].find().sort("_id")),
                "indexes": [dict(i) for i in client[name][collection].list_indexes() if i["name"] != "_id_"],
            }
            for collection in sorted(client[name].list_collection_names())
        }
    return json_util.dumps(kept, json_options=json_util.CANONICAL_JSON_OPTIONS)


# --- Steps to a newer layout ------------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], apsw.Connection]]:
    """Connections to an embedded store of this release with one document."""
    made: list[apsw.Connection] = []

    def connection() -> apsw.Connection:
        made.append(connect(tmp_path / "recalld.db", 1_000))
        return made[-1]

    sqlite_schema.migrate(connection(), COLLECTIONS)
    made[0].execute("INSERT INTO audit (tenant, id, doc) VALUES ('acme', 'one', '{}')")
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

    first, second = sqlite_schema.LAYOUT + 1, sqlite_schema.LAYOUT + 2
    with pytest.raises(StoreUnavailable):
        sqlite_schema.migrate(opened(), COLLECTIONS, {first: step, second: failing})
    assert sqlite_schema.written(opened()).layout == sqlite_schema.LAYOUT
    assert (marked(), len(taken)) == (0, 2)
    for _ in range(2):
        sqlite_schema.migrate(opened(), COLLECTIONS, {first: step, second: step})
        assert sqlite_schema.written(opened()) == Written(second, VERSION)
    assert len(taken) == 4
    assert marked() > 0
    with pytest.raises(StoreUnavailable, match=f"layouts up to {sqlite_schema.LAYOUT}"):
        sqlite_schema.migrate(opened(), COLLECTIONS)


def test_a_new_store_has_the_newest_layout_and_takes_no_step(tmp_path: Path) -> None:
    taken: list[apsw.Connection] = []
    with closing(connect(tmp_path / "recalld.db", 1_000)) as connection:
        for _ in range(2):
            sqlite_schema.migrate(connection, COLLECTIONS, {sqlite_schema.LAYOUT + 1: taken.append})
            assert sqlite_schema.written(connection) == Written(sqlite_schema.LAYOUT + 1, VERSION)
    assert taken == []


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
        client = connect_mongo(mongodb.uri, 30)
        database = client[name]
        await mongo_schema.reconcile(database, COLLECTIONS)
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
