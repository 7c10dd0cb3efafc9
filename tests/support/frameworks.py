"""The environment of the agent frameworks, which `scripts/frameworks` makes, and code that runs in it."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat import completion
from tests.support.scripted import Reply
from tests.support.server import ROOT

INTEGRATIONS = ROOT / "integrations"
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
PACKAGES = sorted(path.parent for path in INTEGRATIONS.glob("*/pyproject.toml"))
PYTHONPATH = os.pathsep.join(map(str, [ROOT / "clients" / "python", *PACKAGES]))
ADDRESS = "http://127.0.0.1:8000"
"""Of the service, in snippets."""
RUN = """
import ast, asyncio, sys
scope = {"__name__": "__main__"}
code = compile(sys.stdin.read(), "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

async def run():
    waiting = eval(code, scope)
    if waiting is not None:
        await waiting
    if "main" in scope:
        await scope["main"]()

asyncio.run(run())
"""


def needed() -> None:
    """Skips the test where the frameworks are not installed; with RECALLD_TEST_FRAMEWORKS=required it fails."""
    if not PYTHON.exists():
        missing = "the frameworks are not installed: run scripts/frameworks"
        if os.environ.get("RECALLD_TEST_FRAMEWORKS") == "required":
            pytest.fail(missing)
        pytest.skip(missing)


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def printed(code: str, url: str, model_url: str) -> str:
    """What a snippet prints, run as a notebook runs it: with `await` at its top level. A function `main` is called."""
    needed()
    model = {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
    ended = subprocess.run(
        [str(PYTHON), "-c", RUN],
        input=code.replace(ADDRESS, url),
        env={**ours, **model, "RECALLD_URL": url, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def noted(reply: Reply, asked: dict[str, Any]) -> bytes:
    """A model that says "Noted.", by the API that it is asked by: responses or chat completions."""
    if "input" in asked:
        content = [{"type": "output_text", "text": "Noted.", "annotations": []}]
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
        answer = {"id": "r", "object": "response", "created_at": 0, "model": "scripted", "status": "completed"}
        rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
        return json.dumps({**answer, **rest, "output": [message]}).encode()
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return json.dumps({**json.loads(completion("Noted.")), "model": "scripted", "created": 0, "usage": usage}).encode()
