"""`recalld keys create | list | revoke | rotate`."""

import re
from datetime import timedelta
from typing import Annotated

import typer

from app.auth.keys import Keys, NewKey
from app.cli._common import AsJson, as_json, on_store, table
from app.core.clock import SystemClock
from app.errors import invalid
from app.lifespan import keys_made
from app.settings import Settings
from app.storage.schema import Doc

app = typer.Typer(no_args_is_help=True, help="API keys: make, list, revoke, rotate.")

_LIFETIME = re.compile(r"(\d{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


@app.command()
def create(  # noqa: PLR0913 (options)
    tenant: Annotated[str, typer.Option(help="Whose data the key opens.")],
    name: Annotated[str, typer.Option(help="What it is for.")],
    verbs: Annotated[str, typer.Option(help="Some of read,write,admin.")] = "read,write",
    agent: Annotated[list[str] | None, typer.Option(help="Bind it to this agent; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Bind it to this user; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option(help="Lifetime, such as 90d, 12h or 30m.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Requests a second; default: as the setting says.")] = None,
    as_json_: AsJson = False,
) -> None:
    """Make a key. It is shown this once."""
    named = [verb.strip() for verb in verbs.split(",") if verb.strip()]
    new = NewKey(tenant, name, named, agent or (), user or (), _lifetime(expires), rate)
    result = on_store(lambda store: Keys(store, SystemClock()).create(new))
    keys_made(Settings()).note()
    _show(result, as_json_=as_json_)


def _show(result: tuple[str, Doc], *, as_json_: bool) -> None:
    key, record = result
    if as_json_:
        as_json({"key": key, **record})
    else:
        print(key)
        typer.echo("Keep it: it is not shown again.", err=True)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None, as_json_: AsJson = False
) -> None:
    """Every key ever made, without its secret."""
    records = on_store(lambda store: Keys(store, SystemClock()).list(tenant))
    if as_json_:
        as_json({"items": records})
    else:
        table(("id", "tenant", "name", "verbs", "bound to", "expires", "revoked"), [_row(r) for r in records])


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The id, as listed.")], as_json_: AsJson = False) -> None:
    """Take a key back; the next request with it is refused."""
    record = on_store(lambda store: Keys(store, SystemClock()).revoke(key_id))
    if as_json_:
        as_json(record)
    else:
        print(f"{record['id']} is revoked.")


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The id, as listed.")],
    overlap: Annotated[str, typer.Option(help="How long the old key goes on, such as 7d, 12h or 0m.")] = "24h",
    expires: Annotated[
        str | None, typer.Option(help="Lifetime of the new key; default: as long as the old one's.")
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Make a key of the same rights in place of this one, which goes on for a while. It is shown this once."""
    going_on = _lifetime(overlap)
    assert going_on is not None
    result = on_store(lambda store: Keys(store, SystemClock()).rotate(key_id, going_on, _lifetime(expires)))
    keys_made(Settings()).note()
    _show(result, as_json_=as_json_)


def _lifetime(text: str | None) -> timedelta | None:
    if text is None:
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise invalid("/expires", "must be a number of days, hours or minutes, such as 90d, 12h or 30m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _row(record: Doc) -> tuple[str, ...]:
    bound = [f"agent {a}" for a in record["agents"]] + [f"user {u}" for u in record["users"]]
    return (
        record["id"],
        record["tenant"],
        record["name"],
        ",".join(record["verbs"]),
        ", ".join(bound) or "-",
        record["expires_at"] or "never",
        record["revoked_at"] or "-",
    )
