"""What the processor's time is counted towards."""

import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from benchmarks.stages import Counting, stage_of


def frame_in(*places: str) -> FrameType:
    """The innermost of frames that call each other: of functions of these names in these files."""
    call: Callable[[], FrameType] = partial(sys._getframe, 0)
    for place in reversed(places):
        file, _, name = place.partition(":")
        made: dict[str, Any] = {}
        exec(compile(f"def {name}(call):\n    return call()\n", file, "exec"), made)
        call = partial(made[name], call)
    return call()


@pytest.mark.parametrize(
    ("places", "stage"),
    [
        (["/x/fastapi/routing.py:app"], "framework"),
        (["/x/fastapi/routing.py:app", "/x/app/memories/service.py:create"], "render"),
        (["/x/app/retrieval/retriever.py:find", "/x/app/retrieval/ranking.py:rank"], "rank"),
        (["/x/app/retrieval/ranking.py:rank", "/x/numpy/core.py:sum"], "rank"),
        (["/x/app/storage/sqlite/store.py:find"], "read"),
        (["/x/uvloop/__init__.py:run"], "rest"),
    ],
)
def test_time_is_of_the_innermost_call_that_a_stage_names(places: list[str], stage: str) -> None:
    assert stage_of(frame_in(*places)) == stage


def test_what_a_thread_has_used_is_counted_once() -> None:
    counting = Counting()
    counting(signal.SIGPROF, sys._getframe())
    assert sum(counting.spent.values()) == 0
    sum(range(2_000_000))
    counting(signal.SIGPROF, frame_in("/x/app/embedding/onnx.py:encode"))
    first = counting.spent["embed"]
    assert first > 0
    counting(signal.SIGPROF, sys._getframe())
    assert counting.spent["embed"] == first
