"""Filters on metadata, as callers send them: plain values, operators on a field, and AND, OR and NOT around filters.

    {"topic": "billing", "priority": {"gte": 3, "lt": 9}}
    {"OR": [{"food": {"in": ["sushi", "soup"]}}, {"NOT": {"place": {"exists": true}}}]}

The names are those of mem0: its callers send these filters as they are. What is an operator elsewhere (`like`, `>`) is
refused with what there is. A value is compared as a whole, an object too: `{"size": {"w": 3}}` asks for exactly this
object. An object of operators alone is no value, and where operators stand deeper, the names above them lead to the
field: `{"size": {"w": {"gte": 3}}}`. `eq` compares with any object, also with one whose keys look like operators.

`matches` defines what a filter means. `memories/search.py` says which part of it the store can decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

import orjson
from pydantic import JsonValue

from app.errors import called_elsewhere, did_you_mean

MOST_CONDITIONS, DEEPEST = 256, 8
"""Conditions of one filter, each value of a list counted; and filters within AND, OR and NOT within each other."""

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
OPERATORS = ("eq", "ne", *_ORDERS, "in", "nin", "not_in", "contains", "icontains", "exists")
LOGIC = ("AND", "OR", "NOT")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Compare:
    """The value at `path` of the metadata, compared by an operator. `values`: one, or those of `in` and `nin`."""

    path: tuple[str, ...]
    operator: str
    values: tuple[Any, ...]
    equal: frozenset[bytes] = field(init=False, compare=False, repr=False)
    """The canonical forms of the values; with `icontains`, of the text in lower case."""

    def __post_init__(self) -> None:
        wanted = [value.casefold() for value in self.values] if self.operator == "icontains" else self.values
        object.__setattr__(self, "equal", frozenset(map(canonical, wanted)))


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    parts: tuple["Condition", ...]


Condition: TypeAlias = Compare | AllOf | AnyOf | NoneOf


# --- Reading ----------------------------------------------------------------------------------------------------------


def condition_of(entries: Mapping[str, JsonValue]) -> AllOf:
    """Returns a filter that was checked already, or raises ValueError with the rule that it breaks."""
    condition = _of_object(entries, 0)
    if (count := _size(condition)) > MOST_CONDITIONS:
        raise ValueError(
            f"has {count} conditions, with each value of `in` and `nin` counted: at most {MOST_CONDITIONS}"
        )
    return condition


def _size(condition: Condition) -> int:
    return len(condition.values) if isinstance(condition, Compare) else sum(map(_size, condition.parts))


def _of_object(entries: Mapping[str, JsonValue], depth: int) -> AllOf:
    if depth > DEEPEST:
        raise ValueError(f"has AND, OR and NOT nested deeper than {DEEPEST} levels")
    parts: list[Condition] = []
    for name, value in entries.items():
        if name in LOGIC:
            parts.append(_logical(name, value, depth))
            continue
        # {"or": "Oregon"} and {"in": 3} ask for entries of these names
        if isinstance(value, dict | list) and not _is_comparison(value):
            if (meant := name.removeprefix("$").upper()) in (*LOGIC, "NOR"):
                raise ValueError(f"has no operator `{name}`: did you mean `{'NOT' if meant == 'NOR' else meant}`?")
            if (meant := meant.lower()) in OPERATORS:
                raise ValueError(
                    f'has the operator `{name}` without a field: it goes below one, as in {{"topic": {{"{meant}": …}}}}'
                )
        parts += _of_field((name,), value)
    return AllOf(tuple(parts))


def _logical(name: str, value: Any, depth: int) -> Condition:
    filters = [value] if name == "NOT" and isinstance(value, dict) else value
    if not isinstance(filters, list) or not filters or not all(isinstance(part, dict) and part for part in filters):
        takes = "a filter or a list of filters" if name == "NOT" else "a list of filters"
        raise ValueError(f'has `{name}` with something else than {takes}, as in {{"{name}": [{{"topic": "billing"}}]}}')
    parts = tuple(_of_object(part, depth + 1) for part in filters)
    return AllOf(parts) if name == "AND" else AnyOf(parts) if name == "OR" else NoneOf(parts)


def _is_comparison(value: Any) -> bool:
    """Returns whether an object has operators and nothing else."""
    return isinstance(value, dict) and bool(value) and all(name in OPERATORS for name in value)


def _of_field(path: tuple[str, ...], value: Any) -> list[Condition]:
    if _is_comparison(value):
        return [_compared(path, name, wanted) for name, wanted in value.items()]
    if not isinstance(value, dict) or not _has_operator(value):
        return [Compare(path, "eq", (value,))]
    for name in value:
        if _looks_like_operator(name):
            raise ValueError(_misplaced(path, name))
    return [condition for name, below in value.items() for condition in _of_field((*path, name), below)]


def _has_operator(value: Mapping[str, JsonValue]) -> bool:
    return any(
        _looks_like_operator(name) or (isinstance(below, dict) and _has_operator(below))
        for name, below in value.items()
    )


def _looks_like_operator(name: str) -> bool:
    if name.startswith("$") or name.lower() in OPERATORS or name.upper() in LOGIC:
        return True
    return (name != "" and name.strip("<>=!~") == "") or bool(called_elsewhere(name, OPERATORS))


def _misplaced(path: tuple[str, ...], name: str) -> str:
    plain = name.removeprefix("$").lower()
    others = f"there are {', '.join(OPERATORS)}"
    if name in OPERATORS:
        fault = f"has the operator `{name}` of `{path[-1]}` beside other keys"
    elif plain.upper() in LOGIC:
        fault = f"has `{name}` below `{path[-1]}`: `{plain.upper()}` goes around filters, as in "
        fault += '{"NOT": {"topic": "billing"}}'
    else:
        hint = did_you_mean(plain, OPERATORS)
        fault = f"has no operator `{name}`{hint} ({others})" if hint else f"has no operator `{name}`: {others}"
    return f'{fault}. To compare with an object that has this key, write {{"{path[-1]}": {{"eq": {{…}}}}}}'


def _compared(path: tuple[str, ...], operator: str, wanted: Any) -> Compare:
    operator = "nin" if operator == "not_in" else operator
    takes = None
    if operator in ("in", "nin"):
        if not isinstance(wanted, list) or not wanted:
            takes = "a list of values"
    elif operator in _ORDERS:
        if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
            takes = "a number or a text"
    elif operator == "icontains":
        takes = None if isinstance(wanted, str) else "a text"
    elif operator == "exists":
        takes = None if isinstance(wanted, bool) else "true or false"
    if takes is not None:
        raise ValueError(f"has `{operator}` of `{path[-1]}` with something else than {takes}")
    return Compare(path, operator, tuple(wanted) if operator in ("in", "nin") else (wanted,))


# --- Meaning ----------------------------------------------------------------------------------------------------------


def matches(condition: Condition, metadata: Mapping[str, JsonValue]) -> bool:
    """Returns whether the metadata matches. What is missing matches `ne`, `nin`, `exists: false` and NOT alone.

    It takes as long as it takes to read the metadata once and the condition once, not their product: a list may have
    thousands of items, and a condition may look for 256 in it.
    """
    return _matches(condition, _Metadata(metadata))


class _Metadata:
    """Metadata whose values are each looked up and prepared once."""

    def __init__(self, entries: Mapping[str, JsonValue]) -> None:
        self._entries, self._found = entries, dict[tuple[str, ...], _Value]()

    def at(self, path: tuple[str, ...]) -> "_Value":
        if path not in self._found:
            value: Any = self._entries
            for name in path:
                value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
            self._found[path] = _Value(value)
        return self._found[path]


class _Value:
    """A value of the metadata, and what operators compare of it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @cached_property
    def canonical(self) -> bytes:
        return canonical(self.value)

    @cached_property
    def items(self) -> frozenset[bytes]:
        """The items of a list; none of anything else."""
        return frozenset(map(canonical, self.value)) if isinstance(self.value, list) else frozenset()

    @cached_property
    def folded(self) -> "_Value":
        if isinstance(self.value, list):
            return _Value([item.casefold() if isinstance(item, str) else item for item in self.value])
        return _Value(self.value.casefold()) if isinstance(self.value, str) else self


