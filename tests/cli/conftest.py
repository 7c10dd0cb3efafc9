"""Commands run in this process (`run`). Those where the process matters use tests/server.py."""

from tests.command import Run as Run
