"""The pairs of statements that a judge is taught: their shape, and that none stands twice."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.train.worlds import STATEMENTS, statements

FILES = sorted(STATEMENTS.glob("*.jsonl"))
CHANGES = {"replaces", "corrects"}
KINDS = CHANGES | {"agrees", "adds", "unrelated"}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_each_statement_has_six_later_ones_of_which_two_change_it(file: Path) -> None:
    for line in file.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        (date, earlier), later = item["earlier"], item["later"]
        assert earlier.strip()
        does = [kind for kind, _, _ in later]
        assert len(later) == 6
        assert KINDS.issuperset(does)
        assert sum(kind in CHANGES for kind in does) == 2
        assert all(day >= date and text.strip() for _, day, text in later)


def test_no_pair_stands_twice() -> None:
    pairs = Counter((pair.earlier, pair.later) for pair in statements(STATEMENTS))
    assert len(pairs) == 6_000
    assert max(pairs.values()) == 1
