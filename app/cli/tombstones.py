"""`recalld forget-tombstones`: the way out where the erasure key is lost."""

from typing import Annotated

import typer

from app.audit import trail
from app.audit.models import ERASED
from app.auth.keys import COMMAND_LINE
from app.cli.output import AsJson, as_json
from app.cli.running import on_store
from app.clock import SystemClock, rfc3339
from app.storage.collection import DeleteWhere, Store
from app.storage.filters import EVERYTHING


def forget_tombstones(tenant: Annotated[str, typer.Option(help="Whose tombstones.")], as_json_: AsJson = False) -> None:
    """Delete a tenant's tombstones, for a store whose erasure key is lost. Nobody can tell any more whom the tenant has
    erased: an import may bring them back."""
    deleted = on_store(lambda store: _forget(store, tenant), existing=True)
    if as_json_:
        as_json({"tenant": tenant, "deleted": deleted})
    else:
        print(f"{deleted} records about erased users of {tenant} are deleted.")


async def _forget(store: Store, tenant: str) -> int:
    """Their number, the tenant's sealed key included."""
    actor = trail.Actor(tenant, COMMAND_LINE, "forget_tombstones")
    number = await store.count(ERASED, tenant)
    noted = trail.entry(actor, rfc3339(SystemClock().now()), None, [], {ERASED.name: {"delete": number}})
    return (await store.commit([DeleteWhere(ERASED, tenant, EVERYTHING), noted])).deleted
