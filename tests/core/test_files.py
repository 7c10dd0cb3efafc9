"""A file with a key that others can read is warned of."""

import logging
from pathlib import Path

import pytest

from app.audit.tombstones import FILE_NAME, ErasureKey
from app.core.files import warn_of_readers
from app.storage.sqlite.connections import StoreKey

WARNING = "others than its owner can read {}, which holds a key"


def warnings(caplog: pytest.LogCaptureFixture, file: Path) -> list[str]:
    return [vars(record)["mode"] for record in caplog.records if vars(record).get("file") == str(file)]


@pytest.mark.parametrize(("mode", "warned"), [(0o600, []), (0o400, []), (0o640, ["0640"]), (0o604, ["0604"])])
def test_a_key_file_that_others_can_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: list[str]
) -> None:
    store_key, erasure_key = tmp_path / "store.key", tmp_path / FILE_NAME
    for file in (store_key, erasure_key):
        file.write_text("ab" * 32)
        file.chmod(mode)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert StoreKey.of_file(store_key).digits == "ab" * 32
            assert ErasureKey("", tmp_path).read() == b"ab" * 32
    assert warnings(caplog, store_key) == warned
    assert warnings(caplog, erasure_key) == warned
    assert (WARNING.format(store_key) in caplog.text) is bool(warned)
    assert "abab" not in caplog.text


def test_the_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        warn_of_readers(tmp_path / "none")
