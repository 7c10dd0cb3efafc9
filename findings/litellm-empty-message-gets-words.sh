#!/bin/sh
# An empty message is sent to Anthropic with words of LiteLLM's own in it, in the role of the message: the assistant seems to
# have said them. `modify_params` is off, as it is by default.
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
    {"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "Still there?"}
)
print(litellm.modify_params, [(message["role"], message["content"][0]["text"]) for message in request["messages"]])
PY
diff - "$dir/seen" <<'SEEN'
False [('user', 'Hello'), ('assistant', '[System: Empty message content sanitised to satisfy protocol]'), ('user', 'Still there?')]
SEEN
echo "as seen"
