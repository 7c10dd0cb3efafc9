"""Versions of a store: its layout, the release that wrote it, how an older layout is brought up to date, and what is
said of a newer one.

A layout is how an engine lays out data. A release that adds collections, fields or indexes keeps the layout: engines
add these at the next start, and the release before goes on with the same store. What that release could not read needs
a new layout, with a step that makes it of the layout before.

Example: `STEPS = {3: to_signed_times}` makes 3 the newest layout. A store of layout 2 is brought up to date at the next
start, and a release that knows 2 refuses it from then on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from app import VERSION
from app.errors import StoreUnavailable

S = TypeVar("S")

GUIDE = "docs/operations/upgrading.md"


@dataclass(frozen=True, slots=True)
class Written:
    """What a store says of itself: its layout, and the release that last brought it up to date, if it says so."""

    layout: int
    release: str | None = None

    def __str__(self) -> str:
        by = f"Recalld {self.release}" if self.release else "a release that did not leave its name"
        return f"layout {self.layout}, last started by {by}"


def newest(first: int, steps: Mapping[int, object]) -> int:
    """Returns the newest layout that an engine knows. `first` is the newest one that needs no step."""
    return max(steps, default=first)


def refuse_newer(what: str, written: Written, known: int) -> None:
    """Raises StoreUnavailable if a store has a layout that is not known. `what` names it, as "The store"."""
    if written.layout <= known:
        return
    release = written.release or "of a newer version"
    start = f"Start {written.release} or later" if written.release else "Start the newer release"
    raise StoreUnavailable(
        f"{what} was written by a newer version: Recalld {release} (layout {written.layout}). "
        f"This is Recalld {VERSION}, which knows layouts up to {known}. {start}, or restore a backup from before the "
        f"upgrade ({GUIDE}). "
        "Nothing was changed.",
        retry_after=None,
    )


def due(found: int, steps: Mapping[int, S]) -> Iterator[tuple[int, S]]:
    """Yields the layouts that a store of layout `found` has to go through, each with its step."""
    yield from ((layout, steps[layout]) for layout in sorted(steps) if layout > found)
