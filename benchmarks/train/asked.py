"""Files of questions with their first hits, one a line: the project's environment and that of torch read them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Asked: TypeAlias = dict[str, Any]


def read(file: Path) -> list[Asked]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def used(files: Sequence[Path], language: str | None) -> list[Asked]:
    """Questions that have hits, in one language or in one that their set does not name."""
    every = [one for file in files for one in read(file) if one["hits"]]
    return [one for one in every if language is None or one["language"] in (None, language)]


def write(file: Path, asked: Iterable[Asked]) -> None:
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in asked)
