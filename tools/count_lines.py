"""Counts the lines of code of the project's Python files, by folder: no blank lines, comments or docstrings.

    .venv/bin/python tools/count_lines.py [FOLDER …] [--depth 1]

A line counts as an import when it belongs to an import statement, and as code when it holds any other token. Every
statement that is only a string counts as a docstring, so the note under a constant does, too. The default folders are
those with code: `app`, `scripts`, `benchmarks`, `tools`, `tests` and `clients`.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "scripts", "benchmarks", "tools", "tests", "clients")
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count(source: str) -> Counter[str]:
    """Lines of `source`: `code`, `imports` and `all`."""
    docstrings, imports = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_lines(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(_lines(node))
    used = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            used.update(range(token.start[0], token.end[0] + 1))
    code = used - docstrings
    return Counter(code=len(code - imports), imports=len(code & imports), all=len(source.splitlines()), files=1)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count_folders(paths: list[Path], depth: int) -> dict[str, Counter[str]]:
    """By the first `depth` parts of each file's folder below the root."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in paths:
        for file in sorted(path.rglob("*.py")):
            if "node_modules" not in file.parts:
                folder = "/".join(file.relative_to(ROOT).parent.parts[:depth])
                found[folder].update(count(file.read_text(encoding="utf-8")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / name for name in FOLDERS])
    parser.add_argument("--depth", type=int, default=1, help="parts of a folder's path to count by")
    options = parser.parse_args()
    found = count_folders([folder.resolve() for folder in options.folders], options.depth)
    print(f"{'':32}{'files':>7}{'code':>8}{'imports':>9}{'both':>8}{'all lines':>11}")
    for folder, lines in (*found.items(), ("total", sum(found.values(), Counter[str]()))):
        both = lines["code"] + lines["imports"]
        print(f"{folder:32}{lines['files']:7}{lines['code']:8,}{lines['imports']:9,}{both:8,}{lines['all']:11,}")


if __name__ == "__main__":
    main()