def _matches(condition: Condition, metadata: _Metadata) -> bool:
    match condition:
        case AllOf(parts):
            return all(_matches(part, metadata) for part in parts)
        case AnyOf(parts):
            return any(_matches(part, metadata) for part in parts)
        case NoneOf(parts):
            return not any(_matches(part, metadata) for part in parts)
        case Compare(path):
            return _holds(condition, metadata.at(path))


def _holds(compare: Compare, stored: _Value) -> bool:
    operator, wanted, missing = compare.operator, compare.values[0], stored.value is _MISSING
    if operator == "exists":
        return missing is not wanted
    if operator in ("ne", "nin"):
        return missing or stored.canonical not in compare.equal
    if missing:
        return False
    if operator in ("eq", "in"):
        return stored.canonical in compare.equal
    if operator in _ORDERS:
        return _comparable(stored.value, wanted) and _ORDERS[operator](stored.value, wanted)
    if operator == "icontains":
        return _contains(stored.folded, wanted.casefold(), compare.equal)
    return _contains(stored, wanted, compare.equal)


def _comparable(value: Any, wanted: Any) -> bool:
    """Returns whether both are numbers or both are texts. A number is neither more nor less than a text."""
    if isinstance(wanted, str):
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(stored: _Value, wanted: Any, equal: frozenset[bytes]) -> bool:
    """Returns whether a text has the wanted one in it, or a list has an equal item."""
    if isinstance(stored.value, str):
        return isinstance(wanted, str) and wanted in stored.value
    return not equal.isdisjoint(stored.items)


def canonical(value: Any) -> bytes:
    """Returns the same bytes for equal JSON values: 1.0 and 1 are equal, and so are objects in any order of keys. 1 and
    true are not."""
    return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS)


def _plain(value: Any) -> Any:
    """Returns the value with whole floats as integers: 1.0 and 1 are the same JSON number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
