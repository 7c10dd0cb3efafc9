#!/bin/sh
# hnswlib's add_items() without labels counts from the number of elements in the index. Behind vectors with labels of one's own it
# gives labels that are taken, and replaces those vectors without a word.
# Versions: hnswlib==0.8.0, numpy==2.4.6 (hnswlib is built on installation: it needs a C++ compiler).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check hnswlib==0.8.0 numpy==2.4.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import hnswlib
import numpy

index = hnswlib.Index(space="l2", dim=2)
index.init_index(max_elements=10)
index.add_items(numpy.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), [3, 4, 5])
print(sorted(index.get_ids_list()), index.get_items([3])[0].tolist())
index.add_items(numpy.array([[9.0, 9.0], [8.0, 8.0], [7.0, 7.0]]))
print(sorted(index.get_ids_list()), index.get_items([3])[0].tolist())
PY
diff - "$dir/seen" <<'SEEN'
[3, 4, 5] [1.0, 0.0]
[3, 4, 5] [9.0, 9.0]
SEEN
echo "as seen"
