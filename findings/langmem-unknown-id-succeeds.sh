#!/bin/sh
# langmem's tool to manage memories tells the model that it updated or deleted a memory whose id does
# not exist. The update creates one with that id, so that a mistyped id leaves the old memory beside
# the new.
# Versions: langmem==0.0.30, langgraph==1.2.24, langgraph-checkpoint==4.3.2.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check langmem==0.0.30 langgraph==1.2.24 langgraph-checkpoint==4.3.2
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from langgraph.store.memory import InMemoryStore
from langmem import create_manage_memory_tool

store = InMemoryStore()
manage = create_manage_memory_tool(("memories", "ada"), store=store)
manage.invoke({"content": "Ada drinks tea"})
unknown = "00000000-0000-4000-8000-000000000000"
print(manage.invoke({"action": "update", "id": unknown, "content": "Ada drinks coffee"}))
print(sorted(item.value["content"] for item in store.search(("memories", "ada"))))
print(manage.invoke({"action": "delete", "id": "00000000-0000-4000-8000-000000000001"}))
PY
diff - "$dir/seen" <<'SEEN'
updated memory 00000000-0000-4000-8000-000000000000
['Ada drinks coffee', 'Ada drinks tea']
Deleted memory 00000000-0000-4000-8000-000000000001
SEEN
echo "as seen"
