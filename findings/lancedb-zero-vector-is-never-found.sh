#!/bin/sh
# A row with a zero vector is never returned by a cosine search of LanceDB, however large the limit
# is: count_rows() has it, the search has not, with or without an index. By L2 it is there.
# Versions: lancedb==0.40.0, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check lancedb==0.40.0 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import lancedb
import numpy as np

random = np.random.default_rng(0)
vectors = random.normal(size=(2000, 16)).astype("f4")
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
table = lancedb.connect("data").create_table("v", [{"id": number, "vector": vectors[number]} for number in range(2000)])

table.add([{"id": 9999, "vector": np.zeros(16, "f4")}])
for distance in ("l2", "cosine"):
    found = table.search(vectors[0]).distance_type(distance).limit(5000).to_list()
    print(distance, table.count_rows(), len(found), 9999 in {row["id"] for row in found})
PY
diff - "$dir/seen" <<'SEEN'
l2 2001 2001 True
cosine 2001 2000 False
SEEN
echo "as seen"
