#!/bin/sh
# A collection with datatype UINT8 and scalar quantization keeps floats in Qdrant's local mode: 3.7, 300 and -5 come back as they were,
# and the quantization is not in the collection's settings. What the types cost shows only on a server.
# Versions: qdrant-client==1.20.0 (local mode).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check qdrant-client==1.20.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from qdrant_client import QdrantClient, models

client = QdrantClient(":memory:")
vectors = models.VectorParams(size=3, distance=models.Distance.DOT, datatype=models.Datatype.UINT8)
int8 = models.ScalarQuantization(scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8))
client.create_collection("texts", vectors_config=vectors, quantization_config=int8)
client.upsert("texts", [models.PointStruct(id=1, vector=[3.5, 300.0, -5.0])])
config = client.get_collection("texts").config
print(config.params.vectors.datatype.value, config.quantization_config)
print(client.retrieve("texts", [1], with_vectors=True)[0].vector)
PY
diff - "$dir/seen" <<'SEEN'
uint8 None
[3.5, 300.0, -5.0]
SEEN
echo "as seen"
