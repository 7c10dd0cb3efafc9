"""Query parameters that all lists share, and responses that skip a second validation."""

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
    """Returns the order, page size and cursor of a list request."""
    return Listing(order, limit, cursor)


InListing = Annotated[Listing, Depends(listing)]


def answer(body: Any, headers: dict[str, str] | None = None) -> Response:
    """Returns a response of a rendered body without validating it again. Tests check every answer
    against its schema."""
    return written(orjson.dumps(body), headers)


def written(body: bytes, headers: dict[str, str] | None = None) -> Response:
    """Returns a response of a body that is JSON already."""
    return Response(body, 200, headers, "application/json") if headers else _Plain(body)


class _Plain(Response):
    """A 200 response without extra headers. It skips the framework's general handling of headers."""

    def __init__(self, body: bytes) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
