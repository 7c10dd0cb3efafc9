#!/bin/sh
# With litellm.cache = Cache(type="local"), the first call of a question works and the second, which is answered from the cache,
# raises ModuleNotFoundError: it imports FastAPI, which `pip install litellm` does not install. No network is used.
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
import litellm
from litellm_stand_in import COMPLETION, StandIn

api = StandIn(COMPLETION)
litellm.cache = litellm.Cache(type="local")
for _ in range(2):
    try:
        asked = [{"role": "user", "content": "Hello"}]
        answer = litellm.completion(model="openai/m", api_base=api.address, api_key="none", messages=asked, caching=True)
        print(answer.choices[0].message.content)
    except ModuleNotFoundError as error:
        print("ModuleNotFoundError:", error.name)
PY
diff - "$dir/seen" <<'SEEN'
Hi.
ModuleNotFoundError: fastapi
SEEN
echo "as seen"
