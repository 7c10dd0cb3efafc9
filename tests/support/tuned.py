"""`recalld serve`, tuned: `serving(data, command=tuned(drain_delay_seconds=3))`.

python -m tests.support.tuned '{"drain_delay_seconds": 3}'
"""

import json
import sys
from typing import Any

from app.cli.serve import serve_with
from app.core.tuning import Tuning
from app.errors import RecalldError
from app.lifespan import RealParts


def tuned(module: str = "tests.support.tuned", **values: Any) -> tuple[str, ...]:
    """What to run for a service with these fields of `Tuning`."""
    return ("-m", module, json.dumps(values))


def serve_tuned(parts: RealParts | None = None) -> None:
    """Serves with the tuning of the command line."""
    parts = parts or RealParts()
    parts.tuning = Tuning(**json.loads(sys.argv[1]))
    try:
        serve_with(parts)
    except RecalldError as error:  # as `recalld` ends
        sys.exit(f"recalld: {error.detail}")


if __name__ == "__main__":
    serve_tuned()
