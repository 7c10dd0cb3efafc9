"""What the first view of a page fetches: its modules together with those of the frame, and each answer once."""

import pytest

from tests.console.conftest import Visit
from tests.console.test_looks import VIEWS

pytestmark = pytest.mark.before_store
FIRST = {"early.js", "console.js"}
"""Named by the document itself."""
DRAWN = {"vendor/uplot.mjs"}
"""Fetched when a chart is drawn, which holds up no text."""
FOUND_LATE = """performance.getEntriesByType("resource")
    .filter((entry) => /\\.m?js$/.test(entry.name) && entry.initiatorType !== "link")
    .map((entry) => entry.name.split("/console/")[1])"""


def test_no_module_of_a_first_view_is_found_by_reading_another(visit: Visit) -> None:
    """A module that `early.js` does not name is asked for when the one that imports it was read."""
    for address, ready in VIEWS.values():
        page = visit.open(address, ready)
        late = set(page.evaluate(FOUND_LATE)) - FIRST - DRAWN
        assert not late, f"early.js does not name {late} for {address}"


def test_a_first_view_asks_nothing_twice(visit: Visit) -> None:
    for address, ready in VIEWS.values():
        visit.open(address, ready)
        assert len(visit.requests) == len(set(visit.requests)), (address, visit.requests)
    assert visit.faults == []
