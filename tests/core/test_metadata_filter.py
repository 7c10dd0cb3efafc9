"""What a filter on metadata costs: the metadata is read once, however many conditions there are."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.metadata_filter import MOST_CONDITIONS, condition_of, matches
from app.core.work import ASKED_AT_ONCE, taken_by


class Counted(list[Any]):
    """A list that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        return super().__iter__()


@pytest.mark.parametrize("operator", ["contains", "icontains"])
def test_a_long_list_is_read_once_for_all_conditions(operator: str) -> None:
    guests = Counted(["Ann", "Bob"] * 10)
    asked: dict[str, JsonValue] = {
        "OR": [{"guests": {operator: f"guest {number}"}} for number in range(MOST_CONDITIONS)]
    }
    assert not matches(condition_of(asked), {"metadata": {"guests": guests}})
    assert guests.reads == 1
    name = "bob" if operator == "icontains" else "Bob"
    assert matches(condition_of({"guests": {operator: name}}), {"metadata": {"guests": guests}})


def test_a_value_is_compared_once_with_all_that_are_wanted() -> None:
    size = Counted([1, 2])
    asked: dict[str, JsonValue] = {"NOT": [{"size": {"eq": [number]}} for number in range(MOST_CONDITIONS)]}
    assert matches(condition_of(asked), {"metadata": {"size": size}})
    assert size.reads == 1


@pytest.mark.anyio
async def test_many_documents_are_asked_beside_the_event_loop() -> None:
    asked_in = set[int]()

    def keep(number: int) -> bool:
        asked_in.add(threading.get_ident())
        return number % 2 == 0

    assert await taken_by(keep, range(ASKED_AT_ONCE)) == [True, False] * (ASKED_AT_ONCE // 2)
    assert asked_in == {threading.get_ident()}, "a few are not worth a thread"
    asked_in.clear()
    assert (await taken_by(keep, range(ASKED_AT_ONCE + 1)))[-1]
    assert threading.get_ident() not in asked_in
