"""What the C library does with freed memory: one place to keep it in, and back to the system when it is much."""

import ctypes

M_ARENA_MAX = -8  # of glibc's malloc.h


def use_one_arena() -> bool:
    """Call it before other threads are started: all threads then share one heap, and use each other's freed memory.
    Otherwise glibc keeps a heap for each thread, and some 20 MB that one thread freed are of no use to another. False
    where the C library has no such option."""
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False


def trim() -> bool:
    """Some 70 MB after the model and the vocabulary were loaded. Takes some milliseconds, in which other threads wait
    for memory. False where the C library cannot do it (it is not glibc), or had nothing to give back."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False
