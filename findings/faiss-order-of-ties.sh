#!/bin/sh
# Equal vectors come out of a flat faiss index in opposite orders: by L2 distance the first ids first,
# by inner product the first ids LAST. For vectors of unit length the two metrics should agree; with
# k=3 both take ids 0, 1, 2.
# Versions: faiss-cpu==1.15.1, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check faiss-cpu==1.15.1 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import faiss
import numpy as np

same = np.ones((10, 4), "f4") / 2
for kind in (faiss.IndexFlatL2, faiss.IndexFlatIP):
    index = kind(4)
    index.add(same)
    print(kind.__name__, index.search(same[:1], 3)[1][0].tolist(), index.search(same[:1], 10)[1][0].tolist())
PY
diff - "$dir/seen" <<'SEEN'
IndexFlatL2 [0, 1, 2] [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
IndexFlatIP [2, 1, 0] [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
SEEN
echo "as seen"
