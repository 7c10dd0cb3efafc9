"""`recalld …`: every command is a module here."""

import gc

gc.disable()  # what is imported stays: to look through it again and again is a fifth of a start

from app.cli.main import main  # noqa: E402 (after that)

gc.freeze()
gc.enable()

__all__ = ["main"]
