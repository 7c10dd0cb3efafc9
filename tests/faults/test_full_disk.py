"""A disk that is really full: a small file system, mounted for the test, under a service in a process of its own.

New data are refused with the bytes that are missing, `/readyz` says so before anything is tried, deletions and the
erasure of a user go on, and nothing acknowledged is lost.
"""

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.jobs.queue import DECAY
from tests.support.server import Server, recalld, serving
from tests.support.tuned import tuned

DISK_BYTES = 24 << 20
RESERVE_BYTES = 4 << 20
SETTINGS = {"RECALLD_DISK_RESERVE_BYTES": str(RESERVE_BYTES)}
DECAYING = tuned(job_seconds={DECAY: 1})
TEXT = "The harbour office keeps the tide tables in the second drawer. " * 400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a small file system of the test's own."""
    folder = tmp_path / "data"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if not made or made.returncode:
        pytest.skip("a file system cannot be mounted here: root and `mount` are needed")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def memory(number: int, user: str) -> dict[str, Any]:
    # few characters are embedded, the rest takes up room
    return {"agent_id": "a", "user_id": user, "content": f"Note {number}.", "metadata": {"long": TEXT}}


def refusal(answer: httpx.Response) -> int:
    """Returns the missing bytes that a refusal names."""
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_full"), answer.text
    assert answer.headers["Retry-After"] == "30"
    found = re.search(r"([\d,]+) more bytes must be free", answer.json()["detail"])
    assert found, answer.json()["detail"]
    return int(found[1].replace(",", ""))


def fill(server: Server, users: tuple[str, ...], written: dict[str, str]) -> int:
    """Writes memories until the service refuses, and returns how many bytes it says are missing."""
    for number in range(len(written), 100_000):
        user = users[number % len(users)]
        answer = server.client.post("/v1/memories", json=memory(number, user))
        if answer.status_code != 201:
            return refusal(answer)
        written[answer.json()["memory_id"]] = user
    raise AssertionError("the disk is never full")


def take_the_rest(file: Path) -> None:
    """Fills the disk to its last byte, as another program would."""
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        while True:
            opened.write(bytes(1 << 12))


def until_ready(server: Server, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while (answer := server.client.get("/readyz")).status_code != 200:
        assert time.monotonic() < until, answer.text
        time.sleep(0.1)


def there(server: Server, user: str) -> set[str]:
    found: set[str] = set()
    cursor: dict[str, str] = {}
    while True:
        query = {"agent_id": "a", "user_id": user, "limit": "100", **cursor}
        page = server.client.get("/v1/memories", params=query).json()
        found |= {one["memory_id"] for one in page["items"]}
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def test_a_full_disk_refuses_new_data_and_deletes(disk: Path) -> None:
    written: dict[str, str] = {}
    with serving(disk, DECAYING, **SETTINGS) as server:
        missing = fill(server, ("ada", "bob", "cy"), written)
        assert 0 < missing <= RESERVE_BYTES
        assert len(written) > 100
        assert refusal(server.client.get("/readyz")) <= RESERVE_BYTES
        assert server.client.get("/livez").status_code == 200
        query = {"agent_id": "a", "user_id": "ada", "query": "note"}
        assert server.client.post("/v1/memories/search", json=query).json()["items"]

        take_the_rest(disk / "other")
        assert shutil.disk_usage(disk).free == 0
        refusal(server.client.get("/readyz"))
        refusal(server.client.post("/v1/memories", json=memory(0, "dora")))

        gone = next(one for one, user in written.items() if user == "ada")
        assert server.client.delete(f"/v1/memories/{gone}").status_code == 204
        del written[gone]
        assert server.client.get(f"/v1/memories/{gone}").status_code == 404
        filtered = server.client.delete("/v1/memories", params={"agent_id": "a", "user_id": "bob"})
        assert filtered.status_code == 200, filtered.text
        assert filtered.json()["deleted"] == len([one for one, user in written.items() if user == "bob"])
        written = {one: user for one, user in written.items() if user != "bob"}
        refusal(server.client.post("/v1/memories", json=memory(0, "dora")))

        # started anew it serves as before
        server.stop()
    with serving(disk, DECAYING, door="/livez", **SETTINGS) as server:
        assert there(server, "cy") == {one for one, user in written.items() if user == "cy"}
        erased = server.client.delete("/v1/users/cy")
        assert erased.status_code in (200, 202), erased.text
        assert there(server, "cy") == set()
        written = {one: user for one, user in written.items() if user != "cy"}

        (disk / "other").unlink()
        until_ready(server)
        answer = server.client.post("/v1/memories", json=memory(0, "dora"))
        assert answer.status_code == 201, answer.text
        assert there(server, "ada") == set(written)
        assert server.client.delete("/v1/users/cy").json()["verification"] == {"records_found": 0, "search_found": 0}
        assert server.stop() == 0
    checked = recalld(disk, "doctor")
    assert checked.returncode == 0, checked.stdout


def test_a_store_that_has_filled_its_disk_takes_new_data_after_deletions(disk: Path) -> None:
    written: dict[str, str] = {}
    with serving(disk, DECAYING, **SETTINGS) as server:
        fill(server, ("ada", "bob"), written)
        assert server.client.get("/readyz").status_code == 503
        gone = server.client.delete("/v1/memories", params={"agent_id": "a", "user_id": "bob"})
        assert gone.status_code == 200, gone.text
        until_ready(server)
        again: dict[str, str] = {}
        fill(server, ("cy",), again)
        assert len(again) > gone.json()["deleted"] // 2, "the room of what was deleted is used again"
        assert len(there(server, "ada")) + gone.json()["deleted"] == len(written)

        # the records go at once; what they leave in the file is overwritten when a copy of the store has room
        assert server.client.delete("/v1/users/ada").is_success
        assert there(server, "ada") == set()
        assert server.client.delete("/v1/memories", params={"agent_id": "a", "user_id": "cy"}).status_code == 200
        receipt = server.client.delete("/v1/users/ada")
        assert receipt.json()["verification"] == {"records_found": 0, "search_found": 0}
        until_ready(server)


def test_without_a_reserve_a_full_disk_keeps_what_should_be_deleted(disk: Path) -> None:
    """Shows that the tests above find a service that keeps nothing back."""
    with serving(disk, RECALLD_DISK_RESERVE_BYTES="0") as server:
        made = server.client.post("/v1/memories", json=memory(0, "ada"))
        assert made.status_code == 201
        take_the_rest(disk / "other")
        answers = [server.client.delete(f"/v1/memories/{made.json()['memory_id']}"), server.client.get("/readyz")]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "bytes are free, and the write needs more" in answers[0].json()["detail"]
        (disk / "other").unlink()
        until_ready(server)
        assert server.client.delete(f"/v1/memories/{made.json()['memory_id']}").status_code == 204


def test_without_a_reserve_the_commands_still_say_what_is_there(disk: Path) -> None:
    with serving(disk, DECAYING, **SETTINGS) as server:
        assert server.client.post("/v1/memories", json=memory(0, "ada")).status_code == 201
        server.stop()
    (disk / "recalld.db-reserve").unlink()
    take_the_rest(disk / "other")
    doctor = recalld(disk, "doctor", "--all")
    assert doctor.returncode == 1
    assert "Traceback" not in doctor.stderr
    table = {line.split()[0]: line for line in doctor.stdout.splitlines()}
    assert "checksums of" in table["recalld.db"]
    assert "The disk is full" in table["store"]
    assert "more bytes must be free to open the store" in table["store"]
