#!/bin/sh
# A part `input_audio` is left out of what goes to Anthropic, which takes no sound, without an error or a warning: the model is
# asked about a recording that it did not get. A parameter that Anthropic does not have raises UnsupportedParamsError.
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

sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
request = to_anthropic({"role": "user", "content": [{"type": "text", "text": "What do you hear?"}, sound]})
print([part for message in request["messages"] for part in message["content"]])
try:
    to_anthropic({"role": "user", "content": "Hello"}, logprobs=True)
except litellm.UnsupportedParamsError:
    print("logprobs: UnsupportedParamsError")
PY
diff - "$dir/seen" <<'SEEN'
[{'type': 'text', 'text': 'What do you hear?'}]
logprobs: UnsupportedParamsError
SEEN
echo "as seen"
