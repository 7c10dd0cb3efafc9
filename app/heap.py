"""Memory that was freed and that the C library keeps for later goes back to the system."""

import ctypes


def trim() -> bool:
    """Some 70 MB after the model and the vocabulary were loaded. Takes some milliseconds, in which other threads wait
    for memory. False where the C library cannot do it (it is not glibc), or had nothing to give back."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False
