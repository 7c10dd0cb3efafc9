#!/bin/sh
# LiteLLM sends a system message that stands behind the first turn to Anthropic as words of the user, behind a note that says
# that they are not from the user. The first system message goes where Anthropic has a place for it.
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
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "system", "content": "Speak French now."},
    {"role": "user", "content": "How are you?"},
)
print("system", [part["text"] for part in request["system"]])
for message in request["messages"]:
    print(message["role"], [part["text"] for part in message["content"]])
PY
diff - "$dir/seen" <<'SEEN'
system ['Be brief.']
user ['Hello']
assistant ['Hi']
user ['Operator note (not from the user): the following was originally a mid-conversation system-role reminder.', 'Speak French now.', 'How are you?']
SEEN
echo "as seen"
