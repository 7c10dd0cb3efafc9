"""Where the store is: a place where none can be, one that was mistyped, and who makes a new one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from app.cli.main import app
from tests.cli.conftest import Run
from tests.support.rerankers import model_folder
from tests.support.server import recalld

KEY = ("keys", "create", "--tenant", "default", "--name", "first", "--verbs", "read,write,admin")
USING = [
    ("add", "tea"),
    ("search", "tea"),
    ("list",),
    ("show", "mem_1"),
    ("context", "tea"),
    ("sessions",),
    ("forget", "--user", "u", "--older-than-days", "9"),
    ("forget", "--user", "u", "--older-than-days", "9", "--apply"),
    ("decay",),
    ("doctor",),
    ("reembed",),
    ("migrate", "--to", "mongodb://127.0.0.1:9"),
    ("backup", "copy"),
    ("export", "file"),
    ("keys", "list"),
    ("keys", "revoke", "0123456789abcdef"),
    ("keys", "rotate", "0123456789abcdef"),
    ("forget-tombstones", "--tenant", "default"),
    ("worker",),
]
"""Commands that use a store."""


@pytest.mark.parametrize("command", USING, ids=" ".join)
def test_a_command_that_uses_memory_makes_no_store_at_a_mistyped_path(
    run: Run, data: Path, command: tuple[str, ...]
) -> None:
    ended = run(*command)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"recalld: There is no store in {data}. RECALLD_DATA_DIR names")
    assert not data.exists()


def test_what_makes_a_store_says_where(run: Run, data: Path, tmp_path: Path) -> None:
    made = run(*KEY)
    assert f"recalld: a new store was made in {data}." in made.stderr.splitlines()
    assert "new store" not in run(*KEY).stderr, "it is there"

    other = tmp_path / "other"
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps({"results": [{"id": "1", "memory": "Prefers tea", "user_id": "ada"}]}))
    brought = run("import", "--from", "mem0", str(file), RECALLD_DATA_DIR=str(other))
    assert brought.returncode == 0, brought.stderr
    assert f"recalld: a new store was made in {other}." in brought.stderr
    assert run("list", RECALLD_DATA_DIR=str(other)).stdout.count("Prefers tea") == 1

    archive, third = tmp_path / "archive", tmp_path / "third"
    assert run("export", str(archive), RECALLD_DATA_DIR=str(other)).returncode == 0
    taken = run("import", str(archive), RECALLD_DATA_DIR=str(third))
    assert f"recalld: a new store was made in {third}." in taken.stderr

    copy, fourth = tmp_path / "copy", tmp_path / "fourth"
    assert run("backup", str(copy), RECALLD_DATA_DIR=str(other)).returncode == 0
    assert str(fourth) in run("restore", str(copy), RECALLD_DATA_DIR=str(fourth)).stdout


@pytest.mark.parametrize(
    ("content", "options", "code"),
    [
        ("", (), 1),
        ('{"results": []}', (), 1),
        ('{"recalld": "tenant", "format": 1, "tenant": "default"}\n', ("--tenant", "not/one"), 1),
        ("no JSON", ("--from", "mem0"), 1),
        ('{"results": [{"id": "1"}]}', ("--from", "mem0"), 3),
        ('{"results": []}', ("--from", "mem0"), 0),
    ],
)
def test_an_import_that_takes_nothing_leaves_no_new_store(
    run: Run, data: Path, tmp_path: Path, content: str, options: tuple[str, ...], code: int
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    ended = run("import", str(file), *options)
    assert ended.returncode == code, ended.stderr
    assert "new store" not in ended.stderr
    assert not data.exists()
    assert run("import", str(tmp_path / "absent"), *options).returncode == 1
    assert not data.exists()


@pytest.mark.parametrize("command", [("keys", "list"), KEY, ("search", "tea"), ("doctor",), ("serve",), ("worker",)])
@pytest.mark.parametrize("below", ["", "sub/folder"])
def test_a_data_directory_that_is_a_file_is_told_in_words(
    run: Run, tmp_path: Path, command: tuple[str, ...], below: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    named = file / below if below else file
    ended = run(*command, RECALLD_DATA_DIR=str(named), RECALLD_PORT="0")
    assert ended.returncode == 1
    where = f"and {file}" if below else "which"
    says = f"RECALLD_DATA_DIR is {named}, {where} is a file: name a directory."
    assert ended.stderr.splitlines()[-1] == f"recalld: {says}"
    assert ended.stderr.count(says) == 1, "a start error comes once"
    assert "Application startup failed" not in ended.stderr
    assert "API keys were made" not in ended.stderr
    assert file.read_text() == "mine"


def test_paths_are_read_from_the_folder_where_the_caller_stands(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `scripts/recalld`, which goes into the checkout's folder and says where it was called."""
    stands, checkout = tmp_path / "stands", tmp_path / "checkout"
    stands.mkdir()
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    (stands / "mem0.json").write_text(json.dumps({"results": [{"id": "1", "memory": "Prefers tea", "user_id": "ada"}]}))

    def ended(*command: str, data: str = "") -> str:
        told = run(*command, RECALLD_CALLED_FROM=str(stands), RECALLD_DATA_DIR=data or str(tmp_path / "data"))
        assert told.returncode == 0, told.stderr
        return told.stderr

    ended("import", "--from", "mem0", "mem0.json")
    ended("export", "archive")
    ended("backup", "copy")
    ended("backup", "copies", "--keep", "1")
    assert f"{stands / 'taken'}." in ended("import", "archive", data="taken")
    ended("restore", "copies", data="restored")
    ended("salvage", "--to", "salvaged")
    made = {"archive", "copy", "copies", "mem0.json", "restored", "salvaged", "taken"}
    assert {path.name for path in stands.iterdir()} == made
    assert list(checkout.iterdir()) == []


