#!/bin/sh
# With a coarse IVF_PQ index the _distance of LanceDB's cosine search goes above 3, though a cosine
# distance lies between 0 and 2, and a vector is not near 0 from itself. Whoever computes 1 -
# _distance gets similarities below -2. As soon as one row is added that the index does not have yet,
# the same search has exact distances for ALL rows: a threshold means something else after each write,
# until the index is optimised.
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

table.create_index(metric="cosine", num_partitions=2, num_sub_vectors=2)


def distances():
    return {row["id"]: row["_distance"] for row in table.search(vectors[0]).nprobes(2).limit(5000).to_list()}


found = distances()
print("indexed: largest above 3:", max(found.values()) > 3, "| itself above 0.05:", found[0] > 0.05)
table.add([{"id": 5000, "vector": vectors[1]}])
found = distances()
print("one row more: largest above 2:", max(found.values()) > 2.001, "| itself above 0.05:", found[0] > 0.05)
PY
diff - "$dir/seen" <<'SEEN'
indexed: largest above 3: True | itself above 0.05: True
one row more: largest above 2: False | itself above 0.05: False
SEEN
echo "as seen"
