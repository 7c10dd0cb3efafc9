"""Help names every setting; a setting that is wrong is a sentence."""

from pathlib import Path

import pytest

from app import VERSION
from app.settings import by_subject, describe
from tests.cli.conftest import Run


def test_help_of_serve_names_every_setting(run: Run, data: Path) -> None:
    ended = run("serve", "--help", COLUMNS="200", TERM="dumb")
    assert ended.returncode == 0
    said = " ".join(ended.stdout.split())
    for name, default, text in describe():
        assert f"{name} ({default}): {text}" in said
    assert not data.exists()
    places = [said.index(f"{name} (") for _, rows in by_subject() for name, _, _ in rows]
    assert places == sorted(places), "the ten to know come first, then each subject"
    assert len(by_subject()[0][1]) == 10
    assert sum(len(rows) for _, rows in by_subject()) == len(describe()) <= 65


def test_help_names_every_command(run: Run) -> None:
    said = run("--help").stdout
    assert all(command in said for command in ("serve", "doctor", "keys", "add", "search", "chat"))
    assert run("nonsense").returncode == 2


def test_it_says_its_version(run: Run) -> None:
    assert run("--version").stdout == f"recalld {VERSION}\n"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RECALLD_PORT", "http", "RECALLD_PORT is 'http':"),
        ("RECALLD_LIMITS_BODY_BYTES", "4MB", "RECALLD_LIMITS_BODY_BYTES is '4MB':"),
        ("RECALLD_AUTH", "no", "RECALLD_AUTH is 'no':"),
        ("RECALLD_LIMITS_BODYBYTES", "1", "RECALLD_LIMITS_BODYBYTES is no setting: did you mean RECALLD_LIMITS_BODY_"),
        ("RECALLD_ERASURE_KEY", "hunter2", "RECALLD_ERASURE_KEY is a secret: It must have at least 32"),
        ("RECALLD_LIMITS", "{", "error parsing value for field"),
    ],
)
def test_a_wrong_setting_is_a_sentence(run: Run, name: str, value: str, says: str) -> None:
    for command in ("serve", "doctor"):
        ended = run(command, **{name: value})
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"recalld: {says}")
        assert ended.stderr.count("\n") == 1
        assert "hunter2" not in ended.stderr


def test_options_win_over_the_environment(run: Run) -> None:
    ended = run("serve", "--port", "70000", RECALLD_PORT="1")
    assert "RECALLD_PORT is '70000'" in ended.stderr


def test_a_password_in_an_address_is_not_printed(run: Run) -> None:
    for ended in (
        run("serve", RECALLD_LLM_BASE_URL="https://ada:hunter2@llm.example/v1"),
        run("search", "tea", "--agent", "a", "--url", "http://ada:hunter2@127.0.0.1:9"),
        run("doctor", RECALLD_STORE="mongodb://ada:hunter2@host:99999"),
    ):
        assert ended.returncode == 1
        assert ended.stderr.startswith("recalld: ")
        assert "hunter2" not in ended.stdout + ended.stderr
