"""Marks that say what a test needs, so that `scripts/test` can leave tests out. They are found, not written by hand."""

from pathlib import PurePath

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
SLOW = {
    "cli/test_demo.py",
    "cli/test_doctor.py",
    "cli/test_encryption.py",
    "core/test_caches.py",
    "faults/test_full_disk.py",
    "storage/mongo/test_abandoned_transactions.py",
    "storage/mongo/test_large_scopes.py",
    "storage/mongo/test_named_deployment.py",
    "test_shifted_clock.py",
    "test_workers.py",
}
"""From `scripts/test --ci` on, as what is marked `slow` in its module."""
SERVICE = {"service", "shared", "api", "start"}
"""Fixtures that start the whole service in this process."""
BROWSER = {"browser", "visit", "page"}
"""Fixtures that open pages in a browser, which takes seconds each."""
STORAGE = ("contract", "storage", "faults", "stress")
"""What differs between engines: on MongoDB in CI, and, but for what is slow, before each commit."""
JOURNEYS = {
    "actions": "test_api_stats.py",
    "admin": "test_api_keys.py",
    "api": "test_conversation.py",
    "audit": "test_tombstones.py",
    "auth": "test_keyless.py",
    "cli": "test_archive.py",
    "clients": "test_user_memory.py",
    "context": "test_api_context.py",
    "embedding": "test_turns_service.py",
    "entities": "test_api_entities.py",
    "facts": "test_walkthrough.py",
    "feed": "test_api_changes.py",
    "findings": "test_findings.py",
    "graph": "test_api_graph.py",
    "importers": "test_import.py",
    "jobs": "test_queue.py",
    "learning": "test_conversation.py",
    "mcp": "test_records.py",
    "memories": "test_api_search.py",
    "operations": "test_api_operations.py",
    "procedures": "test_docs.py",
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


def mark(item: pytest.Item, engine: str | None, path: PurePath) -> None:
    """`engine`: of the test's own parameter; `path`: from `tests/` on."""
    needed = set(getattr(item, "fixturenames", ()))
    if path.as_posix() in TAKES_SECONDS:
        item.add_marker("takes_seconds")
    if SERVICE & needed:
        item.add_marker("service")
    if BROWSER & needed or path.as_posix() in SLOW:
        item.add_marker("slow")
    if STARTS_PROCESSES & vars(getattr(item, "module", None)).keys():
        item.add_marker("process")
    if (engine or "").startswith("mongodb") or "mongodb" in needed:
        item.add_marker("mongodb")
    if engine == "mongodb" and path.parts[0] not in STORAGE:
        folder = path.parent.as_posix()
        if folder not in JOURNEYS:
            raise pytest.UsageError(f"tests/{folder}: name its journey on MongoDB in tests/support/selection.py")
        item.add_marker("journey" if path.name == JOURNEYS[folder] else "rest")
