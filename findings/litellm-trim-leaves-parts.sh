#!/bin/sh
# litellm.utils.trim_messages returns a conversation unshortened, with an error in the log only, when a message that is too long
# has a list of parts as content. The same words as a plain text are shortened. No network is used.
# Versions: litellm==1.110.2.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True "$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from litellm.utils import token_counter, trim_messages

words = "word " * 200
for content in (words, [{"type": "text", "text": words}]):
    trimmed = trim_messages([{"role": "user", "content": content}], model="gpt-4o", max_tokens=40)
    print(type(content).__name__, "fits" if token_counter(model="gpt-4o", messages=trimmed) <= 40 else "does not fit")
PY
diff - "$dir/seen" <<'SEEN'
str fits
list does not fit
SEEN
echo "as seen"
