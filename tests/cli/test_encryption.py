"""An encrypted store over HTTP, by commands and as processes that are killed. Runs the tests that need the extra."""

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.command import Run
from tests.support.encryption import KEY, OTHER_KEY, can_encrypt
from tests.support.encryption import encrypting_python as encrypting_python
from tests.support.memories import OWNER
from tests.support.server import RESERVE_BYTES, ROOT, environment, recalld, serving

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(can_encrypt(), reason="it starts processes that have the extra from one that has not"),
]
NEEDLE = "the safe code is 955433"
LONG = {"long": "x" * 3_000}
SIGNS = (NEEDLE.encode(), b"SQLite format", b"agent_memories", KEY.encode(), bytes.fromhex(KEY))


def showing(*folders: Path) -> set[str]:
    """Names of the files that show a memory, a table's name or the key."""
    files = {file for folder in folders for file in folder.iterdir() if file.is_file()}
    return {file.name for file in files if any(sign in file.read_bytes() for sign in SIGNS)}


def remember(client: httpx.Client, number: int) -> str:
    body = {**OWNER, "content": f"{NEEDLE}, note {number}", "deduplicate": False}
    answer = client.post("/v1/memories", json=body)
    assert answer.status_code == 201
    memory_id: str = answer.json()["memory_id"]
    return memory_id


def found(client: httpx.Client) -> int:
    """Number of memories that a search finds and shows."""
    answer = client.post("/v1/memories/search", json={**OWNER, "query": "what is the safe code?", "top_k": 50})
    assert answer.status_code == 200
    return sum(NEEDLE in one["memory"]["content"] for one in answer.json()["items"])


@pytest.mark.parametrize(
    ("tests", "settings"),
    [
        pytest.param(("tests/storage/sqlite/test_encryption.py",), {}, id="encryption"),
        # any other test of the embedded engine holds on an encrypted store, too; these touch the file most
        pytest.param(
            ("tests/contract", "tests/retention/test_erasure.py"),
            {"KEY": KEY},
            marks=pytest.mark.release,
            id="features",
        ),
    ],
)
def test_tests_pass_where_the_extra_is_installed(
    encrypting_python: str, tests: tuple[str, ...], settings: dict[str, str]
) -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RECALLD_", "PYTEST_"))}
    given = {f"RECALLD_STORE_{name}": value for name, value in settings.items()}
    ended = subprocess.run(
        [encrypting_python, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "--hypothesis-profile=quick", *tests],
        check=False,
        cwd=ROOT,
        env={**ours, "RECALLD_TEST_ENGINES": "embedded", **given},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:]
    assert "skipped" not in ended.stdout.splitlines()[-1]


def test_a_service_on_an_encrypted_store(encrypting_python: str, tmp_path: Path) -> None:
    """What it stores is served after a kill and from a backup, and no file shows it."""
    data, key = tmp_path / "data", tmp_path / "store.key"
    key.write_text(KEY)
    given = {"python": encrypting_python, "RECALLD_STORE_KEY_FILE": str(key)}
    with serving(data, **given) as server:
        ids = [remember(server.client, number) for number in range(20)]
        assert found(server.client) == 20
        backup = recalld(data, "backup", str(tmp_path / "store.backup"), **given)
        assert backup.returncode == 0, backup.stderr
        ids.append(remember(server.client, 20))
        assert showing(data, tmp_path) == {"store.key"}
        log = server.log_text()
        server.process.kill()
    assert KEY not in log
    assert showing(data) == set()
    with serving(data, **given) as server:
        assert all(server.client.get(f"/v1/memories/{memory_id}").status_code == 200 for memory_id in ids)
        assert found(server.client) == 21
    assert recalld(data, "doctor", **given).returncode == 0
    restored = tmp_path / "restored"
    assert recalld(restored, "restore", str(tmp_path / "store.backup"), **given).returncode == 0
    assert showing(restored) == set()
    with serving(restored, **given) as server:
        assert found(server.client) == 20


