#!/bin/sh
# A scope of CrewAI's Memory is compared as the beginning of a text, not as a path:
# recall(scope="/ad") returns what was remembered under /ada, though list_scopes("/ad") does not name
# it. forget(scope="/ad") deletes /ada as well, and everything in the root scope "/", too.
# Versions: crewai==1.15.30.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check crewai==1.15.30
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
from crewai import Memory

memory = Memory(storage="store", embedder=lambda texts: [[1.0, 0.0, 0.0, 0.0] for _ in texts])
said = {"/ad": "Ad drinks tea", "/ad/work": "Ad is a nurse", "/ada": "Ada drinks coffee", "/": "Of nobody", "/bob": "Bob drinks milk"}
for scope, text in said.items():
    memory.remember(text, scope=scope, categories=["x"], importance=0.5)
recalled = sorted(match.record.scope for match in memory.recall("drinks", scope="/ad", depth="shallow"))
scopes = memory.list_scopes("/ad")
forgotten = memory.forget(scope="/ad")
with open("answers", "w") as file:  # what it prints itself is left out
    print("recalled:", recalled, file=file)
    print("scopes below:", scopes, file=file)
    print("forgotten:", forgotten, "left:", sorted(record.scope for record in memory.list_records()), file=file)
PY
diff - "$dir/answers" <<'SEEN'
recalled: ['/ad', '/ad/work', '/ada']
scopes below: ['/ad/work']
forgotten: 4 left: ['/bob']
SEEN
echo "as seen"
