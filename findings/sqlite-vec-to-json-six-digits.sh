#!/bin/sh
# vec_to_json() of sqlite-vec writes six digits behind the point, whatever the size of the number: 0.0000001 comes back as zero, and a
# vector that is written as JSON and read again is another vector.
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
print(db.execute("SELECT vec_to_json(vec_f32('[0.0000001, 0.1234567, 1000.5]'))").get)
print(db.execute("SELECT vec_f32(vec_to_json(v)) = v FROM (SELECT vec_f32('[0.0000001, 0.0000002]') AS v)").get)
print(db.execute("SELECT vec_to_json(vec_f32(vec_to_json(vec_f32('[0.0000001, 0.0000002]'))))").get)
PY
diff - "$dir/seen" <<'SEEN'
[0.000000,0.123457,1000.500000]
0
[0.000000,0.000000]
SEEN
echo "as seen"
