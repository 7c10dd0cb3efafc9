"""Settings: described once, read from the environment and `.env`, frozen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.api.connections import ConnectionLimits
from app.auth.tokens import LEEWAY_SECONDS
from app.context.layout import MIN_SCORE
from app.core.limits import BODY_LIMITS, OBJECT_BYTES
from app.core.tuning import USUAL
from app.embedding.factory import BATCH_TOKENS, QUERY_CACHE, THREADS
from app.embedding.model import Server
from app.fixed_settings import FIXED
from app.jobs import models as kinds
from app.jobs.schedule import PERIODS
from app.llm.client import RUN_CALLS, RUN_TOKENS
from app.procedures.review import FAILING_BELOW
from app.procedures.track_record import FAILURES_IN_A_ROW
from app.procedures.trials import TRIAL_MOST, TRIAL_OUTCOMES
from app.reflection.finders import UNCONFIRMED_DAYS
from app.retention.jobs import OPERATION_DAYS
from app.setting_groups import without_secrets
from app.settings import Settings, describe, explain, unknown_variables
from scripts.export_settings import DOC, ENV, doc_rendered, env_rendered

GIVEN: dict[str, tuple[str, Callable[[Settings], Any], Any]] = {
    "RECALLD_PORT": ("9001", lambda s: s.port, 9001),
    "RECALLD_DATA_DIR": ("/tmp/x", lambda s: s.data_dir, Path("/tmp/x")),
    "RECALLD_LOG_LEVEL": ("debug", lambda s: s.log_level, "debug"),
    "RECALLD_RERANK_SECONDS": ("0.25", lambda s: s.rerank.seconds, 0.25),
    "RECALLD_LIMITS_BODY_BYTES": ("2048", lambda s: s.limits.body_bytes, 2048),
    "RECALLD_EMBEDDING_DIMENSIONS": ("64", lambda s: s.embedding.dimensions, 64),
}

CONNECTIONS = ConnectionLimits(by_address=1)
CONSTANTS: dict[str, float] = {
    "BUSY_TIMEOUT_MS": USUAL.busy_timeout_ms,
    "DRAIN_SECONDS": USUAL.drain_seconds,
    "DRAIN_DELAY_SECONDS": USUAL.drain_delay_seconds,
    "LIMITS_BATCH_ITEMS": BODY_LIMITS.batch_items,
    "LIMITS_TEXT_CHARS": BODY_LIMITS.text_chars,
    "LIMITS_JSON_DEPTH": BODY_LIMITS.json_depth,
    "LIMITS_JSON_VALUES": BODY_LIMITS.json_values,
    "LIMITS_OBJECT_KEYS": BODY_LIMITS.object_keys,
    "LIMITS_OBJECT_BYTES": OBJECT_BYTES,
    "LIMITS_COST_BURST_SECONDS": USUAL.cost_burst_seconds,
    "LIMITS_WRONG_KEYS_SECONDS": USUAL.wrong_keys_seconds,
    "CHANGES_STREAMS": USUAL.streams,
    "LLM_MAX_CALLS": RUN_CALLS,
    "LLM_MAX_TOKENS": RUN_TOKENS,
    "LLM_EXTRACT_SECONDS": USUAL.extract_seconds,
    "REFLECTION_FINDINGS_PER_RUN": USUAL.findings_per_run,
    "REFLECTION_INSIGHT_CALLS": USUAL.insight_calls,
    "REFLECTION_UNCONFIRMED_DAYS": UNCONFIRMED_DAYS,
    "REFLECTION_PAIRS_PER_RUN": USUAL.pairs_per_run,
    "PROCEDURES_FAILURES_IN_A_ROW": FAILURES_IN_A_ROW,
    "PROCEDURES_FAILING_BELOW": FAILING_BELOW,
    "PROCEDURES_TRIAL_OUTCOMES": TRIAL_OUTCOMES,
    "PROCEDURES_TRIAL_MOST": TRIAL_MOST,
    "MONGODB_EXACT_UP_TO": USUAL.exact_up_to,
    "CONTEXT_ARM_SECONDS": USUAL.section_seconds,
    "CONTEXT_MIN_SCORE": MIN_SCORE,
    "CONTEXT_UNSURE_BELOW": USUAL.unsure_below,
    "OIDC_LEEWAY_SECONDS": LEEWAY_SECONDS,
    "CONNECTIONS_TOTAL": CONNECTIONS.total,
    "CONNECTIONS_HEADER_SECONDS": CONNECTIONS.header_seconds,
    "CONNECTIONS_HEADER_BYTES": CONNECTIONS.header_bytes,
    "CONNECTIONS_BODY_SECONDS": CONNECTIONS.body_seconds,
    "CONNECTIONS_IDLE_SECONDS": USUAL.idle_seconds,
    "CONNECTIONS_BODY_BYTES": CONNECTIONS.body_bytes,
    "RETENTION_OPERATION_DAYS": OPERATION_DAYS,
    "EMBEDDING_THREADS": THREADS,
    "EMBEDDING_BATCH_TOKENS": BATCH_TOKENS,
    "EMBEDDING_BATCH_TEXTS": Server().batch_texts,
    "EMBEDDING_QUERY_CACHE": QUERY_CACHE,
    "EMBEDDING_TIMEOUT_SECONDS": Server().timeout_seconds,
    "RERANK_HITS": USUAL.rerank_hits,
    "JOBS_DECAY_SECONDS": PERIODS[kinds.DECAY],
    "JOBS_EXPIRY_SECONDS": PERIODS[kinds.EXPIRY],
    "JOBS_RETENTION_SECONDS": PERIODS[kinds.RETENTION],
    "JOBS_CONSOLIDATION_SECONDS": PERIODS[kinds.CONSOLIDATION],
    "JOBS_REFLECTION_SECONDS": PERIODS[kinds.REFLECTION],
    "JOBS_PREDICATES_SECONDS": PERIODS[kinds.MERGE_PREDICATES],
    "JOBS_EMBED_SECONDS": PERIODS[kinds.EMBED_PENDING],
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


@pytest.mark.parametrize("name", FIXED)
def test_what_became_a_constant_is_warned_of_and_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RECALLD_{name}", "77")
    assert Settings() == Settings(_env_file=None)
    (sentence,) = unknown_variables()
    assert sentence == f"RECALLD_{name} is no setting any more and is ignored: it is fixed at {FIXED[name]}."


def test_what_became_a_constant_is_warned_of_in_a_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RECALLD_JOBS_EMBED_SECONDS=9\nRECALLD_JOBS_ENABLED=false\n")
    assert not Settings().jobs.enabled
    assert "RECALLD_JOBS_EMBED_SECONDS in .env is no setting any more" in unknown_variables()[0]


def test_a_constant_is_what_is_said_of_it() -> None:
    assert {name: float(FIXED[name]) for name in CONSTANTS} == CONSTANTS
