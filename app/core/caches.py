"""Caches of results for what callers send: words, texts, queries. Each is bounded in bytes, whatever is sent.

    @kept(8 << 20, longest=64)
    def fold(word: str) -> str: ...

    @kept_by_digest(8 << 20, lambda words: 100 * len(words))
    def words_of(text: str) -> frozenset[str]: ...

A number of entries alone bounds nothing: a caller may send 2,000 queries of 32,000 characters each.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from hashlib import blake2b
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
P = ParamSpec("P")

ENTRY_BYTES = 300
"""What an entry takes beside its text and its result: the links of the cache, the key, the headers of objects."""
CHARACTER_BYTES = sys.getsizeof("\U0001f600" * 2) - sys.getsizeof("\U0001f600")
"""Of the widest ones: 4."""


made: list[Any] = []
"""Every `lru_cache` that `kept` made."""


class ByteCache(Generic[K, V]):
    """The values that were used last, at most `most_bytes` of them with their keys. Threads may share it.

    vectors = ByteCache[bytes, Vectors](1 << 20, lambda digest, vector: vector.nbytes)
    vectors.get(digest) or vectors.keep(digest, made)
    """

    def __init__(self, most_bytes: int, size: Callable[[K, V], int]) -> None:
        """`size` returns the bytes of a key and its value, without `ENTRY_BYTES`."""
        self._most, self._size = most_bytes, size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: K) -> V | None:
        """Returns the value, or None if it is not kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def keep(self, key: K, value: V) -> V:
        """Keeps the value, unless it is larger than the whole cache, and returns it."""
        size = self._bytes_of(key, value)
        with self._lock:
            if size <= self._most and key not in self._values:
                self._values[key] = value
                self.bytes += size
            while self.bytes > self._most:
                self.bytes -= self._bytes_of(*self._values.popitem(last=False))
        return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def _bytes_of(self, key: K, value: V) -> int:
        return ENTRY_BYTES + self._size(key, value)


class KeptFunction(Protocol[P, V_co]):
    """A function whose results are kept. `forget` drops them."""

    def __call__(self, text: str, *args: P.args, **kwargs: P.kwargs) -> V_co: ...

    def forget(self) -> None: ...


def kept(most_bytes: int, *, longest: int) -> Callable[[Callable[Concatenate[str, P], V]], KeptFunction[P, V]]:
    """Keeps the results of a function of a short text, for as many texts as fit if each is the longest. The result may
    be as large as the text. It is computed anew for texts of more than `longest` characters.

    This is nearly as fast as `lru_cache`, and is for what is asked for each word.
    """
    entries = most_bytes // (ENTRY_BYTES + 2 * CHARACTER_BYTES * longest)

    def keeping(function: Callable[Concatenate[str, P], V]) -> KeptFunction[P, V]:
        cached: Any = lru_cache(maxsize=entries)(function)

        def read(text: str, *args: P.args, **kwargs: P.kwargs) -> V:
            result: V = cached(text, *args, **kwargs) if len(text) <= longest else function(text, *args, **kwargs)
            return result

        made.append(cached)
        reading: Any = wraps(function)(read)
        reading.forget = cached.cache_clear
        result: KeptFunction[P, V] = reading
        return result

    return keeping


def kept_by_digest(
    most_bytes: int, size: Callable[[Any], int]
) -> Callable[[Callable[Concatenate[str, P], V]], KeptFunction[P, V]]:
    """Keeps the results of a function of a text of any length. The text itself is not kept. `size` returns the bytes of
    a result, which is never None."""

    def keeping(function: Callable[Concatenate[str, P], V]) -> KeptFunction[P, V]:
        cache = ByteCache[Hashable, V](most_bytes, lambda _, result: size(result))

        @wraps(function)
        def read(text: str, *args: P.args, **kwargs: P.kwargs) -> V:
            key = (digest(text), args, tuple(kwargs.items()))
            result = cache.get(key)
            return cache.keep(key, function(text, *args, **kwargs)) if result is None else result

        read.forget = cache.clear  # type: ignore[attr-defined]
        return read  # type: ignore[return-value]

    return keeping


def digest(text: str) -> bytes:
    """Returns a key of 16 bytes for a text of any length. It takes a microsecond, and one more for each kilobyte."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
