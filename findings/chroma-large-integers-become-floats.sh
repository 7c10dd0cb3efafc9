#!/bin/sh
# A whole number of 2 to the power of 63 or more in the metadata of a Chroma record is kept as a float without a word, so that
# neighbouring numbers become equal; the largest one below is exact.
# Versions: chromadb==1.5.9.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check chromadb==1.5.9
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import chromadb

texts = chromadb.EphemeralClient().create_collection("texts", embedding_function=None)
for number in (2**63 - 1, 2**63 + 1):
    texts.add(ids=[str(number)], embeddings=[[1.0, 0.0]], metadatas=[{"number": number}])
    print(number, texts.get(ids=[str(number)])["metadatas"][0]["number"])
PY
diff - "$dir/seen" <<'SEEN'
9223372036854775807 9223372036854775807
9223372036854775809 9.223372036854776e+18
SEEN
echo "as seen"
