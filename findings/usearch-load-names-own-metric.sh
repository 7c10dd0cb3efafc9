#!/bin/sh
# An index of usearch that has loaded a file of another metric searches by the metric of the file and names its own: metric_kind
# says L2sq where the distances are cosines. Its dtype is the file's. Index.restore() names both rightly.
# Versions: usearch==2.26.6, numpy==2.4.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check usearch==2.26.6 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import numpy
from usearch.index import Index

one, two = numpy.array([1.0, 0.0], dtype=numpy.float32), numpy.array([2.0, 0.0], dtype=numpy.float32)
cosine = Index(ndim=2, metric="cos", dtype="f16")
cosine.add(1, one)
cosine.save("index")
loaded = Index(ndim=2, metric="l2sq", dtype="f32")
loaded.load("index")
squares = Index(ndim=2, metric="l2sq", dtype="f32")
squares.add(1, one)
for name, index in (("loaded", loaded), ("restored", Index.restore("index")), ("made of L2sq", squares)):
    print(name, index.dtype.name, index.metric_kind.name, index.search(two, 1).distances.tolist())
PY
diff - "$dir/seen" <<'SEEN'
loaded F16 L2sq [0.0]
restored F16 Cos [0.0]
made of L2sq F32 L2sq [1.0]
SEEN
echo "as seen"
