#!/bin/sh
# litellm.completion(client=…) does not call chat.completions.create of the OpenAI client that it is given: it posts to
# /chat/completions with client.post(). What a library put around `create` (memory, traces, checks) is passed by without
# a word, and the request goes out through the connections of that client.
# Versions: litellm==1.110.2, openai==3.57.0, against a stand-in of the API on loopback.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2 openai==3.57.0
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True "$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm
from openai import OpenAI


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "Hi."}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
create, calls = client.chat.completions.create, []


def watched(**request):
    calls.append(request["model"])
    return create(**request)


client.chat.completions.create = watched
asked = [{"role": "user", "content": "Hello"}]
print("openai", client.chat.completions.create(model="m", messages=asked).choices[0].message.content, "calls seen", len(calls))
calls.clear()
answer = litellm.completion(model="openai/m", messages=asked, client=client)
print("litellm", answer.choices[0].message.content, "calls seen", len(calls))
PY
diff - "$dir/seen" <<'SEEN'
openai Hi. calls seen 1
litellm Hi. calls seen 0
SEEN
echo "as seen"
