"""Marks that say what a test needs, so that `scripts/test` can leave tests out. They are found, not written by hand."""

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

STARTS_PROCESSES = {"subprocess", "serving", "recalld", "start_mongodb"}
"""A test starts processes if it, a fixture or a helper of its module names one of these, or `sys.executable`."""
LONG = frozenset((Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").split())
"""Tests that took more than a second with all their parameters, on a machine that did other work, too."""
PROCESS_JOURNEYS = {
    "cli/test_keys.py",
    "cli/test_memory.py::test_what_is_added_is_found_listed_and_shown",
    "mcp/test_stdio.py::test_one_store_by_the_service_and_by_its_files",
    "test_docs.py::test_the_site_builds_strictly_with_its_diagrams",
    "test_operating.py::test_sigterm_lets_a_request_finish_and_keeps_what_was_acknowledged",
}
"""The journeys of features that are processes: commands beside a service, MCP over pipes, the site, a start and a stop.
All other tests that start processes begin with `scripts/test --ci`."""
ATLAS = "atlas"
"""The fixture of a double of Atlas, a third engine in front of the second."""
ON_ATLAS = {
    f"contract/{name}.py"
    for name in ("test_metadata_filters", "test_reembedding", "test_rewording", "test_search", "test_windows")
}
"""Of the contract, what CI asks of the double: what reads a search index, or writes what one reads. All else is the
same code as on MongoDB without indexes, and has its third time before a release."""
SERVICE = {"service", "shared", "api", "start"}
"""Fixtures that start the whole service in this process."""
BROWSER = {"browser", "visit", "page"}
"""Fixtures that open pages in a browser, which takes seconds each."""
STORAGE = ("contract", "storage", "faults", "stress")
"""What differs between engines: on MongoDB before each commit, but for what is slow."""
CONTRACT = "contract"
JOURNEYS = {
    "actions": "test_api_stats.py",
    "admin": "test_api_keys.py",
    "api": "test_conversation.py",
    "audit": "test_tombstones.py",
    "auth": "test_keyless.py",
    "cli": "test_archive.py",
    "clients": "test_user_memory.py",
    "context": "test_api_context.py",
    "core": "test_limits.py",
    "documents": "test_api_documents.py",
    "embedding": "test_turns_service.py",
    "entities": "test_api_entities.py",
    "facts": "test_api_facts.py",
    "feed": "test_api_changes.py",
    "findings": "test_findings.py",
    "graph": "test_api_graph.py",
    "importers": "test_import.py",
    "jobs": "test_queue.py",
    "learning": "test_conversation.py",
    "mcp": "test_records.py",
    "memories": "test_api_search.py",
    "operations": "test_api_operations.py",
    "procedures": "test_api_procedures.py",
    "profiles": "test_api_agents.py",
    "reflection": "test_reflection.py",
    "retention": "test_api_forget.py",
    "retrieval": "test_model_weights.py",
    "sessions": "test_api_messages.py",
    "tasks": "test_api_tasks.py",
    "writes": "test_idempotency.py",
    ".": "test_isolation.py",
}
"""The folder of each feature → the module that runs on MongoDB in CI, too. All others do so before a release only
(`scripts/test --all`): what they test lies above the storage protocol, and runs on the embedded engine every time."""
ON_BOTH = {"test_event_loop.py"}
"""Runs on MongoDB in CI as a journey does: what it tests of a feature each engine does in its own way."""


def mark(item: pytest.Item, engine: str | None, path: PurePath) -> None:
    """`engine`: of the test's own parameter; `path`: from `tests/` on."""
    needed = set(getattr(item, "fixturenames", ()))
    name = getattr(item, "originalname", item.name)
    folder, test = path.parent.as_posix(), f"{path.as_posix()}::{name}"
    journey = JOURNEYS.get(folder) == path.name or not PROCESS_JOURNEYS.isdisjoint((path.as_posix(), test))
    if SERVICE & needed:
        item.add_marker("service")
    module = getattr(item, "module", None)
    process = module is not None and not starters(module).isdisjoint({name, *needed})
    if process:
        item.add_marker("process")
    long = test in LONG and path.parts[0] != CONTRACT
    if process or BROWSER & needed:
        item.add_marker(pytest.mark.flaky(reruns=1))  # it shares the machine: what is broken fails twice
    double = ATLAS in needed or engine == "mongodb with search indexes"
    if BROWSER & needed or double or ((process or long) and not journey):
        item.add_marker("slow")
    if (engine or "").startswith("mongodb") or "mongodb" in needed:
        item.add_marker("mongodb")
    if double and path.parts[0] == CONTRACT and path.as_posix() not in ON_ATLAS:
        item.add_marker("rest")
    if engine == "mongodb" and path.parts[0] not in STORAGE:
        if folder not in JOURNEYS:
            raise pytest.UsageError(f"tests/{folder}: name its journey on MongoDB in tests/support/selection.py")
        item.add_marker("journey" if path.name == JOURNEYS[folder] or path.as_posix() in ON_BOTH else "rest")


@cache
def starters(module: ModuleType) -> frozenset[str]:
    """Names of the module that start processes. `served` does where it is a fixture that names `serving`, and so does
    what names `served` in turn."""
    starting = frozenset(STARTS_PROCESSES & vars(module).keys())
    own = {name: set(_named(value)) for name, value in vars(module).items() if starting and _is_of(value, module)}
    while more := {name for name, named in own.items() if name not in starting and not starting.isdisjoint(named)}:
        starting |= more
    return starting


def _is_of(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _named(value: Any) -> Iterator[str]:
    """What a function, a fixture or a class names: in its code, and as the fixtures that it asks for."""
    if isinstance(value, type):
        for part in vars(value).values():
            yield from _named(part)
        return
    function = inspect.unwrap(getattr(getattr(value, "hypothesis", value), "inner_test", value))
    codes: list[Any] = [function.__code__] if isinstance(function, FunctionType) else []
    for code in codes:
        yield from (*code.co_names, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
