"""Runs one benchmark: `python -m benchmarks NAME [options]`. `NAME --help` says what it measures.

Every benchmark prints Markdown tables and takes `--json FILE`. The exit code is 1 when a figure misses its target.
"""

import argparse
import ast
import importlib
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.cli._common import file_or_folder
from benchmarks.harness import Section

FOLDER = Path(__file__).parent


def summaries() -> dict[str, str]:
    """First docstring lines of the modules and packages that are benchmarks, by name. Nothing is imported."""
    files = {path.stem: path for path in FOLDER.glob("*.py")} | {
        path.parent.name: path for path in FOLDER.glob("*/__init__.py")
    }
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sorted(files.items())}
    return {
        name: (ast.get_docstring(tree) or "").splitlines()[0]
        for name, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "add_options" for node in tree.body)
    }


def hardware() -> str:
    cores, busy = os.cpu_count(), os.getloadavg()[0]
    return f"{platform.machine()}, {cores} cores, load {busy:.1f}, Python {platform.python_version()}"


def main(arguments: Sequence[str]) -> int:
    names = summaries()
    listed = "\n".join(f"  {name:14} {line}" for name, line in names.items())
    if not arguments or arguments[0] not in names:
        print(f"{__doc__}\n{listed}")
        return 0 if arguments in ([], ["-h"], ["--help"]) else 2
    module: Any = importlib.import_module(f"benchmarks.{arguments[0]}")
    parser = argparse.ArgumentParser(
        prog=f"benchmarks {arguments[0]}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.register("type", Path, file_or_folder)  # every option that names a file
    module.add_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    options = parser.parse_args(arguments[1:])
    print(hardware(), flush=True)
    sections: list[Section] = []
    for section in module.run(options):
        sections.append(section)
        print(f"\n{section}", flush=True)
    if options.json:
        given = {name: str(value) for name, value in vars(options).items()}
        figures = {section.title: section.figures or section.rows for section in sections}
        found = {"hardware": hardware(), "options": given, **figures}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(section.met for section in sections) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers that were started end, too
    sys.exit(main(sys.argv[1:]))
