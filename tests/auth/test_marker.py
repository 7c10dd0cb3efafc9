"""The file that says that API keys were made."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.auth.dependencies import KeysMade
from app.settings import Settings
from app.storage.factory import StoreLocation, where_of


def marker(folder: Path, store: str = "embedded") -> KeysMade:
    return KeysMade(folder / "data", store)


def test_it_names_the_stores_that_were_noted_and_no_others(tmp_path: Path) -> None:
    assert not marker(tmp_path).names_store()
    marker(tmp_path).note()
    marker(tmp_path, "mongodb:1").note()
    assert marker(tmp_path).names_store()
    assert marker(tmp_path, "mongodb:1").names_store()
    assert not marker(tmp_path, "mongodb:2").names_store()
    assert json.loads(marker(tmp_path).file.read_bytes()) == {"stores": ["embedded", "mongodb:1"]}


def test_it_is_its_owners_alone_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        marker(tmp_path).note()
    finally:
        os.umask(before)
    (file,) = (tmp_path / "data").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("keys-made", 0o600)


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    mine = marker(tmp_path)
    assert not mine.names_store()
    marker(tmp_path, "mongodb:1").note()
    assert not mine.names_store()
    marker(tmp_path).note()
    assert mine.names_store()
    mine.file.unlink()
    assert not mine.names_store()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"stores": 1}', b"\xff", b"{}"])
def test_one_that_cannot_be_read_still_says_that_keys_were_made(tmp_path: Path, content: bytes) -> None:
    mine = marker(tmp_path)
    mine.file.parent.mkdir()
    mine.file.write_bytes(content)
    assert mine.names_store()
    mine.note()
    assert json.loads(mine.file.read_bytes()) == {"stores": ["embedded"]}


def test_where_it_cannot_be_written_there_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").write_text("a file in the place of the directory")
    marker(tmp_path).note()
    assert "cannot be written" in caplog.text


# --- Names of stores --------------------------------------------------------------------------------------------------


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return where_of(Settings(data_dir=tmp_path, _env_file=None))


def test_the_name_of_a_deployment_is_of_its_hosts_and_its_database(where: StoreLocation) -> None:
    def name(uri: str, database: str = "recalld") -> str:
        mongodb = where.settings.mongodb.model_copy(update={"database": database})
        return replace(where, settings=where.settings.model_copy(update={"mongodb": mongodb}), store=uri).name

    here = name("mongodb://ada:s3cret@one:27017,two:27017/?replicaSet=rs0")
    assert here == name("mongodb://TWO:27017,one:27017/admin?tls=true")
    others = [
        "mongodb://one:27017/",
        "mongodb://one:27018,two:27017/",
        "mongodb+srv://one:27017,two:27017",
    ]
    names = {here, where.name, name("mongodb://one:27017,two:27017", "another"), *map(name, others)}
    assert len(names) == 6
    assert not any(word in here for word in ("ada", "s3cret", "one", "two"))
