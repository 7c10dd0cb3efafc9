"""What Anthropic's memory tool says of files: paths, lists, lines and changes. Pure.

The words are those that the model knows from the tool's own documentation and SDK.
"""

import posixpath
import unicodedata
from collections.abc import Mapping

ROOT = "/memories"
MOST_KEY = 256
"""Characters of a path."""


class FileRefused(Exception):
    """A command that cannot be done, in the words that the model reads."""


def path_of(given: str) -> str:
    """The path without `.`, `..` and doubled slashes. Raises FileRefused for one outside of /memories."""
    if not given.startswith(ROOT):
        raise FileRefused(f"Path must start with {ROOT}, got: {given}")
    path = posixpath.normpath(unicodedata.normalize("NFC", given))
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise FileRefused(f"Path {given} would escape {ROOT} directory")
    if len(path) > MOST_KEY or "\0" in path:
        raise FileRefused(
            f"The path {given[:MOST_KEY]} is too long or has a NUL: it has at most {MOST_KEY} characters."
        )
    return path


def listed(given: str, path: str, sizes: Mapping[str, int]) -> str:
    """A folder two levels deep. `sizes`: bytes of each file below it, by path."""
    below = {name.removeprefix(f"{path}/"): size for name, size in sizes.items()}
    entries: list[tuple[str, ...]] = []
    for name in below:
        parts = name.split("/")
        entries += [tuple(parts[: depth + 1]) for depth in range(min(2, len(parts)))]
    lines = [f"{_size(sum(below.values()))}\t{given}"]
    for entry in sorted(set(entries)):
        if not any(part.startswith(".") for part in entry):
            name = "/".join(entry)
            within = sum(size for other, size in below.items() if other.startswith(f"{name}/"))
            shown = name if name in below else f"{name}/"
            lines.append(f"{_size(below.get(name, within))}\t{given}/{shown}")
    head = f"Here're the files and directories up to 2 levels deep in {given}, excluding hidden items:"
    return "\n".join([head, *lines])


def _size(of: int) -> str:
    unit = min((of.bit_length() - 1) // 10, 3) if of else 0
    number = of / 1024**unit
    return f"{int(number)}{'BKMG'[unit]}" if number == int(number) else f"{number:.1f}{'BKMG'[unit]}"


def numbered(given: str, content: str, view_range: list[int] | None) -> str:
    """A file with the numbers of its lines."""
    lines, first = content.split("\n"), 0
    last = len(lines)
    if view_range and len(view_range) == 2:
        first, last = max(1, view_range[0]) - 1, last if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {given} with line numbers:\n{_lines(lines[first:last], first + 1)}"


def replaced(given: str, content: str, old: str, new: str) -> tuple[str, str]:
    """The new content, and what is said of it. Raises FileRefused unless `old` stands there exactly once."""
    count = content.count(old)
    if count == 0:
        raise FileRefused(f"No replacement was performed, old_str `{old}` did not appear verbatim in {given}.")
    if count > 1:
        lines, at = list[str](), content.find(old)
        while at != -1:
            lines.append(str(content.count("\n", 0, at) + 1))
            at = content.find(old, at + 1)
        raise FileRefused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {', '.join(lines)}. "
            "Please ensure it is unique"
        )
    line, changed = content.count("\n", 0, content.find(old)), content.replace(old, new)
    first, near = max(0, line - 2), changed.split("\n")[max(0, line - 2) : line + 3]
    head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return changed, f"{head}\n{_lines(near, first + 1)}"


def inserted(content: str, line: int, text: str) -> str:
    """The new content. Raises FileRefused for a line that is not there."""
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not 0 <= line <= len(lines):
        raise FileRefused(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    lines.insert(line, text.rstrip("\n"))
    changed = "\n".join(lines)
    return changed if changed.endswith("\n") else f"{changed}\n"


def _lines(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, start=first))
