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
    r"(?i)(?<!their )(?<!its )\b(?:earlier|older|previous) (?:versions?|releases?)\b"
    r"(?! of (?:a |the |this )?(?:record|memory|fact|text|procedure))"
    r"|\buntil now\b|\bstores of before\b"
)
"""Of the service. Records have versions, too: `their earlier versions`, `earlier versions of a procedure`."""
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
    """Returns the pairs of a `TypedDict` and a pydantic class that have the same two or more fields, by name, where the
    class is part of an answer: an endpoint names it (`Answer[…]`, `response_model=…`), or what it names does."""
    bases, own = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    mentioned, answers = defaultdict[str, set[str]](set), set[str]()
    for source in sources:
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases]
                fields_of = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                own[node.name] = {
                    part.target.id
                    for part in fields_of
                    if isinstance(part.target, ast.Name) and "ClassVar" not in ast.unparse(part.annotation)
                }
                mentioned[node.name] |= {*bases[node.name]}.union(*(names_in(part.annotation) for part in fields_of))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                mentioned[node.targets[0].id] |= names_in(node.value)
        for found in ast.walk(tree):
            if isinstance(found, ast.Subscript) and names_in(found.value) & {"Answer", "Page"}:
                answers |= names_in(found.slice)
            elif isinstance(found, ast.keyword) and found.arg == "response_model":
                answers |= names_in(found.value)
    left = list(answers)
    while left:
        new = mentioned[left.pop()] - answers
        answers |= new
        left += new

    def above(name: str) -> set[str]:
        return {name}.union(*(above(base) for base in bases.get(name, ())))

    def fields(name: str) -> frozenset[str]:
        return frozenset[str]().union(*(own.get(part, set()) for part in above(name))) - {"elsewhere"}

    dictionaries = [name for name in own if "TypedDict" in above(name) and len(fields(name)) > 1]
    models = [name for name in own if name in answers and above(name) & {"Schema", "BaseModel"}]
    return [(a, b) for a in dictionaries for b in models if fields(a) == fields(b)]


def names_in(node: ast.expr) -> set[str]:
    """Returns the names in an expression: `Page[schemas.Memory]` has `Page`, `schemas` and `Memory`."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


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
