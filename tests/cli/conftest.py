"""Commands run in this process (`run`). Those where the process matters use tests/support/server.py."""

from tests.support.command import Run as Run
