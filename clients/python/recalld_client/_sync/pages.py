# Made from _async/pages.py by scripts/generate_clients.py; do not edit.
"""Lists of the service, item by item."""

from collections.abc import Iterator, Callable
from typing import Any


def items(page: Callable[..., Any], **filters: Any) -> Iterator[Any]:
    """Fetches page after page and yields what is in them. `filters` go with each request."""
    cursor: str | None = None
    while True:
        got = page(**filters, cursor=cursor)
        for item in got["items"]:
            yield item
        cursor = got.get("next_cursor")
        if cursor is None:
            return
