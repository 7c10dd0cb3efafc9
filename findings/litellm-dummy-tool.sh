#!/bin/sh
# A conversation in which a tool was called, asked without `tools`, goes to Anthropic with a tool named dummy_tool, which the model may
# call and nobody has. `modify_params` is off, as it is by default.
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
import litellm
from litellm_stand_in import to_anthropic

call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
request = to_anthropic(
    {"role": "user", "content": "What is the time?"},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": "noon"},
)
print(litellm.modify_params, [tool["name"] for tool in request["tools"]])
PY
diff - "$dir/seen" <<'SEEN'
False ['dummy_tool']
SEEN
echo "as seen"
