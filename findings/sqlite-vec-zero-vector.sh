#!/bin/sh
# A zero vector in a sqlite-vec table with distance_metric=cosine has the distance NULL and still
# takes a place among the k nearest: here it comes before the opposite vector. A threshold (distance <
# 0.5) then drops it, and k rows are fewer than k.
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

connection = apsw.Connection(":memory:")
connection.enable_load_extension(True)
connection.load_extension(sqlite_vec.loadable_path())


def rows(statement, *values):
    return list(connection.execute(statement, values))


rows("create virtual table v using vec0(v float[2] distance_metric=cosine)")
rows("insert into v(rowid, v) values (1, '[1, 0]'), (2, '[0, 0]'), (3, '[-1, 0]')")
print(rows("select rowid, distance from v where v match '[1, 0]' and k = 3"))
print(rows("select rowid, distance from v where v match '[1, 0]' and k = 2"))
PY
diff - "$dir/seen" <<'SEEN'
[(1, 0.0), (2, None), (3, 2.0)]
[(1, 0.0), (2, None)]
SEEN
echo "as seen"
