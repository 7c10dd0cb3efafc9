"""The command line, `recalld …`. Each module of this package is a command."""

import gc

gc.disable()  # imported objects stay alive: collecting garbage among them takes a fifth of a start

from app.cli.main import main  # noqa: E402 (imported while the collector is off)

gc.freeze()
gc.enable()

__all__ = ["main"]
