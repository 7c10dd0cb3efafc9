#!/bin/sh
# A document of plain text in a message of Anthropic's form is left out of what litellm.anthropic.messages.acreate() sends to OpenAI,
# without an error; a PDF is sent as a file.
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

question = {"type": "text", "text": "What does it say?"}
for media_type, kind, data in (("text/plain", "text", "The code is 7."), ("application/pdf", "base64", "JVBERi0=")):
    document = {"type": "document", "source": {"type": kind, "media_type": media_type, "data": data}}
    _, request = to_openai({"role": "user", "content": [document, question]})
    print(media_type, [part["type"] for item in request["input"] for part in item["content"]])
PY
diff - "$dir/seen" <<'SEEN'
text/plain ['input_text']
application/pdf ['input_file', 'input_text']
SEEN
echo "as seen"
