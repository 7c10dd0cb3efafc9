"""The hook of Claude Code and Cursor, started as they start it, with the JSON that their pages document."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

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


def test_a_resumed_or_forked_session_gets_its_own_turns_not_again(server: Server, tmp_path: Path) -> None:
    """As Claude Code 2.1.197 does it: a fork starts with the name and transcript of the old session, goes on under a
    new one, and its transcript begins with copies of the old lines."""
    told: dict[str, str] = {
        "fork0": "We deploy with Nomad.",
        "fork1": "Tests run with vitest.",
        "fork2": "Linting is by oxlint.",
    }
    line: Json = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": told["fork1"]}}
    for session, lines in {
        "fork0": [{"type": "user", "uuid": "u0"}],
        "fork1": [line],
        "fork2": [line, line | {"uuid": "u2"}],
    }.items():
        headed = [
            {"type": "file-history-snapshot", "messageId": "m"},
            *({**one, "sessionId": session} for one in lines),
        ]
        (tmp_path / f"{session}.jsonl").write_text("\n".join(map(json.dumps, headed)))

    def run(name: str, session: str, **more: Any) -> Json:
        event = claude(name, session, **more) | {"transcript_path": str(tmp_path / f"{session}.jsonl")}
        answer, errors = hook(event, str(server.client.base_url), RECALLD_USER="forking-user")
        assert errors == ""
        return answer

    def given(session: str, source: str) -> set[str]:
        answer = run("SessionStart", session, source=source)
        text = answer["hookSpecificOutput"]["additionalContext"] if answer else ""
        return {name for name, content in told.items() if content in text}

    for session, content in told.items():
        run("UserPromptSubmit", session, prompt=content)
    assert given("fork9", "startup") == {"fork0", "fork1", "fork2"}
    assert given("fork1", "resume") == {"fork0"}  # and a fork of it, which starts under its name
    assert given("fork2", "resume") == {"fork0"}  # its transcript has the turns of fork1, too
    assert given("fork0", "resume") == {"fork1", "fork2"}
    assert "fork1" in given("fork1", "compact")  # what was compacted is no longer before the agent


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


# --- Into the settings of an agent, and out again ---------------------------------------------------------------------

AGENTS = {"claude-code": "claude-code.settings.json", "cursor": "cursor.hooks.json"}
MINE: dict[str, Json] = {
    "claude-code": {
        "model": "opus",
        "permissions": {"allow": ["Bash(ls:*)"]},
        "hooks": {
            "Stop": [{"matcher": "x", "hooks": [{"type": "command", "command": "say done \u00e4"}]}],
            "PreToolUse": [],
        },
    },
    "cursor": {"version": 1, "hooks": {"beforeSubmitPrompt": [{"command": "./check.sh"}]}, "mine": None},
}


def manage(home: Path, *arguments: str, script: Path = HOOK) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(script), *arguments]
    env = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("agent", AGENTS)
def test_it_is_added_beside_what_is_there_and_taken_out_again(tmp_path: Path, agent: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(MINE[agent]))
    file.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert manage(tmp_path, "install", agent, str(link)).returncode == 0
    added = json.loads(file.read_text())
    for event, entries in json.loads((FOLDER / AGENTS[agent]).read_text())["hooks"].items():
        assert added["hooks"][event] == [*MINE[agent]["hooks"].get(event, []), *entries]
    assert {name: value for name, value in added.items() if name != "hooks"} == {
        name: value for name, value in MINE[agent].items() if name != "hooks"
    }
    assert list(added) == list(MINE[agent]), "in their order"

    before = file.read_text()
    assert "as it was" in manage(tmp_path, "install", agent, str(link)).stdout
    assert file.read_text() == before
    own = tmp_path / ".recalld" / "recalld_hook.py"
    assert own.read_text() == HOOK.read_text()
    assert manage(tmp_path, "remove", agent, str(link), script=own).returncode == 0
    assert json.loads(file.read_text()) == MINE[agent]
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("agent", "place"), [("claude-code", ".claude/settings.json"), ("cursor", ".cursor/hooks.json")]
)
def test_without_settings_it_makes_those_of_the_repository_and_removes_them(
    tmp_path: Path, agent: str, place: str
) -> None:
    assert "as it was" in manage(tmp_path, "remove", agent).stdout
    assert manage(tmp_path, "install", agent).returncode == 0
    assert json.loads((tmp_path / place).read_text()) == json.loads((FOLDER / AGENTS[agent]).read_text())
    assert manage(tmp_path, "remove", agent).returncode == 0
    assert not (tmp_path / place).exists()


def test_a_hook_in_one_entry_with_another_is_taken_out_alone(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    hooks = [{"type": "command", "command": one} for one in ("lint", "python3 ~/.recalld/recalld_hook.py")]
    file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": hooks}]}}))
    assert manage(tmp_path, "remove", "claude-code", str(file)).returncode == 0
    assert json.loads(file.read_text()) == {"hooks": {"Stop": [{"hooks": hooks[:1]}]}}


@pytest.mark.parametrize("text", ["{// a comment\n}", "[]", '{"hooks": [1]}', '{"hooks": {"Stop": [1]}}'])
def test_settings_that_it_does_not_understand_stay_as_they_are(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    for action in ("install", "remove"):
        refused = manage(tmp_path, action, "claude-code", str(file))
        assert refused.returncode == 1
        assert "nothing was changed" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert file.read_text() == text
    assert manage(tmp_path, "install", "emacs").returncode == 2


def test_two_folders_of_one_name_are_two_agents(server: Server) -> None:
    url = str(server.client.base_url)
    said = "We deploy the shop with Kamal."
    assert hook(claude("UserPromptSubmit", "f1", "/src/shop", prompt=said), url, RECALLD_USER="two")[1] == ""
    here = hook(claude("SessionStart", "f2", "/src/shop/", source="startup"), url, RECALLD_USER="two")[0]
    there = hook(claude("SessionStart", "f3", "/old/shop", source="startup"), url, RECALLD_USER="two")[0]
    assert said in here["hookSpecificOutput"]["additionalContext"]
    assert there == {}
    assert server.client.get("/v1/sessions/f1").json()["agent_id"].startswith("shop-")


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


class Redirecting(BaseHTTPRequestHandler):
    """Answers every request with a redirect, and keeps what it was sent."""

    status, target = 302, ""
    received: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.received.append((self.path, self.headers["authorization"]))
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.send_response(self.status)
        self.send_header("location", self.target + self.path)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_GET  # noqa: N815 (the base class calls it so)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def redirecting(status: int, target: str) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Yields the address of such a server and what it receives."""
    kind = type("Own", (Redirecting,), {"status": status, "target": target, "received": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", kind.received  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_and_what_was_said_go_to_no_other_host(status: int) -> None:
    """A name that expired, a portal of a café, a proxy that was taken over: each answers with a redirect."""
    with redirecting(200, "") as (other, stolen), redirecting(status, other) as (url, received):
        event = claude("SessionEnd", "secret")
        answer, errors = hook(event, url, RECALLD_KEY="rk_secret")
        assert answer == {}
        assert errors.startswith("recalld hook: ")
        assert received == [("/v1/sessions/secret/end", "Bearer rk_secret")]
        assert stolen == []


def test_a_redirect_on_the_same_host_is_followed() -> None:
    with redirecting(303, "/moved") as (url, received):
        hook(claude("SessionEnd", "s"), url, RECALLD_KEY="rk_secret")
        assert [path for path, _ in received][:2] == ["/v1/sessions/s/end", "/moved/v1/sessions/s/end"]


@pytest.mark.parametrize(
    "url", ["http://ada:hunter2@127.0.0.1:9", "ada:hunter2@127.0.0.1", "http://127.0.0.1:9/?key=hunter2"]
)
def test_a_password_in_the_address_is_not_printed(url: str) -> None:
    answer, errors = hook(claude("SessionEnd", "s"), url)
    assert answer == {}
    assert errors.startswith("recalld hook: ")
    assert "hunter2" not in errors
