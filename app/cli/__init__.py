"""`recalld …`: every command is a module here."""

from app.cli.program import main

__all__ = ["main"]
