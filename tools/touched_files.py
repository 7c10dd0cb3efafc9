"""How many files of `app/` one request runs code in: append, search and context.

    .venv/bin/python tools/touched_files.py [--list]

The real application runs in this process on a fresh embedded store, with the real embedding model. Each request is sent
several times before it is counted, so that caches are filled (the query's vector, too); background jobs are off. A file
counts when the body of one of its functions runs between the request and its response, in any thread. Imports do not
count.
"""

import argparse
import inspect
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from starlette.testclient import TestClient

from app.main import create_app
from app.settings import JobSettings, Settings

ROOT = Path(__file__).resolve().parent.parent
OWNER = {"agent_id": "agent", "user_id": "user"}
WARM_UPS = 5
QUIET_SECONDS = 1.5
"""Accesses are stored up to a second after a search."""


class Tracer:
    """Notes the files whose functions are called while it is on. It sees threads that start inside `installed`."""

    def __init__(self, folder: Path) -> None:
        self._prefix = f"{folder}/"
        self._on = False
        self._files: set[str] = set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def start(self) -> None:
        self._files, self._on = set(), True

    def stop(self) -> list[str]:
        self._on = False
        return sorted(file.removeprefix(self._prefix) for file in self._files)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._on or event != "call":
            return
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # neither a module's body nor a class's
        if is_function and code.co_filename.startswith(self._prefix):
            self._files.add(code.co_filename)


RECORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/memories", {"content": "Ada prefers green tea."}),
    ("/v1/memories", {"content": "The trip to Lisbon is in May."}),
    ("/v1/facts", {"subject": "Ada", "predicate": "drinks", "object": "green tea"}),
    ("/v1/tasks", {"goal": "Book the trip to Lisbon", "session_id": "session"}),
)
"""Paths and bodies of what a context draws from."""
QUERY = {"query": "What does Ada like to drink?"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "search": ("/v1/memories/search", QUERY),
    "context": ("/v1/context", {**QUERY, "session_id": "session"}),
    "append": ("/v1/sessions/session/messages", {"messages": [{"role": "user", "content": "I had tea today."}]}),
}
"""Path and body. The append comes last: a search after a write would count the refresh of its index, too."""


def count() -> dict[str, list[str]]:
    """Files that ran, by the request."""
    tracer, found = Tracer(ROOT / "app"), {}
    with tempfile.TemporaryDirectory(prefix="recalld-touched-") as folder, tracer.installed():
        settings = Settings(data_dir=Path(folder), jobs=JobSettings(enabled=False), log_level="warning", _env_file=None)
        with TestClient(create_app(settings), "http://127.0.0.1", client=("127.0.0.1", 1)) as api:

            def post(path: str, body: dict[str, Any]) -> None:
                api.post(path, json={**OWNER, **body}).raise_for_status()

            for path, body in (*RECORDS, *[*REQUESTS.values()] * WARM_UPS, REQUESTS["search"]):
                post(path, body)
            for name, (path, body) in REQUESTS.items():
                time.sleep(QUIET_SECONDS)
                tracer.start()
                post(path, body)
                found[name] = tracer.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the files, too")
    options = parser.parse_args()
    for name, files in count().items():
        print(f"{name:8} {len(files)}")
        for file in files if options.list else ():
            print(f"  {file}")


if __name__ == "__main__":
    main()
