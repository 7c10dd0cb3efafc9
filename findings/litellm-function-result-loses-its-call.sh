#!/bin/sh
# A call and its result in OpenAI's first form (`function_call` and the role `function`, which have no ids) get two different ids
# from LiteLLM on the way to Anthropic, so that the result belongs to no call.
# Versions: litellm==1.110.2, with Anthropic's API, against a stand-in of it on loopback.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True "$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Yes"}]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = json.dumps({**answer, "stop_reason": "end_turn", "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


sent = []
server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(*messages, **more):
    address = f"http://127.0.0.1:{server.server_port}"
    model = "anthropic/claude-sonnet-4-5"
    litellm.completion(model=model, api_base=address, api_key="none", messages=list(messages), **more)
    return sent.pop()


request = ask(
    {"role": "user", "content": "What is the time?"},
    {"role": "assistant", "content": None, "function_call": {"name": "clock", "arguments": "{}"}},
    {"role": "function", "name": "clock", "content": "noon"},
)
parts = [part for message in request["messages"] for part in message["content"]]
(call,) = [part["id"] for part in parts if part["type"] == "tool_use"]
(result,) = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
print("the result names the call:", call == result)
PY
diff - "$dir/seen" <<'SEEN'
the result names the call: False
SEEN
echo "as seen"
