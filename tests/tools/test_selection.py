"""Which tests run on MongoDB in CI: the table of the page is the table of the selection, and each module is there."""

from pathlib import Path

import pytest

from tests.support.selection import JOURNEYS, SLOW

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "contributing" / "tests.md"


@pytest.mark.parametrize("module", [*(f"{folder}/{name}" for folder, name in JOURNEYS.items()), *sorted(SLOW)])
def test_a_module_that_is_named_exists(module: str) -> None:
    assert (TESTS / module).is_file()


def test_the_page_names_the_journeys() -> None:
    rows = [
        line.split(" | ")[:2] for line in PAGE.read_text(encoding="utf-8").splitlines() if "the other modules" in line
    ]
    named = {folder.strip("|` ").replace("tests/` itself", "."): module.strip("` ") for folder, module in rows}
    assert named == JOURNEYS
