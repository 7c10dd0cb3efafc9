"""The counter of code lines."""

from tools.count_lines import count

SOURCE = '''"""A module.

Two lines more."""

import os
from pathlib import (
    Path,
)

LIMIT = 3
"""A note under a constant."""


def call() -> str:
    """Says."""
    # a comment
    return f"""{os.sep}
{Path()}"""
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    found = count(SOURCE)
    assert (found["imports"], found["code"], found["all"]) == (4, 4, 18)
