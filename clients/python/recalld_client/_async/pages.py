"""Lists of the service, item by item."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any


async def items(page: Callable[..., Awaitable[Any]], **filters: Any) -> AsyncIterator[Any]:
    """Fetches page after page and yields what is in them. `filters` go with each request."""
    cursor: str | None = None
    while True:
        got = await page(**filters, cursor=cursor)
        for item in got["items"]:
            yield item
        cursor = got.get("next_cursor")
        if cursor is None:
            return
