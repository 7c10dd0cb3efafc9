#!/bin/sh
# In qdrant-client's local mode a point that is written again with the same vector gets another score
# in the eighth digit, because an insert and an update normalise it differently: it falls behind its
# equals, so that the order of ties tells which points were updated. Before that, equal points come in
# the reverse order of insertion, with a cosine above 1.
# Versions: qdrant-client==1.20.0, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check qdrant-client==1.20.0 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from qdrant_client import QdrantClient, models

client = QdrantClient(":memory:")
client.create_collection("v", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))


def write(number):
    client.upsert("v", [models.PointStruct(id=number, vector=[3.7, 4.2])])


def order():
    return [(hit.id, hit.score > 1) for hit in client.query_points("v", query=[3.7, 4.2]).points]


for number in (5, 2, 9):
    write(number)
print(order())
write(9)
print(order())
PY
diff - "$dir/seen" <<'SEEN'
[(9, True), (2, True), (5, True)]
[(2, True), (5, True), (9, False)]
SEEN
echo "as seen"
