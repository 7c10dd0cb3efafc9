#!/bin/sh
# Words of the assistant that stand before its tool call in Anthropic's form come behind the call, between it and its result, in what
# litellm.anthropic.messages.acreate() sends to OpenAI.
# Versions: litellm==1.110.2, against a stand-in of OpenAI's API on loopback.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
export LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH="$here"
cd "$dir"
"$dir/venv/bin/python" -B -W ignore - >"$dir/seen" <<'PY'
from litellm_stand_in import to_openai

said = {"type": "text", "text": "I look it up."}
call = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
result = {"type": "tool_result", "tool_use_id": "c1", "content": "noon"}
_, request = to_openai(
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
