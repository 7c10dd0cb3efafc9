#!/bin/sh
# A call and its result in OpenAI's first form (`function_call` and the role `function`, which have no ids) get two different ids
# from LiteLLM on the way to Anthropic, so that the result belongs to no call.
# Versions: litellm==1.110.2, with Anthropic's API, against a stand-in of it on loopback.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
export LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH="$here"
cd "$dir"
"$dir/venv/bin/python" -B -W ignore - >"$dir/seen" <<'PY'
from litellm_stand_in import to_anthropic

request = to_anthropic(
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
