#!/bin/sh
# vec_add() and vec_sub() of int8 vectors in sqlite-vec go round at 127 and -128 without an error: 100 + 100 is -56.
# Versions: sqlite-vec==0.1.9, apsw==3.54.1.0.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check sqlite-vec==0.1.9 apsw==3.54.1.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import apsw
import sqlite_vec

db = apsw.Connection(":memory:")
db.enable_load_extension(True)
db.load_extension(sqlite_vec.loadable_path())
print(db.execute("SELECT vec_to_json(vec_add(vec_int8('[100, 50]'), vec_int8('[100, 50]')))").get)
print(db.execute("SELECT vec_to_json(vec_sub(vec_int8('[-100, 50]'), vec_int8('[100, 20]')))").get)
PY
diff - "$dir/seen" <<'SEEN'
[-56,100]
[56,30]
SEEN
echo "as seen"
