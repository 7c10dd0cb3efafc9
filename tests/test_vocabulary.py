"""One name means one thing: each public type of `app/` is defined once, and no module imports itself in a circle."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def sources() -> dict[str, str]:
    """Module name → text, of all modules of `app/`."""
    paths = sorted((ROOT / "app").rglob("*.py"))
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name.removesuffix(".__init__"): path.read_text(encoding="utf-8") for name, path in named.items()}


def type_names(tree: ast.Module) -> Iterator[str]:
    """Public classes, type aliases and other capitalised names that a module defines, constants aside."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if name[0].isupper() and not name.isupper() and len(name) > 1:
                    yield name


def doubles(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Public type names that several modules define, with these modules."""
    found = defaultdict(list)
    for module, text in modules.items():
        for name in type_names(ast.parse(text)):
            if not name.startswith("_"):
                found[name].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def imports(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Module → modules of `app/` that it imports when it is loaded."""
    graph: dict[str, set[str]] = {}
    for module, text in modules.items():
        named: set[str] = set()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {each if each in modules else node.module for each in inner}
        graph[module] = {each for each in named if each in modules and each not in ("app", module)}
    return graph


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_each_public_type_name_is_defined_once() -> None:
    assert doubles(sources()) == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    assert cycle(imports(sources())) == []


@pytest.mark.parametrize("text", ["class Line: ...", "Line: TypeAlias = str", "Line = dict[str, int]"])
def test_the_check_finds_a_name_that_two_modules_define(text: str) -> None:
    assert doubles({"app.a": "class Line:\n    pass", "app.b": text}) == {"Line": ["app.a", "app.b"]}
    assert doubles({"app.a": "class _Line: ...", "app.b": "class _Line: ...", "app.c": "LINE = 1"}) == {}


def test_the_check_finds_a_circle() -> None:
    modules = {"app.a": "from app.b import B", "app.b": "from app import c", "app.c": "from app.a import A"}
    assert set(cycle(imports(modules))) == {"app.a", "app.b", "app.c"}
