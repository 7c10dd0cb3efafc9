#!/bin/sh
# LiteLLM sends a system message that stands behind the first turn to Anthropic as words of the user, behind a note that says
# that they are not from the user. The first system message goes where Anthropic has a place for it.
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
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "system", "content": "Speak French now."},
    {"role": "user", "content": "How are you?"},
)
print("system", [part["text"] for part in request["system"]])
for message in request["messages"]:
    print(message["role"], [part["text"] for part in message["content"]])
PY
diff - "$dir/seen" <<'SEEN'
system ['Be brief.']
user ['Hello']
assistant ['Hi']
user ['Operator note (not from the user): the following was originally a mid-conversation system-role reminder.', 'Speak French now.', 'How are you?']
SEEN
echo "as seen"
