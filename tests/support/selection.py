"""Marks that say what a test needs, so that `scripts/test` can leave tests out. They are found, not written by hand."""

from pathlib import PurePath
from zlib import crc32

import pytest

STARTS_PROCESSES = {"subprocess", "serving", "recalld", "start_mongodb"}
"""A module that imports one of these starts processes."""
TAKES_SECONDS = {
    "api/test_bad_input.py",
    "api/test_connections.py",
    "api/test_conversation.py",
    "api/test_tenancy.py",
    "auth/test_issuer.py",
    "benchmarks/learned/test_learning.py",
    "cli/test_archive.py",
    "context/test_packing.py",
    "contract/test_second_store.py",
    "embedding/test_openai.py",
    "learning/test_poisoning.py",
    "llm/test_client.py",
    "memories/test_decay.py",
    "retention/test_erasure.py",
    "scripts/test_fit_ranking.py",
}
"""Two fifths of the time of all that needs neither process nor MongoDB."""
SERVICE = {"service", "shared", "api", "start"}
"""Fixtures that start the whole service in this process."""
BROWSER = {"browser", "visit", "page"}
"""Fixtures that open pages in a browser, which takes seconds each."""
ALWAYS_ON_MONGODB = ("contract", "storage", "faults", "stress")
ONE_OF = 6
"""Of the feature tests, one in so many runs on MongoDB, except with `--all`: what differs between engines is in the
contract suite, which always runs on both."""


def mark(item: pytest.Item, engine: str | None, path: PurePath) -> None:
    """`engine`: of the test's own parameter; `path`: from `tests/` on."""
    if path.as_posix() in TAKES_SECONDS:
        item.add_marker("takes_seconds")
    if SERVICE & set(getattr(item, "fixturenames", ())):
        item.add_marker("service")
    if BROWSER & set(getattr(item, "fixturenames", ())):
        item.add_marker("slow")
    if STARTS_PROCESSES & vars(getattr(item, "module", None)).keys():
        item.add_marker("process")
    if engine != "mongodb" and "mongodb" not in getattr(item, "fixturenames", ()):
        return
    item.add_marker("mongodb")
    if path.parts[0] not in ALWAYS_ON_MONGODB and crc32(item.nodeid.encode()) % ONE_OF:
        item.add_marker("rest")
