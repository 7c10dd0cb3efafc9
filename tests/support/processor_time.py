"""What a function costs, for tests that compare two sizes of its input with each other. No test compares it with a
constant: machines differ."""

import time
from collections.abc import Callable


def processor_time(work: Callable[[], object], tries: int = 3) -> float:
    """Seconds of this process's processor time that `work` takes, the least of some tries."""

    def once() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(once() for _ in range(tries))
