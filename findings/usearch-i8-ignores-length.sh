#!/bin/sh
# A usearch index of dtype "i8" scales every vector to unit length before it rounds, also for the
# metrics "ip" and "l2sq". With "l2sq" the vectors (0.1, 0) and (1, 0) are at distance 0, with "ip"
# they have the same product, and the distances are in units of 127 squared. f16 and bf16 keep the
# lengths.
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

vectors = np.array([[0.1, 0], [1, 0], [0, 0.9]], "f4")
for metric in ("l2sq", "ip"):
    for dtype in ("bf16", "i8"):
        index = Index(ndim=2, metric=metric, dtype=dtype)
        index.add(np.array([1, 2, 3]), vectors)
        found = index.search(vectors[0], 3)
        print(metric, dtype, sorted((int(key), round(float(distance), 2)) for key, distance in zip(found.keys, found.distances)))
PY
diff - "$dir/seen" <<'SEEN'
l2sq bf16 [(1, 0.0), (2, 0.81), (3, 0.82)]
l2sq i8 [(1, 0.0), (2, 0.0), (3, 32005.0)]
ip bf16 [(1, 0.99), (2, 0.9), (3, 1.0)]
ip i8 [(1, -16128.0), (2, -16128.0), (3, 1.0)]
SEEN
echo "as seen"
