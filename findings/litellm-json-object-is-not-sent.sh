#!/bin/sh
# response_format={"type": "json_object"} changes nothing of what LiteLLM sends to Anthropic, and raises nothing. A parameter that
# Anthropic does not have raises UnsupportedParamsError, and a json_schema is sent.
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


hello = {"role": "user", "content": "Hello"}
print("json_object as plain:", ask(hello, response_format={"type": "json_object"}) == ask(hello))
schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
print("json_schema as plain:", ask(hello, response_format=form) == ask(hello))
PY
diff - "$dir/seen" <<'SEEN'
json_object as plain: True
json_schema as plain: False
SEEN
echo "as seen"
