"""What the benchmarks share: settings, calls that take turns, tables."""

from pathlib import Path

import pytest

from app.settings import Settings
from benchmarks.harness import Section, alternate, environment, percentile, ratio_rows, table


@pytest.mark.parametrize("jobs", [True, False])
def test_the_service_runs_background_work_only_where_it_is_wanted(
    jobs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path / "data", jobs=jobs).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.jobs.enabled is jobs
    assert (settings.host, settings.data_dir) == ("127.0.0.1", tmp_path / "data")


@pytest.mark.anyio
async def test_calls_take_turns_in_blocks_and_the_warm_up_is_not_counted() -> None:
    made: list[tuple[str, int]] = []

    async def other(number: int) -> None:
        made.append(("other", number))

    calls = {"one": lambda number: made.append(("one", number)), "other": other}
    times = await alternate(calls, 2, warm_up=1, block=2)
    assert made[:6] == [("one", 0), ("one", 1), ("other", 0), ("other", 1), ("one", 2), ("one", 3)]
    assert {name: len(taken) for name, taken in times.items()} == {"one": 4, "other": 4}


def test_a_ratio_above_its_target_is_a_miss() -> None:
    times = {"bare": [1.0, 1.0, 1.0], "ours": [2.0, 2.0, 2.0]}
    rows, met = ratio_rows(times, {"ours": "bare"}, {"ours": 2.0})
    assert (rows[1]["× bare"], met) == (2.0, True)
    assert not ratio_rows(times, {"ours": "bare"}, {"ours": 1.9})[1]


def test_percentiles_interpolate_and_a_lone_value_is_its_own() -> None:
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([4.0], 95) == 4.0


def test_a_table_has_the_columns_of_all_rows() -> None:
    assert table([{"call": "a", "ms": 1.5}, {"call": "b", "target": 2}]).splitlines() == [
        "| call | ms | target |",
        "|---|--:|--:|",
        "| a | 1.5 |  |",
        "| b |  | 2 |",
    ]


def test_a_section_is_its_title_its_table_and_its_notes() -> None:
    section = Section("calls", [{"call": "a", "ms": 1.5}], notes=["One call."])
    assert str(section).splitlines() == ["### calls", "", "| call | ms |", "|---|--:|", "| a | 1.5 |", "", "One call."]
