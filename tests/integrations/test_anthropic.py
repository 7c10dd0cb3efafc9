"""Anthropic's SDK over Recalld, in the environment of the frameworks: the memory tool and a client that remembers."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.frameworks import PYTHON, needed
from tests.support.scripted import scripted_server
from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(300)]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("anthropic") / "data") as made:
        yield made


def claude(reply: Any, asked: Any) -> Any:
    """Views its memory when asked to, streams when asked to, and says "Noted." otherwise."""
    last = json.dumps(asked["messages"][-1])
    if asked.get("stream"):
        said = [{"type": "text_delta", "text": text} for text in ("No", "ted.")]
        events: list[Any] = [
            {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in said),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    if "TOOL" in last:
        view = {"command": "view", "path": "/memories"}
        block: Any = {"type": "tool_use", "id": "t1", "name": "memory", "input": view}
        return json.dumps({**MESSAGE, "content": [block], "stop_reason": "tool_use"}).encode()
    text = "seen" if "excluding hidden items" in last else "Noted."
    return json.dumps({**MESSAGE, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}).encode()


def test_the_tool_says_what_the_sdks_own_says_and_a_client_remembers(server: Server) -> None:
    needed()
    with scripted_server(claude) as model:
        ended = subprocess.run(
            [str(PYTHON), str(Path(__file__).with_name("anthropic_flow.py")), str(server.client.base_url), model.url],
            env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        compared, viewed, ran, (events, turns) = json.loads(ended.stdout)
        asked = [seen.body["messages"] for seen in model.seen]
    assert compared == 1600
    assert viewed.endswith("     1\tx")
    assert ran == ["seen"]
    assert events.count("recalled") == 2
    assert "failed" not in events
    assert [tuple(turn) for turn in turns] == [
        ("user", "Where do I live?"),
        ("assistant", "Noted."),
        ("user", "STREAM please"),
        ("assistant", "Noted."),
    ]
    assert any("Ada lives in Boston." in json.dumps(messages[-1]) for messages in asked), (
        "what is known is in the prompt"
    )
