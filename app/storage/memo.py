"""Memoizes what readers compute from objects that an engine returns more than once."""

from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

import numpy as np

S = TypeVar("S")
T = TypeVar("T")


class Memo:
    """Results of pure functions of an immutable object. It is stored with that object and freed with it."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def get(self, name: str, sources: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Returns `make()`, or its previous result for the same `sources`: arrays compare by identity, others by
        value."""
        cached = self._held.get(name)
        if cached is None or not _all_same(cached[0], sources):
            cached = self._held[name] = (sources, make())
        found: T = cached[1]
        return found

    def once(self, name: str, make: Callable[[S], T], source: S) -> T:
        """Returns `make(source)`, or its previous result. `source` is the object that owns this memo."""
        cached = self._held.get(name)
        if cached is None:
            cached = self._held[name] = ((), make(source))
        found: T = cached[1]
        return found


def _all_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Returns whether all pairs are the same. Usually all are identical, and `same` is not called."""
    return len(one) == len(other) and (all(map(is_, one, other)) or all(map(same, one, other)))


def same(one: Any, other: Any) -> bool:
    """Returns whether both are the same array, or equal values."""
    return one is other or (not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other)
