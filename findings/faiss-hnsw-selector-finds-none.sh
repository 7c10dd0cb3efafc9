#!/bin/sh
# A faiss HNSW index with an IDSelector returns none of the selected vectors when they are few: with 5
# of 5,000 allowed, most searches end with -1 only, without an error. With 500 allowed every search
# has its five. A flat index finds them in either case.
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

faiss.omp_set_num_threads(1)
random = np.random.default_rng(0)
vectors = random.normal(size=(5000, 16)).astype("f4")
graph, flat = faiss.IndexHNSWFlat(16, 32), faiss.IndexFlatL2(16)
graph.add(vectors)
flat.add(vectors)
for allowed in (5, 500):
    selector = faiss.IDSelectorBatch(random.choice(5000, allowed, replace=False))
    hnsw = graph.search(vectors[:100], 5, params=faiss.SearchParametersHNSW(sel=selector, efSearch=16))[1]
    exact = flat.search(vectors[:100], 5, params=faiss.SearchParameters(sel=selector))[1]
    empty = int((hnsw < 0).all(axis=1).sum())
    print(allowed, "allowed: HNSW, searches without any hit:", "more than half" if empty > 50 else empty, "| flat:", int((exact < 0).all(axis=1).sum()))
PY
diff - "$dir/seen" <<'SEEN'
5 allowed: HNSW, searches without any hit: more than half | flat: 0
500 allowed: HNSW, searches without any hit: 0 | flat: 0
SEEN
echo "as seen"
