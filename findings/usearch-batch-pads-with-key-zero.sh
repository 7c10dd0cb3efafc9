#!/bin/sh
# A search for several vectors at once in usearch fills the rows that have fewer hits with key 0 and
# distance NaN, where key 0 may be a vector that is in the index, or that was removed. `counts` says
# how many are real. A search for one vector is just shorter.
# Versions: usearch==2.26.6, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check usearch==2.26.6 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import numpy as np
from usearch.index import Index

index = Index(ndim=2, metric="cos", dtype="f32")
index.add(np.array([0, 7]), np.array([[0, 1], [1, 0]], "f4"))
index.remove(0)
one = index.search(np.array([1, 0], "f4"), 3)
two = index.search(np.array([[1, 0], [1, 0]], "f4"), 3)
print("one:", one.keys.tolist())
print("two:", two.keys.tolist(), two.counts.tolist(), np.isnan(two.distances).sum(), "NaN")
PY
diff - "$dir/seen" <<'SEEN'
one: [7]
two: [[7, 0, 0], [7, 0, 0]] [1, 1] 4 NaN
SEEN
echo "as seen"
