#!/bin/sh
# litellm.completion(client=…) does not call chat.completions.create of the OpenAI client that it is given: it posts to
# /chat/completions with client.post(). What a library put around `create` (memory, traces, checks) is passed by without
# a word, and the request goes out through the connections of that client.
# Versions: litellm==1.110.2, openai==3.57.0, against a stand-in of the API on loopback.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2 openai==3.57.0
export LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH="$here"
cd "$dir"
"$dir/venv/bin/python" -B -W ignore - >"$dir/seen" <<'PY'
import litellm
from litellm_stand_in import COMPLETION, StandIn
from openai import OpenAI

client = OpenAI(base_url=StandIn(COMPLETION).address, api_key="none")
create, calls = client.chat.completions.create, []


def watched(**request):
    calls.append(request["model"])
    return create(**request)


client.chat.completions.create = watched
asked = [{"role": "user", "content": "Hello"}]
print("openai", client.chat.completions.create(model="m", messages=asked).choices[0].message.content, "calls seen", len(calls))
calls.clear()
answer = litellm.completion(model="openai/m", messages=asked, client=client)
print("litellm", answer.choices[0].message.content, "calls seen", len(calls))
PY
diff - "$dir/seen" <<'SEEN'
openai Hi. calls seen 1
litellm Hi. calls seen 0
SEEN
echo "as seen"
