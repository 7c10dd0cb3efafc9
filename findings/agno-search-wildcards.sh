#!/bin/sh
# search_content of agno's SqliteDb is a pattern of SQL's LIKE: % matches everything and _ any
# character. In JsonDb and InMemoryDb the same call looks for the characters themselves.
# Versions: agno==3.1.10, sqlalchemy[asyncio]==2.1.9.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check agno==3.1.10 'sqlalchemy[asyncio]==2.1.9'
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from agno.db.in_memory import InMemoryDb
from agno.db.json import JsonDb
from agno.db.schemas import UserMemory
from agno.db.sqlite import SqliteDb

STORES = {"SqliteDb": SqliteDb(db_file="memories.db"), "JsonDb": JsonDb(db_path="memories"), "InMemoryDb": InMemoryDb()}

for name, db in STORES.items():
    db.upsert_user_memory(UserMemory(memory="The discount is 20 euro", memory_id="1", user_id="ada"))
    db.upsert_user_memory(UserMemory(memory="The discount is 20%", memory_id="2", user_id="ada"))
    print(name, sorted(found.memory_id for found in db.get_user_memories(user_id="ada", search_content="20%")))
PY
diff - "$dir/seen" <<'SEEN'
SqliteDb ['1', '2']
JsonDb ['2']
InMemoryDb ['2']
SEEN
echo "as seen"
