"""The settings of the service that an evaluation starts for itself."""

from pathlib import Path

import pytest

from app.settings import Settings
from scripts.evaluation.server import environment


@pytest.mark.parametrize("background", [True, False])
def test_the_server_runs_background_work_only_where_it_is_wanted(
    background: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in environment(str(tmp_path / "data"), 4321, background=background).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.jobs.enabled is background
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 4321, tmp_path / "data")
