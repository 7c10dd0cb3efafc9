"""`recalld chat` with a model whose answers are scripted."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.command import Ended
from tests.support.scripted import Reply, ScriptedServer, scripted_server
from tests.support.server import serving

Chat = Callable[..., Ended]
WORDS = ("You live", " in Boston.")


def _stream(_: Reply, asked: dict[str, Any]) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": asked["model"]}
    events = [json.dumps({**chunk, "choices": [{"index": 0, "delta": {"content": word}}]}) for word in WORDS]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


@pytest.fixture
def llm() -> Iterator[ScriptedServer]:
    with scripted_server(_stream) as server:
        yield server


@pytest.fixture
def chat(run: Run, new_store: Path, llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Chat:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def talk(said: str, *arguments: str, **settings: str) -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO(said))
        llm_settings = {"RECALLD_LLM_BASE_URL": llm.url, "RECALLD_LLM_MODEL": "m", "RECALLD_LLM_API_KEY": "sk-own"}
        return run("chat", *arguments, **llm_settings, **settings)

    return talk


def messages(run: Run, session: str) -> list[tuple[str, str]]:
    listed = json.loads(run("sessions", session, "--json").stdout)
    return [(one["role"], one["content"]) for one in listed["items"]]


def test_it_recalls_asks_and_stores(chat: Chat, run: Run, llm: ScriptedServer) -> None:
    run("add", "I moved to Boston")
    ended = chat("Where do I live?\n", "--session", "s", "--system", "Be brief.")
    assert (ended.returncode, ended.stdout) == (0, "You live in Boston.\n")
    assert "tokens: 1 memories" in ended.stderr
    assert "recalld chat --session s" in ended.stderr
    (asked,) = llm.seen
    assert asked.headers["authorization"] == "Bearer sk-own"
    assert asked.body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "I moved to Boston" in asked.body["messages"][-1]["content"], "memory comes last, with the question"
    assert asked.body["messages"][-1]["content"].endswith("Where do I live?")
    assert messages(run, "s") == [("user", "Where do I live?"), ("assistant", "You live in Boston.")]

    chat("And now?\n", "--session", "s")
    told = [one["content"] for one in llm.seen[-1].body["messages"]]
    assert told[-3:-1] == ["Where do I live?", "You live in Boston."], "the turns before it, each once"
    assert told[-1].endswith("And now?")


@pytest.mark.parametrize("reply", [Reply(400), Reply(200, body=b"data: {no json\n\n"), Reply(cut=True)])
def test_a_model_that_fails_loses_nothing(chat: Chat, run: Run, llm: ScriptedServer, reply: Reply) -> None:
    llm.then(reply)
    ended = chat("I keep bees\nWhat do I keep?\n", "--session", "s")
    assert ended.returncode == 0
    assert "Your message is stored." in ended.stderr
    assert "Traceback" not in ended.stderr
    kept = messages(run, "s")
    assert kept[0] == ("user", "I keep bees")
    assert kept[-2:] == [("user", "What do I keep?"), ("assistant", "You live in Boston.")]


def test_a_model_that_is_down_gives_its_reason(chat: Chat, run: Run) -> None:
    ended = chat("I keep bees\n", "--session", "s", "--llm-url", "http://127.0.0.1:9/v1")
    (line,) = (line for line in ended.stderr.splitlines() if "failed" in line)
    assert line.startswith("The model at http://127.0.0.1:9/v1/ failed: ")
    assert "onnect" in line, "not the name of a class alone"
    assert "Traceback" not in ended.stderr
    assert messages(run, "s") == [("user", "I keep bees")]


def test_a_server_that_is_given_does_not_get_the_key_of_another(
    chat: Chat, llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    with scripted_server(_stream) as other:
        chat("Hi\n", "--llm-url", other.url)
        (asked,) = other.seen
        assert "authorization" not in asked.headers
        assert llm.seen == []


def test_without_a_model_it_says_what_to_set(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ended = run("chat")
    assert ended.returncode == 1
    assert ended.stderr.startswith("recalld: No language model is configured: set RECALLD_LLM_BASE_URL")
    assert not data.exists()


def test_end_ends_the_session(chat: Chat, run: Run) -> None:
    assert chat("Hi\n/end\nnot read\n", "--session", "s").returncode == 0
    (session,) = json.loads(run("sessions", "--json").stdout)["items"]
    assert (session["status"], session["message_count"]) == ("ended", 2)
    refused = chat("More\n", "--session", "s")
    assert "The message is not stored, and the model was not asked:" in refused.stderr


def test_it_uses_a_running_service(chat: Chat, run: Run, data: Path) -> None:
    with serving(data) as server:
        url = str(server.client.base_url)
        assert chat("I keep bees\n", "--url", url, "--user", "ada", "--session", "s").returncode == 0
        (kept, _) = server.client.get("/v1/sessions/s/messages").json()["items"]
        assert kept["content"] == "I keep bees"
