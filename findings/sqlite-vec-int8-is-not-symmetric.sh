#!/bin/sh
# vec_quantize_int8(v, 'unit') of sqlite-vec maps 1.0 to 126 and -1.0 to -128: a vector and its
# opposite are not opposite any more, 127 never occurs within the unit range, and 0.5 becomes 63, -0.5
# becomes -64.
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


print(rows("select vec_to_json(vec_quantize_int8('[1, -1, 0.5, -0.5, 0]', 'unit'))")[0][0])
PY
diff - "$dir/seen" <<'SEEN'
[126,-128,63,-64,0]
SEEN
echo "as seen"
