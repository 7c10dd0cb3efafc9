"""Which tests run when: the table of the page is the table of the selection, and each module is there."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.selection import JOURNEYS, LONG, ON_ATLAS, ON_BOTH, PROCESS_JOURNEYS, starters

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "contributing" / "tests.md"


@pytest.mark.parametrize(
    "module", [*(f"{folder}/{name}" for folder, name in JOURNEYS.items()), *sorted(ON_ATLAS | ON_BOTH)]
)
def test_a_module_that_is_named_exists(module: str) -> None:
    assert (TESTS / module).is_file()


def test_each_test_that_is_named_exists() -> None:
    missing = []
    for test in LONG | PROCESS_JOURNEYS:
        module, _, name = test.partition("::")
        if f"def {name}" not in (TESTS / module).read_text(encoding="utf-8"):
            missing.append(test)
    assert not missing, "renamed or deleted: so are the lines of tests/support/long_tests.txt"


def test_what_starts_a_process_by_a_fixture_or_a_helper_is_found() -> None:
    module = ModuleType("module")
    source = """
import subprocess, sys
from contextlib import contextmanager
import pytest

@contextmanager
def started():
    yield (lambda: subprocess.run([sys.executable, "-V"]))

@pytest.fixture
def served():
    with started() as made:
        yield made

class Client:
    def start(self):
        return started()

def test_by_a_fixture(served): ...
def test_by_a_class():
    assert Client
def test_without(tmp_path):
    assert sys
"""
    exec(source, vars(module))
    assert starters(module) == {"subprocess", "started", "served", "Client", "test_by_a_fixture", "test_by_a_class"}


def test_the_page_names_the_journeys() -> None:
    rows = [
        line.split(" | ")[:2] for line in PAGE.read_text(encoding="utf-8").splitlines() if "the other modules" in line
    ]
    named = {folder.strip("|` ").replace("tests/` itself", "."): module.strip("` ") for folder, module in rows}
    assert named == JOURNEYS
