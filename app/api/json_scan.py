"""A scan of a JSON body while it arrives: depth and number of values, before anything is parsed."""

from collections.abc import Iterator

import numpy as np

from app.errors import Invalid
from app.setting_groups import LimitSettings

SLICE = 16 << 10
"""Bytes that are looked at together. What breaks a limit is noticed within so many bytes of the place."""

_BRACKETS = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", 255)}  # 255 is -1 as int8
_STEPS = bytes(_BRACKETS.get(byte, 0) for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)


class JsonScan:
    """Follows a body from piece to piece, in less than 10 ms a megabyte, and raises Invalid where it breaks a limit.

    It finds brackets and commas outside of texts, and knows no other grammar. What it takes for a text in a body that
    is not JSON does not matter: the parser stops at the same place.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._depth = self._values = 0
        self._in_text = self._escaped = False
        """Whether the last piece ended in a text, and whether it ended with a backslash that escapes what follows."""

    def feed(self, piece: bytes) -> None:
        """Scans the next piece of the body. Raises Invalid."""
        for part in _slices(piece):
            self._feed(part)

    def _feed(self, piece: bytes) -> None:
        structure = self._outside_texts(self._without_escapes(piece))
        steps = np.frombuffer(structure.translate(_STEPS, _NO_BRACKETS), np.int8)
        depths = np.cumsum(steps, dtype=np.int32)
        if self._depth + int(depths.max(initial=0)) > self._limits.json_depth:
            raise too_deep(self._limits)
        self._depth += int(depths[-1]) if len(depths) else 0
        self._values += structure.count(b",") + int(np.count_nonzero(steps > 0))
        if self._values > self._limits.json_values:
            raise Invalid(f"The body holds more than {self._limits.json_values} values.")

    def _without_escapes(self, piece: bytes) -> bytes:
        """Drops backslashes with what they escape, as an escaped quote ends no text."""
        if self._escaped:
            self._escaped, piece = False, piece[1:]
        if b"\\" not in piece:
            return piece
        self._escaped = (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1
        return piece.replace(b"\\\\", b"").replace(b'\\"', b"")

    def _outside_texts(self, piece: bytes) -> bytes:
        """Returns what is outside of texts: every second part between quotes."""
        parts = piece.split(b'"')
        outside = parts[1 if self._in_text else 0 :: 2]
        self._in_text ^= len(parts) % 2 == 0
        return b"".join(outside)


def too_deep(limits: LimitSettings) -> Invalid:
    """Returns the error of a body that is nested too deep."""
    return Invalid(f"The body is nested deeper than {limits.json_depth} levels.")


def _slices(piece: bytes) -> Iterator[bytes]:
    if len(piece) <= SLICE:
        yield piece
        return
    for start in range(0, len(piece), SLICE):
        yield piece[start : start + SLICE]
