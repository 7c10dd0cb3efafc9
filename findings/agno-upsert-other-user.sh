#!/bin/sh
# agno's stores disagree on upsert_user_memory() with an id that another user's memory has. SqliteDb
# writes the new text into the FIRST user's memory: Ada then remembers what Bob said, and Bob has
# nothing. JsonDb and InMemoryDb hand the memory to the second user, and the first has lost it.
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
    db.upsert_user_memory(UserMemory(memory="Ada drinks tea", memory_id="1", user_id="ada"))
    db.upsert_user_memory(UserMemory(memory="Bob drinks beer", memory_id="1", user_id="bob"))
    print(name, {user: [found.memory for found in db.get_user_memories(user_id=user)] for user in ("ada", "bob")})
PY
diff - "$dir/seen" <<'SEEN'
SqliteDb {'ada': ['Bob drinks beer'], 'bob': []}
JsonDb {'ada': [], 'bob': ['Bob drinks beer']}
InMemoryDb {'ada': [], 'bob': ['Bob drinks beer']}
SEEN
echo "as seen"
