"""Runs the service and counts its processor time by stage: `python benchmarks/stages.py FILE serve --port 8000`.

SIGUSR1 begins to count; the next one ends it and writes {"search": seconds, …} to FILE. PYTHONPATH names the checkout
that runs. The processor's timer interrupts the main thread after each millisecond that the process has worked: what
each thread has used since belongs to the innermost call of it that a stage names.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose http.py would be taken for Python's

import json
import re
import runpy
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

INTERVAL = 0.001
STAGES = {
    "embed": r"/app/embedding/",
    "rank": r"/app/retrieval/(ranking|features|calibration|repetition|model_weights)|/app/findings/replacing",
    "search": r"/app/retrieval/|/app/storage/(index|search|text)|/sqlite/store.py:(search|_segment|_columns)",
    "write": r"/app/storage/(sqlite/(writer|search_rows)|changes)|/app/writes/",
    "read": r"/app/storage/",
    "authenticate": r"/app/auth/",
    "send": r"/starlette/responses|/api/middleware.py:send|/api/strict\w*.py:(__call__|answer)$|:send$",
    "parse": r"/app/api/(connections|strict)|/fastapi/dependencies/|/pydantic/|:data_received$",
    "framework": r"/app/api/|/fastapi/|/starlette/|/uvicorn/|/prometheus_client/",
    "render": r"/app/",
}
"""In the order in which they are tried. What no stage names is `rest`, as is the event loop itself."""
_PATTERNS = {stage: re.compile(pattern) for stage, pattern in STAGES.items()}
_known: dict[CodeType, str | None] = {}


def stage_of(frame: FrameType | None) -> str:
    """Returns the stage of the innermost call that one names."""
    while frame is not None:
        code = frame.f_code
        if code not in _known:
            place = f"{code.co_filename}:{code.co_name}"
            _known[code] = next((stage for stage, pattern in _PATTERNS.items() if pattern.search(place)), None)
        if (stage := _known[code]) is not None:
            return stage
        frame = frame.f_back
    return "rest"


class Counting:
    """Adds up the processor time of all threads by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._used: dict[int, float] = {}

    def __call__(self, _: int, interrupted: FrameType | None) -> None:
        """The timer's handler. A thread that is seen for the first time has used nothing."""
        for thread, frame in sys._current_frames().items():
            used = time.clock_gettime(time.pthread_getcpuclockid(thread))
            stage = stage_of(interrupted if thread == threading.main_thread().ident else frame)
            self.spent[stage] += used - self._used.get(thread, used)
            self._used[thread] = used


def main(file: Path) -> None:
    counting: Counting | None = None

    def toggle(signal_number: int, frame: FrameType | None) -> None:
        nonlocal counting
        if counting is None:
            counting = Counting()
            counting(signal_number, frame)
            signal.signal(signal.SIGPROF, counting)
            signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)
            counting(signal_number, frame)
            part = file.with_suffix(".part")
            part.write_text(json.dumps(counting.spent))
            part.replace(file)
            counting = None

    signal.signal(signal.SIGUSR1, toggle)
    runpy.run_module("app.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    written = Path(sys.argv.pop(1))
    main(written)
