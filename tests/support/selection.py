"""Marks that say what a test needs, so that `scripts/test` can leave tests out. They are found, not written by hand."""

from zlib import crc32

import pytest

STARTS_PROCESSES = {"subprocess", "serving", "recalld", "start_mongodb"}
"""A module that imports one of these starts processes."""
ALWAYS_ON_MONGODB = ("contract", "storage")
ONE_OF = 4
"""Of the feature tests, one in so many runs on MongoDB without `--all`: what differs between engines is in the contract
suite, which always runs on both."""


def mark(item: pytest.Item, engine: str | None, folder: str) -> None:
    """`engine`: of the test's own parameter; `folder`: of `tests/`, "" for the tests that lie there."""
    if STARTS_PROCESSES & vars(getattr(item, "module", None)).keys():
        item.add_marker("process")
    if engine != "mongodb" and "mongodb" not in getattr(item, "fixturenames", ()):
        return
    item.add_marker("mongodb")
    if folder not in ALWAYS_ON_MONGODB and crc32(item.nodeid.encode()) % ONE_OF:
        item.add_marker("rest")
