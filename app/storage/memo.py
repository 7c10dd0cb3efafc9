"""What readers reckon from what an engine hands out more than once, kept with it."""

from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

import numpy as np

S = TypeVar("S")
T = TypeVar("T")


class Memo:
    """Results of pure functions of something that does not change; it goes when that goes."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def get(self, name: str, sources: tuple[Any, ...], make: Callable[[], T]) -> T:
        """`make()`, or what it returned for the very same `sources`: arrays by identity, anything else by value."""
        cached = self._held.get(name)
        if cached is None or not _all_same(cached[0], sources):
            cached = self._held[name] = (sources, make())
        found: T = cached[1]
        return found

    def once(self, name: str, make: Callable[[S], T], source: S) -> T:
        """`make(source)`, or what it returned before: `source` is what this is kept with."""
        cached = self._held.get(name)
        if cached is None:
            cached = self._held[name] = ((), make(source))
        found: T = cached[1]
        return found


def _all_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Most often all are identical: then `same` is not called."""
    return len(one) == len(other) and (all(map(is_, one, other)) or all(map(same, one, other)))


def same(one: Any, other: Any) -> bool:
    """Arrays by identity, anything else by value."""
    return one is other or (not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other)
