import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from app.core.work import trim
from tests.support.server import ROOT

BLOCKS, BLOCK = 60_000, 1_024


def resident_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1_024


def has_trim() -> bool:
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")


THREADS = """
import ctypes, threading
from app.core.work import use_one_arena
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
assert use_one_arena()
done = threading.Barrier(5)
for _ in range(4):
    threading.Thread(target=lambda: (libc.malloc(5_000), done.wait())).start()
done.wait()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(not has_trim(), reason="the C library is not glibc")
def test_threads_share_one_arena() -> None:
    ended = subprocess.run([sys.executable, "-c", THREADS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.count("<heap nr=") == 1


@pytest.mark.skipif(not has_trim(), reason="the C library cannot give memory back")
def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    """Small blocks below one that is still in use: the library keeps them when they are freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        libc.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    kept = resident_bytes()
    assert trim()
    assert kept - resident_bytes() > BLOCKS * BLOCK / 2
    libc.free(blocks[-1])
