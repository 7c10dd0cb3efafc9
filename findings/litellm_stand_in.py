"""What the scripts about LiteLLM share: stand-ins of models' APIs on loopback, each of which gives one answer.

`to_anthropic` and `to_openai` send a conversation through LiteLLM and return what reached the API.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Yes"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
TEXT = {"type": "output_text", "text": "Yes", "annotations": []}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "usage": USAGE,
    "output": [{"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [TEXT]}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class StandIn:
    """An API that gives each request the same answer. `sent`: path and body of each."""

    def __init__(self, answer):
        self.sent = sent = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                sent.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_port}"


def asked_of_anthropic(api, *messages, **more):
    return litellm.completion(
        model="anthropic/claude-sonnet-4-5", api_base=api.address, api_key="none", messages=list(messages), **more
    )


def to_anthropic(*messages, **more):
    api = StandIn(MESSAGE)
    asked_of_anthropic(api, *messages, **more)
    return api.sent[-1][1]


def to_openai(*messages):
    api = StandIn(RESPONSE)
    more = {"api_base": api.address, "api_key": "none", "max_tokens": 50}
    asyncio.run(litellm.anthropic.messages.acreate(model="openai/gpt-4o", messages=list(messages), **more))
    return api.sent[-1]
