#!/bin/sh
# litellm.utils.trim_messages with a system message that is longer than `max_tokens` shortens the system message and returns it
# alone: the user's question of one word is gone. No network is used.
# Versions: litellm==1.110.2.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True "$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from litellm.utils import trim_messages

asked = [{"role": "system", "content": "Be kind. " * 40}, {"role": "user", "content": "Hello"}]
print([message["role"] for message in trim_messages(asked, model="gpt-4o", max_tokens=60)])
PY
diff - "$dir/seen" <<'SEEN'
['system']
SEEN
echo "as seen"
