"""A client generated from openapi.json drives a running service."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.export_openapi import TARGET
from tests.support.command import Run
from tests.support.server import serving

NAME = "generated_recalld_client"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The generated package, importable."""
    folder = tmp_path_factory.mktemp("client")
    command = ["generate", "--path", str(TARGET), "--output-path", str(folder / NAME), "--meta", "none"]
    config = folder / "config.yml"
    config.write_text("post_hooks: []\n")
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "warning" not in (made.stdout + made.stderr).lower(), made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    yield NAME
    sys.path.remove(str(folder))


def test_no_class_or_constant_is_numbered(package: str) -> None:
    """Where two would have one name, generators number them: from then on a new field may rename a class."""
    models: Any = importlib.import_module(f"{package}.models")
    assert len(models.__all__) > 150
    assert [name for name in models.__all__ if name[-1].isdigit()] == []
    assert models.MemoryType.MEMORY_TYPE_FACT == "fact"


def operation(package: str, tag: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.api.{tag}.{name}")


def test_a_generated_client_remembers_and_recalls(package: str, data: Path, run: Run) -> None:
    models: Any = importlib.import_module(f"{package}.models")
    clients: Any = importlib.import_module(f"{package}.client")
    key = run("keys", "create", "--no-admin", "--tenant", "t", "--name", "client").stdout.strip()
    with (
        serving(data) as server,
        clients.AuthenticatedClient(base_url=str(server.client.base_url), token=key) as client,
        clients.Client(base_url=str(server.client.base_url)) as stranger,
    ):

        def call(tag: str, name: str, *args: Any, **kwargs: Any) -> Any:
            return operation(package, tag, name).sync_detailed(*args, client=client, **kwargs)

        owner = {"agent_id": "a", "user_id": "u"}
        body = models.MemoryCreate.from_dict({**owner, "content": "Ada prefers tea", "metadata": {"a.b": [1, None]}})
        made = call("memories", "create_memory", body=body, idempotency_key="once")
        assert made.status_code == 201
        assert made.headers["etag"] == '"1"'
        assert isinstance(made.parsed, models.MemoryCreated)
        assert made.parsed.metadata.to_dict() == {"a.b": [1, None]}
        again = call("memories", "create_memory", body=body, idempotency_key="once")
        assert again.headers["idempotency-replayed"] == "true"
        assert again.parsed.memory_id == made.parsed.memory_id

        words = {"role": "user", "name": "Ada", "content": "I moved to Boston."}
        append = models.MessagesAppend.from_dict({**owner, "messages": [words]})
        appended = call("sessions", "append_messages", "chat-1", body=append)
        assert (appended.status_code, appended.parsed.items[0].seq) == (201, 1)

        query = models.SearchRequest.from_dict({**owner, "query": "what does Ada drink?"})
        found = call("memories", "search_memories", body=query)
        assert found.parsed.items[0].memory.memory_id == made.parsed.memory_id

        ask = models.ContextRequest.from_dict({**owner, "query": "Which city does Ada live in?", "token_budget": 500})
        prompt = call("context", "assemble_context", body=ask)
        assert "Boston" in prompt.parsed.text
        assert prompt.parsed.tokens <= 500

        page = call("memories", "list_memories", **owner, limit=1)
        assert len(page.parsed.items) == 1
        rest = call("memories", "list_memories", **owner, limit=1, cursor=page.parsed.next_cursor)
        assert {page.parsed.items[0].memory_id, rest.parsed.items[0].memory_id} >= {made.parsed.memory_id}
        assert rest.parsed.next_cursor is None

        missing = call("memories", "get_memory", "mem_nothere")
        assert missing.status_code == 404
        assert isinstance(missing.parsed, models.Problem)
        assert missing.parsed.code == "not_found"
        refused = operation(package, "memories", "get_memory").sync_detailed(made.parsed.memory_id, client=stranger)
        assert isinstance(refused.parsed, models.Problem)
        assert refused.parsed.status == 401
        gone = call("memories", "delete_memory", made.parsed.memory_id, if_match='"1"')
        assert (gone.status_code, gone.parsed) == (204, None)
