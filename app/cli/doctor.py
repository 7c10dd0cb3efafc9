"""`recalld doctor`."""

from dataclasses import asdict

import typer

from app.cli.output import AsJson, as_json, table
from app.cli.running import on_store


def doctor(as_json_: AsJson = False) -> None:
    """Check the store: the database, every document, and that search agrees with them. Exit code 1 for a fault."""
    findings = on_store(lambda store: store.check(deep=True), existing=True)
    if as_json_:
        as_json({"ok": all(f.ok for f in findings), "findings": [asdict(f) for f in findings]})
    else:
        table(("check", "", "detail"), [(f.name, "ok" if f.ok else "FAULT", f.detail) for f in findings])
    if not all(f.ok for f in findings):
        raise typer.Exit(1)
