"""What the benchmark makes of the times of services that took turns."""

import argparse

import pytest

from benchmarks.compare import APPEND, add_options, compared, run


def test_calls_that_all_services_have_are_set_beside_the_first_ones() -> None:
    times = {"bare": {APPEND: [2.0]}, "service": {APPEND: [3.0], "read a memory": [1.0]}}
    rows, met = compared(times, 1.5)
    assert rows == [{"call": APPEND, "bare, p50 ms": 2.0, "service, p50 ms": 3.0, "service ×": 1.5, "target": 1.5}]
    assert met
    assert not compared(times, 1.4)[1]


def test_only_writes_have_a_target() -> None:
    times = {"no log": {"read a memory": [1.0]}, "log": {"read a memory": [9.0]}}
    (row,), met = compared(times, 1.1)
    assert (row["log ×"], "target" in row, met) == (9.0, False, True)


def test_of_several_services_each_is_compared_with_the_first() -> None:
    times = {"off": {APPEND: [2.0]}, "sampled out": {APPEND: [2.2]}, "sent": {APPEND: [4.0]}}
    (row,), _ = compared(times, None)
    assert (row["sampled out ×"], row["sent ×"]) == (1.1, 2.0)


def test_a_revision_needs_the_other_checkout() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(SystemExit, match="--beside FOLDER"):
        next(run(parser.parse_args(["revision"])))
