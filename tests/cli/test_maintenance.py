"""`recalld backup` and `restore`, and the two commands of archives, from the shell's side."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from app.lifespan import open_store
from app.settings import Settings
from app.storage.factory import restore_store, where_of
from tests.cli.conftest import Run
from tests.conftest import Starter
from tests.support.memories import OWNER

pytestmark = pytest.mark.anyio


async def test_a_backup_under_writes_holds_all_that_was_acknowledged_before(start: Starter, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", _env_file=None)
    acknowledged: list[str] = []
    async with start(settings) as service:

        async def write(name: str) -> None:
            for number in range(40):
                body = {**OWNER, "content": f"{name} {number}", "deduplicate": False}
                answer = await service.client.post("/v1/memories", json=body)
                acknowledged.append(answer.json()["memory_id"])

        writing = [asyncio.create_task(write(name)) for name in ("tea", "coffee")]
        for number in range(3):
            await asyncio.sleep(0.1)
            before = list(acknowledged)
            other = await open_store(settings, dim=1)  # as the command, which is a process of its own
            await other.backup(tmp_path / f"{number}.backup")
            await other.close()
            restored = Settings(data_dir=tmp_path / f"restored{number}", _env_file=None)
            await asyncio.to_thread(_restore, restored, tmp_path / f"{number}.backup")
            async with start(restored) as again:
                for memory_id in before:
                    assert (await again.client.get(f"/v1/memories/{memory_id}")).status_code == 200
                assert all(finding.ok for finding in await again.resources.store.check(deep=True))
        await asyncio.gather(*writing)
    assert len(acknowledged) == 80


def _restore(settings: Settings, file: Path) -> None:
    restore_store(where_of(settings), file)


def test_a_backup_goes_beside_the_files_that_are_kept_apart_from_it(run: Run, tmp_path: Path, data: Path) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    file, target = tmp_path / "store.backup", tmp_path / "restored"
    assert run("backup", str(file)).returncode == 0
    target.mkdir()
    for name in ("erasure.key", "keys-made"):
        (target / name).write_text("kept")
    assert run("restore", str(file), RECALLD_DATA_DIR=str(target)).returncode == 0
    assert (target / "erasure.key").read_text() == "kept"


def test_a_damaged_file_and_an_occupied_directory_are_refused(run: Run, tmp_path: Path, data: Path) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    file, target = tmp_path / "store.backup", tmp_path / "restored"
    made = run("backup", str(file), "--json")
    assert json.loads(made.stdout) == {"file": str(file), "bytes": file.stat().st_size}
    assert file.stat().st_mode & 0o077 == 0
    again = run("backup", str(file))
    assert (again.returncode, "overwrites nothing" in again.stderr) == (1, True)
    whole = file.read_bytes()
    spoiled = tmp_path / "spoiled.backup"
    for damaged in (
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:],
        whole + b"x",
        whole[:-3] + b"zzz",
        b"",
        b"nonsense" * 100,
    ):
        spoiled.write_bytes(damaged)
        refused = run("restore", str(spoiled), RECALLD_DATA_DIR=str(target))
        assert refused.returncode == 1
        assert "damaged" in refused.stderr or "no backup" in refused.stderr
        assert not target.exists() or not list(target.iterdir())
    refused = run("restore", str(file))
    assert (refused.returncode, "not empty" in refused.stderr) == (1, True)
    assert run("restore", str(tmp_path / "nowhere"), RECALLD_DATA_DIR=str(target)).returncode == 1
    assert run("restore", str(file), RECALLD_DATA_DIR=str(target)).returncode == 0
    listed = run("keys", "list", "--json", RECALLD_DATA_DIR=str(target))
    assert listed.stdout == run("keys", "list", "--json").stdout
    assert json.loads(run("doctor", "--json", RECALLD_DATA_DIR=str(target)).stdout)["ok"]
    assert sqlite3.connect(file).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_store_that_was_lost_is_restored_beside_the_files_that_stayed(run: Run, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "store.backup"
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    listed = run("keys", "list", "--json").stdout
    assert run("backup", str(file)).returncode == 0
    (data / "erasure.key").write_bytes(b"x")
    for lost in data.glob("recalld.db*"):
        lost.unlink()
    assert (data / "keys-made").exists()
    assert run("restore", str(file)).returncode == 0
    assert run("keys", "list", "--json").stdout == listed
    (data / "anything").touch()
    (data / "recalld.db").unlink()
    assert "not empty" in run("restore", str(file)).stderr


def test_a_tenant_goes_out_and_in(run: Run, tmp_path: Path) -> None:
    run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci")
    file, target = tmp_path / "acme.jsonl", str(tmp_path / "other")
    out = json.loads(run("export", str(file), "--tenant", "acme", "--json").stdout)
    assert out["records"] == 1, "the trail of the key's making"
    back = run("import", str(file), "--json", RECALLD_DATA_DIR=target)
    report = json.loads(back.stdout)
    assert (back.returncode, report["ok"], report["found"]) == (0, True, out["hash"])
    file.write_text(file.read_text().replace("create_key", "create\\u0000key").replace('"in":"audit"', '"in":"audits"'))
    failed = run("import", str(file), RECALLD_DATA_DIR=str(tmp_path / "third"))
    assert failed.returncode == 1
    assert "line 2" in failed.stderr


def test_the_newest_backups_of_a_folder_are_kept_and_nothing_else_is_touched(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    first = json.loads(run("backup", str(folder), "--keep", "2", "--json").stdout)
    whole = Path(first["file"]).read_bytes()
    old = [folder / f"recalld-2026010{day}T000000Z.backup" for day in (1, 2, 3)]
    for file in old:
        file.write_bytes(whole)
    others = {
        folder / "notes.txt": b"mine",
        folder / "recalld-20250101T000000Z.backup": b"named like a backup, and none",
        folder / "recalld-20259999T000000Z.backup": whole,
        folder / "recalld-20240101T000000Z.backup.part": whole,
        folder / "before-the-move.backup": whole,
    }
    for file, content in others.items():
        file.write_bytes(content)
    link = folder / "recalld-20230101T000000Z.backup"
    link.symlink_to(old[0])
    Path(first["file"]).unlink()
    second = json.loads(run("backup", str(folder), "--keep", "2", "--json").stdout)
    assert second["deleted"] == [str(old[1]), str(old[0])]
    assert {file: file.read_bytes() for file in others} == others
    assert link.is_symlink()
    assert old[2].exists()
    assert Path(second["file"]).exists()


def test_no_backup_goes_before_the_new_one_is_whole(run: Run, tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "backups"
    assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci").returncode == 0
    made = Path(json.loads(run("backup", str(folder), "--keep", "1", "--json").stdout)["file"])
    old = made.rename(folder / "recalld-20260101T000000Z.backup")
    with (data / "recalld.db").open("r+b") as file:
        file.seek(3 * 8192 + 100)
        file.write(b"damage")
    failed = run("backup", str(folder), "--keep", "1")
    assert failed.returncode == 1
    assert list(folder.iterdir()) == [old]
    assert run("backup", str(folder), "--keep", "0").returncode == 2


def test_a_moment_is_restored_from_the_newest_backup_before_it(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    names = {1: "one", 2: "two", 3: "three"}
    for day, name in names.items():
        assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", name).returncode == 0
        made = Path(json.loads(run("backup", str(folder), "--keep", "9", "--json").stdout)["file"])
        made.rename(folder / f"recalld-2026010{day}T120000Z.backup")

    def keys(number: int, *at: str) -> list[str]:
        place = str(tmp_path / f"restored{number}")
        done = run("restore", str(folder), *at, RECALLD_DATA_DIR=place)
        assert done.returncode == 0, done.stderr
        items = json.loads(run("keys", "list", "--json", RECALLD_DATA_DIR=place).stdout)["items"]
        return sorted(one["name"] for one in items)

    assert keys(1, "--at", "2026-01-02T11:59:59Z") == ["one"]
    assert keys(2, "--at", "2026-01-02T13:00:00+01:00") == ["one", "two"]
    assert keys(3) == sorted(names.values())
    new = {"RECALLD_DATA_DIR": str(tmp_path / "new")}
    for arguments, said in (
        ((str(folder), "--at", "2025-01-01T00:00:00Z"), "no backup from 2025-01-01"),
        ((str(folder), "--at", "2026-01-02T12:00:00"), "with an offset"),
        ((str(folder), "--at", "yesterday"), "with an offset"),
        ((str(tmp_path / "nowhere"), "--at", "2026-01-02T12:00:00Z"), "needs a folder"),
        ((str(tmp_path),), "no dated backup"),
    ):
        refused = run("restore", *arguments, **new)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert not (tmp_path / "new").exists()
