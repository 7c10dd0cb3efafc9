#!/bin/sh
# A table of LanceDB whose index was made with metric="cosine" is searched by cosine without being
# told, and with bypass_vector_index() by L2: the same rows have twice the distance, so a threshold
# means something else in an exact search. distance_type("cosine") has to be given in each call.
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

table.create_index(metric="cosine", num_partitions=16, num_sub_vectors=4)
plain = table.search(vectors[0]).bypass_vector_index().limit(3).to_list()
told = table.search(vectors[0]).bypass_vector_index().distance_type("cosine").limit(3).to_list()
print([round(a["_distance"] / b["_distance"], 3) for a, b in zip(plain[1:], told[1:])])
PY
diff - "$dir/seen" <<'SEEN'
[2.0, 2.0]
SEEN
echo "as seen"
