#!/bin/sh
# An empty message is sent to Anthropic with words of LiteLLM's own in it, in the role of the message: the assistant seems to
# have said them. `modify_params` is off, as it is by default.
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

request = to_anthropic(
    {"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "Still there?"}
)
print(litellm.modify_params, [(message["role"], message["content"][0]["text"]) for message in request["messages"]])
PY
diff - "$dir/seen" <<'SEEN'
False [('user', 'Hello'), ('assistant', '[System: Empty message content sanitised to satisfy protocol]'), ('user', 'Still there?')]
SEEN
echo "as seen"
