#!/bin/sh
# score_threshold of qdrant-client's local mode leaves out a score that equals it: a perfect match is
# not found with score_threshold=1.0 (cosine), nor a point at distance 2 with score_threshold=2.0
# (Euclid).
# Versions: qdrant-client==1.20.0, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check qdrant-client==1.20.0 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from qdrant_client import QdrantClient, models

for distance in (models.Distance.COSINE, models.Distance.DOT, models.Distance.EUCLID):
    client = QdrantClient(":memory:")
    client.create_collection("v", vectors_config=models.VectorParams(size=2, distance=distance))
    client.upsert("v", [models.PointStruct(id=number, vector=[float(number), 0.0]) for number in (1, 2, 3)])
    for point in client.query_points("v", query=[1.0, 0.0]).points[:1]:
        found = client.query_points("v", query=[1.0, 0.0], score_threshold=point.score).points
        print(distance.value, "best score", point.score, "found with it as threshold:", point.id in [hit.id for hit in found])
PY
diff - "$dir/seen" <<'SEEN'
Cosine best score 1.0 found with it as threshold: False
Dot best score 3.0 found with it as threshold: False
Euclid best score 0.0 found with it as threshold: False
SEEN
echo "as seen"
