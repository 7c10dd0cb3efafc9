"""Measures how readable the code is: sizes of functions and modules, helpers used once, untyped records.

    .venv/bin/python tools/measure_functions.py [FOLDER …]

A function's size is the number of lines of its body that hold code: no blank lines, comments or docstring. A private
function counts as used once when its name occurs once in its module besides its definition, and as one statement when
its body is one. A parameter or a return is untyped when `dict[str, Any]`, `Mapping[str, Any]` or an alias (`Doc`)
stands anywhere in its annotation. The names counted are those of variables and parameters that do not tell what they
hold, such as `one`.
"""

import argparse
import ast
import io
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
UNTYPED = ("dict[str, Any]", "Mapping[str, Any]", "MutableMapping[str, Any]", "Doc")
SAY_NOTHING = ("one", "found", "each", "said", "thing")
CAP = range(301, 351)
"""Lines of a module that a limit of 350 lines has cut."""


class Function:
    """A function of a module: its node, and the figures of its body."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef, code_lines: set[int], names: Counter[str]) -> None:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        self.lines = sum(
            line in code_lines for part in body for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
        )
        self.private = node.name.startswith("_") and not node.name.startswith("__")
        self.used_once = self.private and names[node.name] == 2
        self.one_statement = len(body) <= 1
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.untyped = sum(_is_untyped(parameter.annotation) for parameter in parameters)
        self.returns_untyped = _is_untyped(node.returns)


def _is_untyped(annotation: ast.expr | None) -> bool:
    """`list[Doc] | None` is; `dict[str, int]` is not."""
    if annotation is None:
        return False
    return any(ast.unparse(node) in UNTYPED for node in ast.walk(annotation) if isinstance(node, ast.expr))


def functions_of(source: str) -> Iterator[Function]:
    """Yields the functions and methods of a module, nested ones, too."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    names = Counter(token.string for token in tokens if token.type == tokenize.NAME)
    code_lines = {
        line for token in tokens if token.type not in SKIPPED for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node, code_lines, names)


def names_that_say_nothing(source: str) -> Counter[str]:
    """Counts the names in code; the words of comments and docstrings do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.NAME and token.string in SAY_NOTHING)


def measure(sources: list[str]) -> dict[str, float]:
    """Returns the figures of some modules by what they are called in the table."""
    functions = [function for source in sources for function in functions_of(source)]
    names = sum(map(names_that_say_nothing, sources), Counter[str]())
    sizes = [function.lines for function in functions]
    private = [function for function in functions if function.private]
    return {
        "functions": len(functions),
        "median lines": statistics.median(sizes),
        "90th percentile": statistics.quantiles(sizes, n=10)[-1],
        "private": len(private),
        "private, used once": sum(function.used_once for function in private),
        "of these one statement": sum(function.used_once and function.one_statement for function in private),
        "untyped parameters": sum(function.untyped for function in functions),
        "untyped returns": sum(function.returns_untyped for function in functions),
        "modules": len(sources),
        "modules of 301 to 350 lines": sum(len(source.splitlines()) in CAP for source in sources),
        **{f"`{name}`": names[name] for name in SAY_NOTHING},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "app"])
    sources = [
        file.read_text(encoding="utf-8")
        for folder in parser.parse_args().folders
        for file in sorted(folder.resolve().rglob("*.py"))
    ]
    for name, figure in measure(sources).items():
        print(f"{name:32}{figure:10,.0f}")


if __name__ == "__main__":
    main()
