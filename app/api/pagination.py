"""Query parameters that every list shares, and answers that need no second validation."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Query, Response

from app.storage.repository import Listing

Limit = Annotated[int, Query(ge=1, le=100, description="Most items on a page.")]
Cursor = Annotated[str | None, Query(max_length=512, description="`next_cursor` of the page before.")]


async def listing(
    limit: Limit = 20,
    cursor: Cursor = None,
    order: Annotated[Literal["asc", "desc"], Query(description="By creation.")] = "desc",
) -> Listing:
    return Listing(order, limit, cursor)


InListing = Annotated[Listing, Depends(listing)]


def answer(body: Any, headers: dict[str, str] | None = None) -> Response:
    """A rendered body as it is. The tests hold every answer against its schema."""
    return written(orjson.dumps(body), headers)


def written(body: bytes, headers: dict[str, str] | None = None) -> Response:
    """The same of what is JSON already."""
    return Response(body, 200, headers, "application/json") if headers else _Plain(body)


class _Plain(Response):
    """200 without headers of its own, made without what the framework does for any others."""

    def __init__(self, body: bytes) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
