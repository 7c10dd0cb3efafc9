#!/bin/sh
# Words of the assistant that stand before its tool call in Anthropic's form come behind the call, between it and its result, in what
# litellm.anthropic.messages.acreate() sends to OpenAI.
# Versions: litellm==1.110.2, against a stand-in of OpenAI's API on loopback.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True "$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        sent.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
        text = {"type": "output_text", "text": "Yes", "annotations": []}
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        answer = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [message]}
        more = {"usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        body = json.dumps({**answer, **more}).encode()
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


def ask(*messages):
    address = f"http://127.0.0.1:{server.server_port}"
    more = {"api_base": address, "api_key": "none", "max_tokens": 50}
    asyncio.run(litellm.anthropic.messages.acreate(model="openai/gpt-4o", messages=list(messages), **more))
    return sent.pop()


said = {"type": "text", "text": "I look it up."}
call = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
result = {"type": "tool_result", "tool_use_id": "c1", "content": "noon"}
_, request = ask(
    {"role": "user", "content": "What is the time?"},
    {"role": "assistant", "content": [said, call]},
    {"role": "user", "content": [result]},
)
print([item.get("role", item["type"]) for item in request["input"]])
PY
diff - "$dir/seen" <<'SEEN'
['user', 'function_call', 'assistant', 'function_call_output']
SEEN
echo "as seen"
