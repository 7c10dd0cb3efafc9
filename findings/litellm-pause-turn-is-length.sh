#!/bin/sh
# Anthropic's stop reason pause_turn (the server paused its own tools, and is to be asked to go on) is finish_reason "length" for
# LiteLLM, as if max_tokens had cut the answer. What it was stands in message.provider_specific_fields alone.
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
from litellm_stand_in import MESSAGE, StandIn, asked_of_anthropic

for reason in ("max_tokens", "pause_turn"):
    api = StandIn(MESSAGE | {"stop_reason": reason})
    choice = asked_of_anthropic(api, {"role": "user", "content": "Hello"}).choices[0]
    print(reason, choice.finish_reason, (choice.message.provider_specific_fields or {}).get("stop_reason"))
PY
diff - "$dir/seen" <<'SEEN'
max_tokens length None
pause_turn length pause_turn
SEEN
echo "as seen"
