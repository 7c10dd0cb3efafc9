"""`recalld serve`, planted to be wrong: it believes each jump of the system's clock at once.

python -m tests.support.serve_on_system_clock '{"drain_delay_seconds": 3}'
"""

import time

from app.core import clock
from tests.support.tuned import serve_tuned


class SystemTime:
    """Takes the place of `SteadyTime`."""

    def now(self) -> float:
        return time.time()


if __name__ == "__main__":
    vars(clock)["_steady"] = SystemTime()
    serve_tuned()
