#!/bin/sh
# litellm.anthropic.messages.acreate() with a model of OpenAI posts to /responses of the address that it is given, also where a server
# of one's own there has chat completions alone; litellm.completion() with the same model and address posts to /chat/completions.
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

path, _ = to_openai({"role": "user", "content": "Hello"})
print(path)
PY
diff - "$dir/seen" <<'SEEN'
/responses
SEEN
echo "as seen"
