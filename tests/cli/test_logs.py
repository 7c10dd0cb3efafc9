"""Logs are lines for people on a terminal, and JSON elsewhere."""

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli._common import JsonFormatter, TextFormatter
from tests.support.server import environment

WORKER = (sys.executable, "-m", "app.cli", "worker")
CANARY = "what a caller sent"


def record(message: str, **fields: object) -> logging.LogRecord:
    try:
        raise ValueError(CANARY)
    except ValueError:
        made = logging.LogRecord("app.x", logging.WARNING, __file__, 1, message, (), sys.exc_info())
    vars(made).update(fields)
    return made


def test_a_line_for_people() -> None:
    line, *stack = TextFormatter(colours=False).format(record("slow\nquery \x1b[2J", seconds=2.5)).splitlines()
    assert line.split(maxsplit=1)[1] == "WARNING app.x: slow query  [2J seconds=2.5"
    assert stack[-1] == "ValueError"
    assert CANARY not in "".join(stack)
    assert "\x1b[33mWARNING" in TextFormatter(colours=True).format(record("slow"))


def test_a_line_for_programs() -> None:
    line = json.loads(JsonFormatter().format(record("slow", seconds=2.5)))
    assert (line["level"], line["message"], line["seconds"], line["error"]) == ("warning", "slow", 2.5, "ValueError")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_a_terminal_gets_text(tmp_path: Path, terminal: tuple[int, int]) -> None:
    """An unknown variable makes `recalld worker` log a warning; the store cannot be reached."""
    ours, theirs = terminal
    given = environment(tmp_path / "data", RECALLD_ZZZ="1", RECALLD_STORE="mongodb://127.0.0.1:9/?timeoutMS=1")
    with subprocess.Popen(WORKER, env=given, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        first = os.read(ours, 4096).decode().splitlines()[0]
        process.kill()
    assert not first.startswith("{")
    assert "RECALLD_ZZZ is no setting" in first
