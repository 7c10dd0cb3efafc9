#!/bin/sh
# A second upsert_user_memory() of the same memory keeps created_at in agno's SqliteDb and resets it
# in JsonDb and InMemoryDb, where the age of a memory is lost with its first change.
# Versions: agno==3.1.10, sqlalchemy[asyncio]==2.1.9.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check agno==3.1.10 'sqlalchemy[asyncio]==2.1.9'
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import time

from agno.db.in_memory import InMemoryDb
from agno.db.json import JsonDb
from agno.db.schemas import UserMemory
from agno.db.sqlite import SqliteDb

STORES = {"SqliteDb": SqliteDb(db_file="memories.db"), "JsonDb": JsonDb(db_path="memories"), "InMemoryDb": InMemoryDb()}

for name, db in STORES.items():
    first = db.upsert_user_memory(UserMemory(memory="Ada drinks tea", memory_id="1", user_id="ada"))
    time.sleep(1.1)
    second = db.upsert_user_memory(UserMemory(memory="Ada drinks coffee", memory_id="1", user_id="ada"))
    print(name, "kept" if first.created_at == second.created_at else "reset")
PY
diff - "$dir/seen" <<'SEEN'
SqliteDb kept
JsonDb reset
InMemoryDb reset
SEEN
echo "as seen"
