"""Settings: described once, read from the environment and `.env`, frozen."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.core.tuning import USUAL
from app.settings import Settings, describe, explain, without_secrets
from scripts.export_settings import DOC, ENV, doc_rendered, env_rendered
from tests.conftest import Starter
from tests.support.scripted import free_port

GIVEN: dict[str, tuple[str, Callable[[Settings], Any], Any]] = {
    "RECALLD_PORT": ("9001", lambda s: s.port, 9001),
    "RECALLD_DATA_DIR": ("/tmp/x", lambda s: s.data_dir, Path("/tmp/x")),
    "RECALLD_LOG_LEVEL": ("debug", lambda s: s.log_level, "debug"),
    "RECALLD_RERANK_SECONDS": ("0.25", lambda s: s.rerank.seconds, 0.25),
    "RECALLD_LIMITS_BODY_BYTES": ("2048", lambda s: s.limits.body_bytes, 2048),
    "RECALLD_EMBEDDING_DIMENSIONS": ("64", lambda s: s.embedding.dimensions, 64),
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no `.env` lies."""
    monkeypatch.chdir(tmp_path)
    for name, _, _ in describe():
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", GIVEN)
def test_the_environment_sets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, read, value = GIVEN[name]
    monkeypatch.setenv(name, text)
    assert read(Settings()) == value


def test_a_file_sets_it_and_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RECALLD_PORT=9002\nRECALLD_LIMITS_BODY_BYTES=2048\nUNRELATED=1\n")
    assert (Settings().port, Settings().limits.body_bytes) == (9002, 2048)
    monkeypatch.setenv("RECALLD_PORT", "9003")
    assert Settings().port == 9003


def test_every_setting_can_be_set_by_its_described_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, default, text in describe():
        assert text.endswith("."), name
        monkeypatch.setenv(name, default)
    assert Settings() == Settings(_env_file=None)
    assert len(describe()) == len({name for name, _, _ in describe()})


def test_settings_are_frozen() -> None:
    settings: Any = Settings()
    for target, name in ((settings, "port"), (settings.limits, "body_bytes"), (settings.embedding, "model")):
        with pytest.raises(ValidationError):
            setattr(target, name, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "-1"), ("PORT", "65536"), ("LIMITS_BODY_BYTES", "1"), ("OIDC_TENANT", ""), ("LOG_LEVEL", "loud")],
)
def test_a_wrong_value_is_explained_by_its_name(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RECALLD_{name}", value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    (sentence,) = explain(caught.value)
    assert sentence.startswith(f"RECALLD_{name} is '{value}': ")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_only_loopback_is_loopback(host: str, loopback: bool) -> None:
    assert Settings(host=host).loopback is loopback


def test_draining_fits_into_thirty_seconds() -> None:
    assert USUAL.drain_seconds + USUAL.drain_delay_seconds < 30


def test_the_docs_are_the_settings() -> None:
    assert DOC.read_text(encoding="utf-8") == doc_rendered(), "run scripts/export_settings.py"
    assert ENV.read_text(encoding="utf-8") == env_rendered(), "run scripts/export_settings.py"


def test_a_refused_address_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every setting that refuses such a value, whatever the rule is that it breaks."""
    refused = set()
    for name, _, _ in describe():
        for value in ("https://ada:hunter2@host/v 1?key=hunter2", "ada:hunter2@host", "https://host/v 1?key=hunter2"):
            with monkeypatch.context() as one:
                one.setenv(name, value)
                try:
                    Settings(_env_file=None)
                except ValidationError as error:
                    refused.add(name)
                    (sentence,) = explain(error)
                    assert "hunter2" not in sentence
                    assert name in sentence
    assert {"RECALLD_LLM_BASE_URL", "RECALLD_RERANKER", "RECALLD_PUBLIC_URL", "RECALLD_TRUSTED_PROXIES"} <= refused


@pytest.mark.parametrize("name", ["RECALLD_LLM_BASE_URL", "RECALLD_EMBEDDING_BASE_URL", "RECALLD_PUBLIC_URL"])
def test_an_address_without_a_scheme_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "localhost:11434")
    with pytest.raises(ValidationError) as error:
        Settings(_env_file=None)
    assert explain(error.value) == [f"{name} is 'localhost:11434': it must begin with http:// or https://."]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("https://ada:se@cr/et@host:1/v1?key=1", "https://…@host:1/v1?…"),
        ("ada:pw@host", "…@host"),
        ("redis://:pw@host", "redis://…@host"),
        ("http://host/v1", "http://host/v1"),
        ("loud", "loud"),
        ("", ""),
    ],
)
def test_what_is_told_of_an_address(given: str, told: str) -> None:
    assert without_secrets(given) == told


@pytest.mark.anyio
async def test_a_language_model_that_was_meant_and_cannot_be_asked_is_one_warning_at_the_start(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def warned(**environment: str) -> list[str]:
        caplog.clear()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            settings = Settings(data_dir=tmp_path / "data", _env_file=None)
        async with start(settings):
            await asyncio.gather(*(task for task in asyncio.all_tasks() if "_warn_of_no_model" in repr(task)))
        return [line for line in caplog.messages if "language model" in line]

    assert await warned() == []
    (told,) = await warned(RECALLD_LLM_MODEL="qwen3:8b")
    assert "RECALLD_LLM_BASE_URL no server" in told
    (told,) = await warned(RECALLD_LLM_BASE_URL=f"http://127.0.0.1:{free_port()}/v1")
    assert told == "the language model at 127.0.0.1 does not answer: nothing is learned meanwhile"
