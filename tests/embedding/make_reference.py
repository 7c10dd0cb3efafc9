"""Make tests/embedding/data/reference.npz: what sentence-transformers itself says of 200 sentences, in float32.

python tests/embedding/make_reference.py FOLDER [--check]

FOLDER holds the official all-MiniLM-L6-v2 as sentence-transformers saves it. Needs sentence-transformers and torch and
nothing of this project, so that the vectors owe nothing to what they are to judge; `scripts/test_sentence_transformers`
makes such an environment. `--check` makes them anew and compares them with the file.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch

DATA = Path(__file__).resolve().parent / "data"
SENTENCES, VECTORS = DATA / "sentences.json", DATA / "reference.npz"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def make(folder: Path) -> np.ndarray:
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        sys.exit(f"{folder}/model.safetensors is not the official one: its sha256 is {digest}")
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True).float()
    sentences = json.loads(SENTENCES.read_text(encoding="utf-8"))
    # One by one: no padding, so that nothing but its own text is in a vector.
    return np.stack([model.encode(text, normalize_embeddings=True) for text in sentences])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    vectors = make(args.folder)
    if args.check:
        kept = np.load(VECTORS)["vectors"].astype(np.float32)
        cosine = (vectors * kept).sum(axis=1) / np.linalg.norm(kept, axis=1)
        print(f"{len(cosine)} sentences, cosine to the file: min {cosine.min():.7f}, mean {cosine.mean():.7f}")
        sys.exit(int(cosine.min() < 0.99999))
    made_with = f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}, float32"
    np.savez_compressed(
        VECTORS,
        vectors=vectors.astype(np.float16),  # moves no cosine by more than 1e-6
        sentences_sha256=hashlib.sha256(SENTENCES.read_bytes()).hexdigest(),
        weights_sha256=WEIGHTS_SHA256,
        made_with=made_with,
    )
    print(f"{VECTORS}: {vectors.shape}, {VECTORS.stat().st_size} bytes, {made_with}")


if __name__ == "__main__":
    main()
