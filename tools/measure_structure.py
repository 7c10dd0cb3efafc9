"""Measures what a reader of `app/` has to carry along: names of other modules, lines, answers declared twice, and words
about versions before the first release.

    .venv/bin/python tools/measure_structure.py [CHECKOUT …]

Give two checkouts to compare two revisions. A name counts once for each import of it (`from app.errors import invalid,
NotFound` are two). An answer is declared twice when a `TypedDict` and a pydantic class have the same fields.
"""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAST = re.compile(
    r"(?i)\b(?:earlier|older|former|previous) (?:versions?|releases?)\b"
    r"(?! of (?:a |the |this )?(?:record|memory|fact|text))"
    r"|\buntil now\b|\bstores of before\b"
)
READ_FOR_PAST = ("app/**/*.py", "README.md", "docs/concepts/*.md", "docs/guides/*.md", "docs/operations/*.md")
LAYOUT = frozenset(
    {
        "app/storage/sqlite/schema.py",  # in earlier revisions
        "app/storage/sqlite/sql.py",
        "app/storage/mongo/schema.py",
        "docs/operations/upgrading.md",
    }
)
"""Where the mechanism for later layouts speaks of versions."""


def imported_names(source: str) -> int:
    """Returns how many names of other modules of `app` a module imports."""
    nodes = ast.walk(ast.parse(source))
    return sum(
        len(node.names)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "app"
    )


def declared_twice(sources: list[str]) -> list[tuple[str, str]]:
    """Returns the pairs of a `TypedDict` and a pydantic class that have the same two or more fields, by name."""
    bases, own = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases]
                own[node.name] = {
                    part.target.id
                    for part in node.body
                    if isinstance(part, ast.AnnAssign)
                    and isinstance(part.target, ast.Name)
                    and "ClassVar" not in ast.unparse(part.annotation)
                }

    def above(name: str) -> set[str]:
        return {name}.union(*(above(base) for base in bases.get(name, ())))

    def fields(name: str) -> frozenset[str]:
        return frozenset[str]().union(*(own.get(part, set()) for part in above(name))) - {"elsewhere"}

    dictionaries = [name for name in own if "TypedDict" in above(name) and len(fields(name)) > 1]
    models = [name for name in own if above(name) & {"Schema", "BaseModel"}]
    return [(a, b) for a in dictionaries for b in models if fields(a) == fields(b)]


def measure(checkout: Path) -> dict[str, str]:
    """Returns the figures of a checkout by what they are called in the table."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((checkout / "app").rglob("*.py"))]
    lines = sum(source.count("\n") for source in sources)
    names = sum(map(imported_names, sources))
    past = [
        path
        for pattern in READ_FOR_PAST
        for path in checkout.glob(pattern)
        if str(path.relative_to(checkout)) not in LAYOUT
        for _ in PAST.finditer(path.read_text(encoding="utf-8"))
    ]
    return {
        "modules of app/": f"{len(sources):,}",
        "lines of app/": f"{lines:,}",
        "own names imported for 100 lines": f"{100 * names / lines:.2f}",
        "answers declared twice": str(len(declared_twice(sources))),
        "words about versions before the first release": str(len(past)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    figures = [measure(checkout) for checkout in parser.parse_args().checkouts]
    for name in figures[0]:
        print(f"{name:48}" + "".join(f"{column[name]:>12}" for column in figures))


if __name__ == "__main__":
    main()
