"""The hook of Claude Code and Cursor, started as they start it, with the JSON that their pages document."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ROOT, Server, serving

pytestmark = pytest.mark.slow

FOLDER = ROOT / "integrations" / "coding-agents"
HOOK = FOLDER / "recalld_hook.py"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("coding-agents") / "data") as made:
        yield made


def hook(event: Json | str, url: str, **settings: str) -> tuple[Json, str]:
    """What the agent reads, and what the hook says on standard error. The exit code must be 0."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RECALLD_", "CLAUDE_"))}
    ended = subprocess.run(
        [sys.executable, "-I", str(HOOK)],
        input=event if isinstance(event, str) else json.dumps(event),
        env={**ours, "RECALLD_URL": url, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answer: Json = json.loads(ended.stdout)
    return answer, ended.stderr


def claude(name: str, session: str, folder: str = "/src/shop", **more: Any) -> Json:
    """An event of Claude Code."""
    common = {"session_id": session, "transcript_path": f"/home/ada/.claude/projects/x/{session}.jsonl", "cwd": folder}
    return {**common, "permission_mode": "default", "hook_event_name": name, **more}


def cursor(name: str, conversation: str, turn: str = "g0", **more: Any) -> Json:
    """An event of Cursor."""
    common = {"conversation_id": conversation, "generation_id": turn, "model": "auto", "cursor_version": "2.4.0"}
    where = {"workspace_roots": ["/src/shop"], "user_email": "ada@example.com", "transcript_path": None}
    return {**common, **where, "hook_event_name": name, **more}


def said(server: Server, session: str) -> list[str]:
    items = server.client.get(f"/v1/sessions/{session}/messages").json()["items"]
    return [f"{one['role']}: {one['content']}" for one in items]


def status(server: Server, session: str) -> str:
    return str(server.client.get(f"/v1/sessions/{session}").json()["status"])


def test_claude_code_from_one_session_to_the_next(server: Server) -> None:
    def run(event: Json) -> Json:
        answer, errors = hook(event, str(server.client.base_url), RECALLD_USER="claude-user")
        assert errors == ""
        return answer

    assert run(claude("SessionStart", "c1", source="startup", model="claude-opus-4-6")) == {}
    assert run(claude("UserPromptSubmit", "c1", prompt="We deploy the shop with Nomad, never with Docker.")) == {}
    stop = claude("Stop", "c1", stop_hook_active=False, last_assistant_message="Noted: Nomad it is.")
    assert run(stop) == {}
    assert run(claude("SessionEnd", "c1", reason="prompt_input_exit")) == {}
    assert said(server, "c1") == [
        "user: We deploy the shop with Nomad, never with Docker.",
        "assistant: Noted: Nomad it is.",
    ]
    assert status(server, "c1") == "ended"
    started = run(claude("SessionStart", "c2", source="startup"))["hookSpecificOutput"]
    assert started["hookEventName"] == "SessionStart"
    assert "with Nomad, never with Docker" in started["additionalContext"]
    assert run(claude("SessionStart", "c3", folder="/src/other", source="startup")) == {}


def test_a_resumed_session_goes_on(server: Server) -> None:
    url = str(server.client.base_url)
    for event in (
        claude("UserPromptSubmit", "r1", prompt="First"),
        claude("SessionEnd", "r1", reason="logout"),
        claude("SessionStart", "r1", source="resume"),
        claude("UserPromptSubmit", "r1", prompt="Second"),
    ):
        assert hook(event, url)[1] == ""
    assert said(server, "r1") == ["user: First", "user: Second"]
    assert status(server, "r1") == "active"


def test_cursor_from_one_session_to_the_next(server: Server) -> None:
    def run(event: Json) -> Json:
        answer, errors = hook(event, str(server.client.base_url), RECALLD_USER="cursor-user")
        assert errors == ""
        return answer

    start: Json = {"is_background_agent": False, "composer_mode": "agent"}
    assert run(cursor("sessionStart", "k1", session_id="k1", **start)) == {}
    asked = cursor("beforeSubmitPrompt", "k1", "g1", prompt="Tests of the shop run with pnpm vitest.", attachments=[])
    assert run(asked) == {}
    assert run(asked) == {}
    run(cursor("afterAgentResponse", "k1", "g1", text="I look at them."))
    run(cursor("afterAgentResponse", "k1", "g1", text="They pass."))
    run(cursor("sessionEnd", "k1", session_id="k1", reason="completed", duration_ms=45000))
    assert said(server, "k1") == [
        "user: Tests of the shop run with pnpm vitest.",
        "assistant: I look at them.",
        "assistant: They pass.",
    ]
    assert status(server, "k1") == "ended"
    started = run(cursor("sessionStart", "k2", session_id="k2", **start))
    assert "pnpm vitest" in started["additional_context"]


def test_it_never_stops_the_agent(server: Server) -> None:
    answer, errors = hook(claude("UserPromptSubmit", "d1", prompt="Hello"), "http://127.0.0.1:9")
    assert answer == {}
    assert "cannot reach Recalld at http://127.0.0.1:9" in errors
    url = str(server.client.base_url)
    assert "Expecting value" in hook("no JSON", url)[1]
    assert "no JSON object" in hook("[]", url)[1]
    assert "session_id" in hook({"hook_event_name": "Stop"}, url)[1]
    assert hook(claude("SessionEnd", "never-heard-of", reason="other"), url) == ({}, "")
    assert hook(claude("PreToolUse", "d2", tool_name="Bash"), url) == ({}, "")
    wrong = claude("SessionStart", "d4", source="startup")
    assert "RECALLD_BUDGET must be a whole number above 0, not 'much'" in hook(wrong, url, RECALLD_BUDGET="much")[1]
    assert "RECALLD_URL must begin with http" in hook(wrong, "file:///etc/passwd")[1]
    assert "401" in hook(claude("UserPromptSubmit", "d3", prompt="Hi"), url, RECALLD_KEY="rk_wrong")[1]


@pytest.mark.parametrize(
    ("file", "events"),
    [
        ("claude-code.settings.json", {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"}),
        ("cursor.hooks.json", {"sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "sessionEnd"}),
    ],
)
def test_the_files_to_copy_name_each_event_and_the_hook(file: str, events: set[str]) -> None:
    hooks = json.loads((FOLDER / file).read_text())["hooks"]
    assert set(hooks) == events
    for (entry,) in hooks.values():
        (command,) = [one["command"] for one in entry.get("hooks", [entry])]
        assert Path(command.split("/")[-1]).name == HOOK.name
