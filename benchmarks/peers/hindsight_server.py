"""Hindsight's own server on a PostgreSQL of the same environment: `python hindsight_server.py PORT FOLDER`."""

import os
import signal
import sys
from pathlib import Path

from hindsight_api.main import main
from postgres import running

if __name__ == "__main__":
    port, folder = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn ends by the signal that it got: PostgreSQL, too
    with running(Path(folder) / "postgres") as uri:
        os.environ["HINDSIGHT_API_DATABASE_URL"] = uri
        sys.argv[1:] = ["--host", "127.0.0.1", "--port", port, "--log-level", "warning"]
        main()
