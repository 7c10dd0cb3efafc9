#!/bin/sh
# With litellm.cache = Cache(type="local"), the first call of a question works and the second, which is answered from the cache,
# raises ModuleNotFoundError: it imports FastAPI, which `pip install litellm` does not install. No network is used.
# Versions: litellm==1.110.2, against a stand-in of OpenAI's API on loopback.
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
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}
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
litellm.cache = litellm.Cache(type="local")
for _ in range(2):
    try:
        asked = [{"role": "user", "content": "Hello"}]
        address = f"http://127.0.0.1:{server.server_port}"
        answer = litellm.completion(model="openai/m", api_base=address, api_key="none", messages=asked, caching=True)
        print(answer.choices[0].message.content)
    except ModuleNotFoundError as error:
        print("ModuleNotFoundError:", error.name)
PY
diff - "$dir/seen" <<'SEEN'
Hi.
ModuleNotFoundError: fastapi
SEEN
echo "as seen"
