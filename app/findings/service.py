"""Lists and dismisses findings. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Mapping
from typing import Any

from app.core.clock import Clock, rfc3339
from app.errors import Conflict
from app.findings.repository import FindingRepository
from app.storage.filters import Eq, both
from app.storage.repository import Listing
from app.storage.schema import Doc
from app.writes.executor import IfMatch, WriteResult, etag


class FindingService:
    """The operations on findings within a caller's scope."""

    def __init__(self, findings: FindingRepository, clock: Clock) -> None:
        self._findings, self._clock = findings, clock

    async def get(self, finding_id: str) -> Doc:
        """Returns a finding with its evidence. Raises NotFound."""
        return await self._shown(await self._findings.get(finding_id))

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns a page of findings that match the filters. A page of open findings may have fewer items than its
        limit: those whose evidence no longer stands are left out."""
        where = both(
            *(Eq(name, value) for name, value in filters.items() if name != "status" and value is not None),
            None if filters["status"] == "any" else Eq("status", filters["status"]),
        )
        docs, cursor = await self._findings.page(where, listing, mark=repr(sorted(filters.items())))
        items = await self._findings.render(docs, rfc3339(self._clock.now()))
        if filters["status"] == "open":
            items = [one for one in items if one["status"] == "open"]
        return {"items": items, "next_cursor": cursor}

    async def open_one(self, finding_id: str, precondition: IfMatch) -> Doc:
        """Returns an open finding as it is stored, for a caller that settles it. Raises NotFound, Forbidden, and
        Conflict if it is settled or its evidence no longer stands."""
        doc = await self._findings.get(finding_id)
        self._findings.require_write(doc)
        precondition.check(doc)
        shown = await self._shown(doc)
        if shown["status"] != "open":
            raise Conflict(f"This finding is not open: it is {shown['status']}.")
        return doc

    async def dismiss(self, finding_id: str, precondition: IfMatch) -> WriteResult:
        """Settles a finding without any other change. It is not found again as long as its evidence stays as it is."""
        doc, now = await self.open_one(finding_id, precondition), rfc3339(self._clock.now())
        change = self._findings.settle(doc, "dismissed", self._findings.scope.key_id, now)
        after = doc | change.set | {"version": doc["version"] + 1}
        return WriteResult(await self._shown(after), [change], headers={"ETag": etag(after)})

    async def _shown(self, doc: Doc) -> Doc:
        (shown,) = await self._findings.render([doc], rfc3339(self._clock.now()))
        return shown
