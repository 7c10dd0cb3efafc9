#!/bin/sh
# An assistant's message that is a refusal (OpenAI's field `refusal`, content null) is not sent to Anthropic at all: two messages
# of the user follow each other, and the model does not know that it refused.
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
    {"role": "user", "content": "Guess my age."},
    {"role": "assistant", "content": None, "refusal": "I cannot guess that."},
    {"role": "user", "content": "Why not?"},
)
print([(message["role"], message["content"][0]["text"]) for message in request["messages"]])
PY
diff - "$dir/seen" <<'SEEN'
[('user', 'Guess my age.'), ('user', 'Why not?')]
SEEN
echo "as seen"
