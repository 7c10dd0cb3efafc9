"""Caches of results for what callers send are bounded in bytes, whatever is sent."""

import functools
import gc
import importlib
import pkgutil
import tracemalloc
from collections.abc import Hashable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import app
from app.core import caches, prompt_text
from app.core.caches import ENTRY_BYTES, ByteCache, digest, kept, kept_by_digest
from app.core.language import words
from app.profiles.agents import EMPTY_EXPERIENCE, ranked_lessons
from app.retrieval.query import analyse
from app.storage.text import text_ids
from tests.support.server import serving

MIB = 1 << 20

OF_OUR_OWN = {
    "app.core.files._warn": "16 files that hold keys",
    "app.mcp.server.listed": "names of arguments",
    "app.retrieval.model_weights.weights_for": "names of models",
    "app.retrieval.first_hits._factors": "sets of weights of models",
    "app.retrieval.query.direction": "a kind and a name of a model: 16 of them",
    "app.retrieval.time_expressions._parser": "a language of the list and a day: 64 of them",
    "app.settings._is_loopback": "256 names of hosts of at most 255 characters",
    "app.storage.sqlite.sql.assignment": "fields of collections",
}
"""Functions with an `lru_cache` of their own, and what it is keyed by."""


def test_every_cache_of_a_function_is_bounded_or_holds_nothing_of_callers() -> None:
    """A new one goes through `app.core.caches`, or into the list with its reason."""
    found = set()
    for information in pkgutil.walk_packages(app.__path__, "app."):
        if information.name.endswith(("__main__", "sentence_transformers")):  # the latter needs an extra
            continue
        module = vars(importlib.import_module(information.name))
        classes = [vars(value) for value in module.values() if isinstance(value, type)]
        for cached in (value for names in (module, *classes) for value in names.values()):
            if not isinstance(cached, functools._lru_cache_wrapper) or not cached.__module__.startswith("app."):
                continue
            # those without a limit are tables that are read once
            if cached.cache_parameters()["maxsize"] is not None and cached not in caches.made:
                found.add(f"{cached.__module__}.{cached.__qualname__}")
    assert found == set(OF_OUR_OWN)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2_000))))
def test_a_cache_holds_at_most_its_bytes_and_forgets_the_least_recently_used(
    steps: list[tuple[int, int]],
) -> None:
    cache = ByteCache[int, bytes](4_000, lambda _, value: len(value))
    expected: dict[int, bytes] = {}
    for key, size in steps:
        value = cache.get(key)
        assert value == expected.get(key)
        if value is None:
            expected[key] = cache.keep(key, bytes(size))
        else:
            expected[key] = expected.pop(key)
        while sum(ENTRY_BYTES + len(kept_value) for kept_value in expected.values()) > 4_000:
            del expected[next(iter(expected))]
        assert len(cache) == len(expected)
        assert cache.bytes == sum(ENTRY_BYTES + len(kept_value) for kept_value in expected.values())


def test_a_value_larger_than_the_cache_displaces_nothing() -> None:
    cache = ByteCache[str, bytes](1_000, lambda _, value: len(value))
    cache.keep("small", b"1")
    assert cache.keep("large", bytes(2_000)) == bytes(2_000)
    assert (cache.get("small"), cache.get("large")) == (b"1", None)


def test_results_for_short_texts_are_kept_and_those_for_long_ones_are_not() -> None:
    asked: list[Hashable] = []

    @kept(MIB, longest=8)
    def upper(text: str, mark: str = "") -> str:
        asked.append(text)
        return text.upper() + mark

    assert [upper("short"), upper("short"), upper("short", "!"), upper("short", mark="?")] == [
        "SHORT",
        "SHORT",
        "SHORT!",
        "SHORT?",
    ]
    assert [upper("far too long"), upper("far too long")] == ["FAR TOO LONG"] * 2
    assert asked == ["short"] * 3 + ["far too long"] * 2
    upper.forget()
    assert upper("short") == "SHORT"
    assert asked[-1] == "short"
    assert len(asked) == 6


def test_results_for_texts_of_any_length_are_kept_by_digest() -> None:
    asked: list[str] = []

    @kept_by_digest(MIB, len)
    def parts(text: str, by: str) -> list[str]:
        asked.append(by)
        return text.split(by)

    long = "a b " * 10_000
    assert parts(long, " ") == parts(long, " ") == long.split(" ")
    assert parts(long, "b") == long.split("b")
    assert asked == [" ", "b"]
    assert digest("\ud800") != digest("?")


def test_long_texts_leave_little_behind() -> None:
    """Each is one word that was never seen before, and takes 32 kB. Three caches would keep 4 MB of them."""

    def read(number: int) -> None:
        text = "\u044f" * 16_000 + str(number)
        analyse(text, (text[:300],))
        text_ids(text)
        prompt_text.count(text[-500:])
        words(text)
        ranked_lessons(text, {**EMPTY_EXPERIENCE, "procedural_knowledge": text})

    read(0)
    tracemalloc.start()
    try:
        for number in range(1, 40):
            read(number)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_long_queries_do_not_grow_the_process(tmp_path: Path) -> None:
    """400 queries of 31,000 characters each, 62 kB of memory apiece."""
    with serving(tmp_path / "data", RECALLD_LIMITS_COST_PER_SECOND="0") as server:
        asked = {"agent_id": "a", "user_id": "u"}
        server.client.post("/v1/memories", json=asked | {"content": "Ada prefers tea."}).raise_for_status()
        grown = []
        for number in range(450):
            query = f"{number} " + "\u044f" * 31_000
            server.client.post("/v1/memories/search", json=asked | {"query": query}).raise_for_status()
            if number in (49, 449):
                lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
                grown.append(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10)
        assert grown[1] - grown[0] < 24 * MIB
