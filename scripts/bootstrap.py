"""Makes ROOT/.venv and installs a lock into it: `bootstrap.py ROOT runtime|dev`. Standard library only.

A copy of each installed lock is left in .venv, last of all, and taken away before anything changes: a set-up
that was interrupted is thus never taken for a finished one, and is made anew. Two at once wait for each other.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path


def main(root: Path, wanted: str) -> None:
    handle = os.open(root / ".venv.lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another set-up to finish …", file=sys.stderr)
        fcntl.flock(handle, fcntl.LOCK_EX)
    # Installers inherit the lock: one that outlives this process still keeps others out.
    os.set_inheritable(handle, True)
    install(root, wanted)


def install(root: Path, wanted: str) -> None:
    venv, locks = root / ".venv", root / "requirements"
    if installed(venv, locks / f"{wanted}.txt"):
        return  # by the one we waited for
    print(f"Setting up {venv} (once; a minute or so) …", file=sys.stderr)
    python = venv / "bin" / "python"
    uv = shutil.which("uv")
    if installed(venv, locks / "runtime.txt"):
        (venv / ".locked-runtime").unlink()
    else:
        shutil.rmtree(venv, ignore_errors=True)
        if uv:
            run(uv, "venv", "--quiet", "--python", sys.executable, venv)
        else:
            run(sys.executable, "-m", "venv", venv)
            run(python, "-m", "pip", "uninstall", "-qq", "--yes", "setuptools")  # 9 MB that nothing here uses
        (venv / ".abi").write_text(f"{sys.implementation.cache_tag}\n")
    locked = ("--quiet", "--require-hashes", "--no-deps", "-r", locks / f"{wanted}.txt")
    if uv:
        run(uv, "pip", "install", "--compile-bytecode", "--python", python, *locked)
    else:
        run(python, "-m", "pip", "install", "--disable-pip-version-check", *locked)
    for name in {"runtime", wanted}:  # the dev lock holds all of the runtime lock
        shutil.copyfile(locks / f"{name}.txt", venv / f".locked-{name}")


def installed(venv: Path, lock: Path) -> bool:
    """Whether this lock was completely installed, for the interpreter that runs this."""
    try:
        abi = (venv / ".abi").read_text().strip()
        return abi == sys.implementation.cache_tag and (
            (venv / f".locked-{lock.stem}").read_bytes() == lock.read_bytes()
        )
    except OSError:
        return False


def run(*command: str | Path) -> None:
    if code := subprocess.call(command, close_fds=False):
        sys.exit(f"Set-up failed ({code}): {' '.join(map(str, command))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
