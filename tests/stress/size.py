"""How long the stress tests go on: `RECALLD_STRESS=full` takes hours, a number (`RECALLD_STRESS=1000`) is the size of
each part (calls, walks, rounds or seconds), and without it each is short."""

import os

GIVEN = os.environ.get("RECALLD_STRESS", "short")


def is_full() -> bool:
    return GIVEN == "full"


def size(short: int, full: int) -> int:
    if GIVEN.isdigit():
        return int(GIVEN)
    return full if is_full() else short
