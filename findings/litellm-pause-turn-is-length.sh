#!/bin/sh
# Anthropic's stop reason pause_turn (the server paused its own tools, and is to be asked to go on) is finish_reason "length" for
# LiteLLM, as if max_tokens had cut the answer. What it was stands in message.provider_specific_fields alone.
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
        self.rfile.read(int(self.headers["content-length"]))
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Yes"}]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = json.dumps({**answer, "stop_reason": stop, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()


def answer_of(*messages):
    address = f"http://127.0.0.1:{server.server_port}"
    model = "anthropic/claude-sonnet-4-5"
    return litellm.completion(model=model, api_base=address, api_key="none", messages=list(messages)).choices[0]


for reason in ("max_tokens", "pause_turn"):
    stop = reason
    choice = answer_of({"role": "user", "content": "Hello"})
    print(reason, choice.finish_reason, (choice.message.provider_specific_fields or {}).get("stop_reason"))
PY
diff - "$dir/seen" <<'SEEN'
max_tokens length None
pause_turn length pause_turn
SEEN
echo "as seen"
