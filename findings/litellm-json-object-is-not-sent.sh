#!/bin/sh
# response_format={"type": "json_object"} changes nothing of what LiteLLM sends to Anthropic, and raises nothing. A parameter that
# Anthropic does not have raises UnsupportedParamsError, and a json_schema is sent.
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

hello = {"role": "user", "content": "Hello"}
print("json_object as plain:", to_anthropic(hello, response_format={"type": "json_object"}) == to_anthropic(hello))
schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
print("json_schema as plain:", to_anthropic(hello, response_format=form) == to_anthropic(hello))
PY
diff - "$dir/seen" <<'SEEN'
json_object as plain: True
json_schema as plain: False
SEEN
echo "as seen"
