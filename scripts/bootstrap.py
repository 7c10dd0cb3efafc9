"""Makes ROOT/.venv and installs a lock into it: `bootstrap.py ROOT runtime|dev`. Standard library only.

A copy of each installed lock is left in .venv, last of all, and taken away before anything changes: a set-up
that was interrupted is thus never taken for a finished one, and is made anew. Two at once wait for each other.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
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
    print(f"Setting up {venv} (once) …", file=sys.stderr)
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
    locked = ("--require-hashes", "--no-deps", "-r", locks / f"{wanted}.txt")
    if uv:
        command: tuple[str | Path, ...] = (uv, "pip", "install", "--compile-bytecode", "--python", python, *locked)
    else:
        command = (python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *locked)
    install_packages(command, venv, locks / f"{wanted}.txt")
    for name in {"runtime", wanted}:  # the dev lock holds all of the runtime lock
        shutil.copyfile(locks / f"{name}.txt", venv / f".locked-{name}")


def install_packages(command: Sequence[str | Path], venv: Path, lock: Path) -> None:
    """Runs an installer and shows its progress: packages fetched, by the lines of pip, and packages installed, by their
    folders in the environment (all that uv shows). On failure its output is printed."""
    total = len(re.findall(r"^[A-Za-z0-9][^ ]*==", lock.read_text(), re.MULTILINE))
    output: list[str] = []
    progress = Progress()
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=output.extend, args=(process.stdout,))
        reader.start()
        while reader.is_alive():
            reader.join(0.2)
            lines = output.copy()
            needed = total - sum(line.startswith("Ignoring ") for line in lines)
            fetched = sum(line.startswith(("Collecting ", "Requirement already satisfied")) for line in lines)
            done = len(list(venv.glob("lib/python*/site-packages/*.dist-info")))
            progress.show(min(fetched, needed), min(done, needed), needed)
    code = process.returncode
    progress.end("failed" if code else "done")
    if code:
        sys.stderr.writelines(output)
        sys.exit(f"Set-up failed ({code}): {' '.join(map(str, command))}")


class Progress:
    """A line on standard error that a terminal overwrites. Elsewhere a line is printed at each quarter of a phase."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = ("", -1)

    def show(self, fetched: int, done: int, total: int) -> None:
        """Shows how many of the packages are fetched, or installed once the first one is."""
        phase, number = ("installed", done) if done > 1 else ("fetched", fetched)  # pip itself is there from the start
        now = (phase, number if self._terminal else 4 * number // max(total, 1))
        if now == self._last or not number:
            return
        self._last = now
        text = f"  {number} of {total} packages {phase}"
        print(
            f"\r{text:40}" if self._terminal else text, end="" if self._terminal else "\n", file=sys.stderr, flush=True
        )

    def end(self, word: str) -> None:
        """Ends the progress with a word of its own."""
        print(f"{chr(13) if self._terminal else ''}  {word:38}".rstrip(), file=sys.stderr, flush=True)


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
