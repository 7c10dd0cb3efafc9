"""`recalld doctor`."""

import json
from pathlib import Path

import apsw

from tests.cli.conftest import Run


def test_a_sound_store_and_a_store_with_a_fault(run: Run, data: Path) -> None:
    assert run("keys", "create", "--tenant", "t", "--name", "n").returncode == 0
    sound = run("doctor", "--json")
    assert sound.returncode == 0
    report = json.loads(sound.stdout)
    assert report["ok"] is True
    assert all(finding["ok"] for finding in report["findings"])
    assert "FAULT" not in run("doctor").stdout

    with apsw.Connection(str(data / "recalld.db")) as connection:
        connection.execute("UPDATE api_keys SET doc = 'no document'")
    faulty = run("doctor")
    assert faulty.returncode == 1
    assert "FAULT" in faulty.stdout
    assert "Traceback" not in faulty.stderr
    assert json.loads(run("doctor", "--json").stdout)["ok"] is False


def test_what_is_no_store_is_a_sentence(run: Run, data: Path) -> None:
    data.write_text("a file, not a directory")
    ended = run("doctor")
    assert ended.returncode == 1
    assert ended.stderr.startswith("recalld: ")
    assert "Traceback" not in ended.stderr
