"""The command of the benchmarks."""

import argparse
import importlib
import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main, summaries
from benchmarks.harness import ROOT

NAMES = sorted(summaries())


def test_every_benchmark_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert {"http", "compare", "facts", "mongo", "recall", "scale"} <= set(NAMES)
    assert all(f"  {name} " in listed for name in NAMES)
    assert not {"harness", "data", "bare"} & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_options_and_a_run(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser()
    module.add_options(parser)
    assert callable(module.run)
    assert "--json" not in parser.format_help(), "the command adds it"


def test_a_name_that_is_unknown_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "reflection" in capsys.readouterr().out


def test_a_run_prints_its_hardware_and_a_table_and_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read from where the caller stands: `scripts/benchmark` works in the checkout's folder."""
    file = tmp_path / "figures.json"
    monkeypatch.setenv("RECALLD_CALLED_FROM", str(tmp_path))
    assert main(["merging", "--json", "figures.json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "cores" in printed[0]
    assert "| pairs that mean | pairs | merged | cosine ≥ 0.95 |" in printed
    written = json.loads(file.read_text())
    same, other = written["merging"]
    assert (same["pairs"], other["pairs"]) == (28, 42)
    assert same["merged"] > other["merged"]
    assert written["options"]["model"]


def test_no_benchmark_or_tool_imports_tests() -> None:
    files = [file for folder in ("benchmarks", "tools") for file in (ROOT / folder).rglob("*.py")]
    imports = [
        (file.name, line)
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith(("from tests", "import tests"))
    ]
    assert len(files) > 20
    assert not imports
