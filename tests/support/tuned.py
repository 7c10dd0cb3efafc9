"""`recalld serve`, tuned: `serving(data, command=tuned(drain_delay_seconds=3))`.

python -m tests.support.tuned '{"drain_delay_seconds": 3}'
"""

import json
import sys
from typing import Any

from app.cli.serve import serve_with
from app.core.tuning import Tuning
from app.lifespan import RealParts


def tuned(**values: Any) -> tuple[str, ...]:
    """What to run for a service with these fields of `Tuning`."""
    return ("-m", "tests.support.tuned", json.dumps(values))


if __name__ == "__main__":
    parts = RealParts()
    parts.tuning = Tuning(**json.loads(sys.argv[1]))
    serve_with(parts)
