#!/bin/sh
# Equal distances in a sqlite-vec KNN come in an order that is neither that of the rowids nor that of
# the inserts, and a smaller k is not always the beginning of a larger one that a caller could have
# sorted: rowids 5, 2, 9, 1, 7 of one vector come back as 7, 1, 9, 2, 5. Who needs a stable page has
# to sort by (distance, rowid) and ask for more than one page.
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


rows("create virtual table v using vec0(v float[2])")
for rowid in (5, 2, 9, 1, 7):
    rows("insert into v(rowid, v) values (?, '[1, 0]')", rowid)
for k in (3, 5):
    print(k, [rowid for (rowid,) in rows("select rowid from v where v match '[1, 0]' and k = ?", k)])
PY
diff - "$dir/seen" <<'SEEN'
3 [7, 1, 9]
5 [7, 1, 9, 2, 5]
SEEN
echo "as seen"