@pytest.mark.release
def test_a_start_with_another_key_none_or_no_extra_says_why(
    encrypting_python: str, data: Path, run: Run, tmp_path: Path
) -> None:
    made = recalld(
        data, "keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci", python=encrypting_python, STORE_KEY=""
    )
    assert made.returncode == 0, made.stderr
    right, other = tmp_path / "right", tmp_path / "other"
    right.write_text(f"{KEY}\n")
    other.write_text(f"{OTHER_KEY}\n")
    encrypted = recalld(data, "rekey", str(right), python=encrypting_python)
    assert encrypted.returncode == 0, encrypted.stderr
    assert str(right) in encrypted.stdout
    before = {file.name: file.read_bytes() for file in data.iterdir()}
    for python, file, why in (
        (encrypting_python, other, "The key does not open recalld.db"),
        (encrypting_python, None, "recalld.db is encrypted: name its key with RECALLD_STORE_KEY_FILE"),
        (encrypting_python, tmp_path / "nowhere", "No such file"),
        (sys.executable, right, "`scripts/extra encryption` installs it"),
        (sys.executable, None, "recalld.db is encrypted: name its key"),
    ):
        given = {"RECALLD_DISK_RESERVE_BYTES": str(RESERVE_BYTES)}
        given |= {"RECALLD_STORE_KEY_FILE": str(file)} if file else {}
        for command in (("serve",), ("doctor",), ("keys", "list"), ("backup", str(tmp_path / "none.backup"))):
            here = python == sys.executable and command != ("serve",)  # a process of its own takes seconds to begin
            refused = run(*command, **given) if here else recalld(data, *command, python=python, **given)
            assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
            assert "Traceback" not in refused.stderr
            assert KEY not in refused.stdout + refused.stderr
    assert {name: (data / name).read_bytes() for name in before} == before
    assert not (tmp_path / "none.backup").exists()
    listed = recalld(data, "keys", "list", python=encrypting_python, RECALLD_STORE_KEY=KEY)
    assert "acme" in listed.stdout


def test_a_new_store_needs_the_extra_for_a_key(tmp_path: Path) -> None:
    refused = recalld(
        tmp_path / "data", "keys", "create", "--no-admin", "--tenant", "a", "--name", "b", RECALLD_STORE_KEY=KEY
    )
    assert refused.returncode == 1
    assert "encryption needs the package apsw-sqlite3mc in the place of apsw" in refused.stderr


@pytest.mark.release
def test_a_rotation_that_is_killed_leaves_a_store_that_opens_with_one_of_both_keys(
    encrypting_python: str, tmp_path: Path
) -> None:
    data, keys = tmp_path / "data", (tmp_path / "first", tmp_path / "second")
    for file, digits in zip(keys, (KEY, OTHER_KEY), strict=True):
        file.write_text(digits)
    with serving(data, python=encrypting_python, RECALLD_STORE_KEY=KEY) as server:
        for number in range(8):
            # few characters are embedded, the rest takes up room
            items = [{**OWNER, "content": f"{NEEDLE} {number} {i}", "metadata": LONG} for i in range(100)]
            assert server.client.post("/v1/memories/batch", json={"items": items}).status_code == 201
    current, turns = 0, 0
    for killed_at in range(0, 12, 2):
        old, new = keys[current], keys[1 - current]
        process = subprocess.Popen(
            [encrypting_python, "-m", "app.cli", "rekey", str(new)],
            env=environment(data, RECALLD_STORE_KEY_FILE=str(old)),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        part = data / "recalld.db.part"
        while process.poll() is None and not (part.exists() and part.stat().st_size >= killed_at << 18):
            time.sleep(0.0005)
        process.kill()
        process.wait()
        opened = [opens(data, file, encrypting_python) for file in keys]
        assert sorted(opened) == [False, True]
        turns += opened[current] is False
        current = opened.index(True)
        assert showing(data) == set()
    ended = recalld(
        data, "rekey", str(keys[1 - current]), python=encrypting_python, RECALLD_STORE_KEY_FILE=str(keys[current])
    )
    assert ended.returncode == 0, ended.stderr
    assert not (data / "recalld.db.part").exists()
    given = {"python": encrypting_python, "RECALLD_STORE_KEY_FILE": str(keys[1 - current])}
    assert recalld(data, "doctor", **given).returncode == 0
    with serving(data, **given) as server:
        assert found(server.client) > 0
    assert turns < 6, "some were killed before the new file took the place of the old one"


def opens(data: Path, key: Path, python: str) -> bool:
    return recalld(data, "keys", "list", python=python, RECALLD_STORE_KEY_FILE=str(key)).returncode == 0
