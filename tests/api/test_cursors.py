"""A cursor that nobody was given is a 400, whatever it holds: the seal can be computed by anyone who reads the code."""

import random
from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest

from app.errors import InvalidCursor
from app.lifespan import COLLECTIONS
from app.storage.repository import Listing, Repository, open_cursor, seal_cursor
from app.storage.schema import EVERYTHING, After, Collection
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.bad_input import url
from tests.support.contract import Contract

pytestmark = pytest.mark.anyio
WRONG: list[Any] = [None, True, 1.5, [], {}, "text", "", 2**63, 2**64 - 1, [1, 2, 3], "\x00"]
TENANT = "default"


def forged() -> list[str]:
    """Random bytes, and contents of every type in the right encoding."""
    noise = random.Random(7)
    raw = [noise.randbytes(size) for size in (1, 7, 8, 9, 40, 300)]
    raw += [b"\x00" * 8 + orjson.dumps([value, "x"]) for value in WRONG]
    raw += [b"\x00" * 8 + text for text in (b"[NaN,1]", b"[1e999,1]", b"9" * 300, b"[" * 300, b'["\\ud800",""]')]
    return [urlsafe_b64encode(one).decode().rstrip("=") for one in raw] + ["%", "ключ", "=", "A"]


def is_list(op_parameters: list[dict[str, object]]) -> bool:
    return any(parameter["name"] == "cursor" for parameter in op_parameters)


async def test_every_list_refuses_forged_cursors(service: Service) -> None:
    lists = [op for op in Contract(service.app).operations() if op.method == "GET" and is_list(op.parameters("query"))]
    assert len(lists) > 10
    wrong = []
    for operation in lists:
        for cursor in forged():
            needed = {p["name"]: "x" for p in operation.parameters("query") if p.get("required")}
            answered = await service.client.get(url(operation), params={**needed, "cursor": cursor})
            nowhere = {404} if "{" in operation.path else set()  # a list of a record that is not there
            if answered.status_code not in {400, 422, *nowhere}:
                wrong.append((operation.name, cursor, answered.status_code))
    assert wrong == []


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda one: one.name)
async def test_a_well_sealed_cursor_of_a_wrong_type_is_refused(service: Service, collection: Collection) -> None:
    records = Repository(service.resources.store, Scope(TENANT), collection)
    request = repr((TENANT, collection.name, "desc", "m"))
    right: str | int = 1 if collection.place is int else "2030-01-01T00:00:00.000000Z"
    await records.page(
        EVERYTHING, Listing(order="desc", limit=2, cursor=seal_cursor(After(right, "x"), request)), request="m"
    )
    other: str | int = "1" if collection.place is int else 1
    for value in (other, 2**63, 2**64 - 1):
        with pytest.raises(InvalidCursor):
            await records.page(
                EVERYTHING, Listing(order="desc", limit=2, cursor=seal_cursor(After(value, "x"), request)), request="m"
            )


def test_a_text_where_a_number_belongs_is_no_cursor() -> None:
    with pytest.raises(InvalidCursor):
        open_cursor(seal_cursor(After("many", "x"), "m"), "m", int)


PLACES: dict[str, tuple[str, str, type]] = {
    "changes": ("/v1/changes?after=", repr((TENANT, "changes")), int),
    "users": ("/v1/users?cursor=", repr((TENANT, "user_id", "desc")), str),
}
"""Lists that seal their cursors themselves: path, request, and the type of the position."""


@pytest.mark.parametrize("name", PLACES)
async def test_well_sealed_forgeries_of_other_lists_are_refused(service: Service, name: str) -> None:
    path, request, kind = PLACES[name]
    right: str | int = 1 if kind is int else "u"
    accepted = await service.client.get(path + seal_cursor(After(right, "u"), request))
    assert accepted.status_code in (200, 410), "the request is the right one"
    wrong: list[Any] = ["1" if kind is int else 1, 2**63, 2**64 - 1]
    for value in wrong:
        refused = await service.client.get(path + seal_cursor(After(value, "u"), request))
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor"), value