def test_the_folder_of_a_model_is_read_from_the_folder_where_the_caller_stands(run: Run, tmp_path: Path) -> None:
    model_folder(tmp_path / "stands" / "overlap", "overlap")
    assert run(*KEY).returncode == 0
    checked = run("doctor", "--json", RECALLD_RERANKER="overlap", RECALLD_CALLED_FROM=str(tmp_path / "stands"))
    (finding,) = [one for one in json.loads(checked.stdout)["findings"] if one["name"] == "reranker"]
    assert finding["ok"], finding


def test_no_command_reads_a_path_in_another_way() -> None:
    program = typer.main.get_command(app)
    commands = [program, *vars(program)["commands"].values()]
    paths = [
        param for command in commands for param in command.params if isinstance(param.type, typer.models.TyperPath)
    ]
    assert [param.name for param in paths] == []


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.parametrize("command", [("keys", "list"), KEY, ("search", "tea"), ("decay",)])
@pytest.mark.parametrize(("mode", "says"), [(0o555, "cannot be written by this user"), (0o000, "may not")])
def test_a_place_that_cannot_be_written_is_told_in_words(
    run: Run, tmp_path: Path, command: tuple[str, ...], mode: int, says: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    opened = [folder for folder in (tmp_path, *tmp_path.parents) if folder.stat().st_mode & 0o001 == 0]
    for folder in opened:
        folder.chmod(folder.stat().st_mode | 0o011)
    try:
        with as_nobody():
            ended = run(*command, RECALLD_DATA_DIR=str(place / "data"))
    finally:
        place.chmod(0o700)
        for folder in opened:
            folder.chmod(0o700)
    assert ended.returncode == 1
    assert f"RECALLD_DATA_DIR is {place / 'data'}," in ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "API keys were made" not in ended.stderr


@pytest.mark.slow
def test_a_start_error_comes_once_with_workers_too(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for workers in ("1", "2"):
        ended = recalld(tmp_path / "notes.txt", "serve", "--workers", workers)
        assert ended.returncode == 1
        assert ended.stderr.count("is a file: name a directory") == 1
        assert ended.stderr.splitlines()[-1].startswith("recalld: RECALLD_DATA_DIR is ")


def test_it_completes_commands_for_the_shell_that_runs_it() -> None:
    in_bash = ["bash", "-c", '"$0" -m app.cli --show-completion; true', sys.executable]  # without `true` bash is gone
    shown = subprocess.run(in_bash, capture_output=True, text=True, check=True, timeout=120)
    assert "_RECALLD_COMPLETE=complete_bash" in shown.stdout
