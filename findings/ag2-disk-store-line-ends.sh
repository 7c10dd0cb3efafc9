#!/bin/sh
# What was written with carriage returns is read without them from AG2's DiskKnowledgeStore: "\r\n" and "\r" come back as
# "\n". MemoryKnowledgeStore and SqliteKnowledgeStore give the text back as it was; read_range() of the disk store, too.
# Versions: ag2==1.2.1, watchdog==6.0.0 (Linux).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check ag2==1.2.1 watchdog==6.0.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import asyncio

from ag2.knowledge import DiskKnowledgeStore, MemoryKnowledgeStore, SqliteKnowledgeStore


async def main():
    for store in (MemoryKnowledgeStore(), SqliteKnowledgeStore("notes.db"), DiskKnowledgeStore("notes")):
        await store.write("/memo", "one\r\ntwo\rthree\n")
        print(type(store).__name__, repr(await store.read("/memo")), repr(await store.read_range("/memo", 0)))


asyncio.run(main())
PY
diff - "$dir/seen" <<'SEEN'
MemoryKnowledgeStore 'one\r\ntwo\rthree\n' 'one\r\ntwo\rthree\n'
SqliteKnowledgeStore 'one\r\ntwo\rthree\n' 'one\r\ntwo\rthree\n'
DiskKnowledgeStore 'one\ntwo\nthree\n' 'one\r\ntwo\rthree\n'
SEEN
echo "as seen"
