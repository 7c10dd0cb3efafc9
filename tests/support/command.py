"""Commands in this process, as the shell would start them: a process of their own takes a second to begin."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.cli import main
from app.settings import describe


@dataclass(frozen=True, slots=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def new_store(data: Path, empty_store: Path) -> Path:
    """An empty store in `data`, as `serve` makes it: commands that use memory make none."""
    shutil.copytree(empty_store, data)
    return data


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("keys", "list", RECALLD_PORT="1")`."""
    monkeypatch.chdir(data.parent)
    for name, _, _ in describe():
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, **settings: str) -> Ended:
        with monkeypatch.context() as patch:
            for name in ("RECALLD_HOST", "RECALLD_PORT"):  # `serve` hands its options on in these
                patch.setenv(name, "1")
                patch.delenv(name)
            for name, value in {"RECALLD_DATA_DIR": str(data), **settings}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["recalld", *arguments])
            capsys.readouterr()
            code = _main()
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    return call


def _main() -> int:
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
