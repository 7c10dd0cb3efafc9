"""Filters as callers send them: plain values, operators on a field, and AND, OR and NOT around filters.

    {"topic": "billing", "priority": {"gte": 3, "lt": 9}}
    {"OR": [{"food": {"in": ["sushi", "soup"]}}, {"NOT": {"place": {"exists": true}}}]}

`metadata` has filters on metadata (`condition_of`). `filters` has them on fields of the record, too (`filter_of`): a
name that the record has is its field, every other one an entry of its metadata, and `{"metadata": {…}}` says so
outright. `user_id` and `agent_id` are the owner, as if they stood beside `filters`:

    {"user_id": "ada", "created_at": {"gte": "2026-01-01T00:00:00Z"}, "topic": "billing", "session_id": "*"}

The names are those of mem0: its callers send these filters as they are. What is an operator elsewhere (`like`, `>`) is
refused with what there is. "*" stands for any value. A value is compared as a whole, an object too:
`{"size": {"w": 3}}` asks for exactly this object. An object of operators alone is no value, and where operators stand
deeper, the names above them lead to the field: `{"size": {"w": {"gte": 3}}}`. `eq` compares with any object, also with
one whose keys look like operators, and with the text "*".

`matches` defines what a filter means. `storage/record_filters.py` says which part of it the store can decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import ge, gt, le, lt
from typing import Any, Final, Literal, TypeAlias

import orjson
from pydantic import JsonValue

from app.errors import called_elsewhere, did_you_mean

MOST_CONDITIONS, DEEPEST = 256, 8
"""Conditions of one filter, each value of a list counted; and filters within AND, OR and NOT within each other."""

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
OPERATORS = ("eq", "ne", *_ORDERS, "in", "nin", "not_in", "contains", "icontains", "exists")
LOGIC = ("AND", "OR", "NOT")
OWNERS = ("agent_id", "user_id")
ANY = "*"
ANY_ID: Final = "/*"
"""Stands for any agent or user that the caller may see. No id has a "/", and a user may be called "*"."""
METADATA = "metadata"
_MISSING = object()


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record that a filter may name."""

    path: tuple[str, ...]
    """Where the record has it: `("source", "session_id")`."""
    kind: Literal["text", "number", "flag", "time", "list"]
    stored: Callable[[Any], Any]
    """Takes a value of a caller and returns it as it is stored. Raises ValueError if the field cannot have it."""


RecordFields: TypeAlias = Mapping[str, RecordField | None]
"""The fields that a record has, by name. None: it cannot be filtered by."""


@dataclass(frozen=True, slots=True)
class Compare:
    """The value at `path` of the record, such as `("metadata", "topic")`, compared by an operator. `values`: one, or
    those of `in` and `nin`."""

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
    """Returns a filter on metadata. Raises ValueError with the rule that it breaks."""
    return _within_limits(_of_object(entries, 0))


def filter_of(entries: Mapping[str, JsonValue], fields: RecordFields) -> tuple[AllOf, dict[str, str]]:
    """Returns a filter on fields and metadata, and the owner that it names, such as `{"user_id": "ada"}` or, for any,
    `{"user_id": ANY_ID}`. Raises ValueError with the rule that it breaks."""
    owner = dict[str, str]()
    return _within_limits(_of_object(entries, 0, fields, owner)), owner


def _within_limits(condition: AllOf) -> AllOf:
    if (count := _size(condition)) > MOST_CONDITIONS:
        raise ValueError(
            f"has {count} conditions, with each value of `in` and `nin` counted: at most {MOST_CONDITIONS}"
        )
    return condition


def _size(condition: Condition) -> int:
    return len(condition.values) if isinstance(condition, Compare) else sum(map(_size, condition.parts))


def _of_object(
    entries: Mapping[str, JsonValue],
    depth: int,
    fields: RecordFields | None = None,
    owner: dict[str, str] | None = None,
) -> AllOf:
    """Returns the filter that the entries make. `fields`: of the record, None in a filter on metadata. `owner`: takes
    the ids of owners; None where they decide nothing alone, in OR and NOT."""
    if depth > DEEPEST:
        raise ValueError(f"has AND, OR and NOT nested deeper than {DEEPEST} levels")
    parts: list[Condition] = []
    for name, value in entries.items():
        if name in LOGIC:
            parts.append(_logical(name, value, depth, fields, owner if name == "AND" else None))
            continue
        if fields is not None:
            if name in OWNERS:
                _take_owner(name, value, owner)
                continue
            if field := fields.get(name):
                parts += _of_record_field(name, value, field)
                continue
            if name == METADATA and isinstance(value, dict):
                parts.append(_of_object(value, depth))
                continue
            known = [known for known, field in fields.items() if field]
            if name in fields or name == METADATA or called_elsewhere(name, known):
                raise ValueError(
                    f"has no field `{name}`{did_you_mean(name, known)} (there are {', '.join((*OWNERS, *known))}). An "
                    f'entry of the metadata with this name is {{"metadata": {{"{name}": …}}}}'
                )
        # {"or": "Oregon"} and {"in": 3} ask for entries of these names
        if isinstance(value, dict | list) and not _is_comparison(value):
            if (meant := name.removeprefix("$").upper()) in (*LOGIC, "NOR"):
                raise ValueError(f"has no operator `{name}`: did you mean `{'NOT' if meant == 'NOR' else meant}`?")
            if (meant := meant.lower()) in OPERATORS:
                raise ValueError(
                    f'has the operator `{name}` without a field: it goes below one, as in {{"topic": {{"{meant}": …}}}}'
                )
        parts += _of_field((METADATA, name), value)
    return AllOf(tuple(parts))


def _logical(name: str, value: Any, depth: int, fields: RecordFields | None, owner: dict[str, str] | None) -> Condition:
    filters = [value] if name == "NOT" and isinstance(value, dict) else value
    if not isinstance(filters, list) or not filters or not all(isinstance(part, dict) and part for part in filters):
        takes = "a filter or a list of filters" if name == "NOT" else "a list of filters"
        raise ValueError(f'has `{name}` with something else than {takes}, as in {{"{name}": [{{"topic": "billing"}}]}}')
    parts = tuple(_of_object(part, depth + 1, fields, owner) for part in filters)
    return AllOf(parts) if name == "AND" else AnyOf(parts) if name == "OR" else NoneOf(parts)


def _take_owner(name: str, value: Any, owner: dict[str, str] | None) -> None:
    """Adds the id of an owner: `"ada"` and `{"eq": "ada"}`, or "*" for any."""
    if owner is None:
        raise ValueError(f"has `{name}` inside OR or NOT: it is the owner, who is one. Ask once for each {name}")
    wanted = value.get("eq") if isinstance(value, dict) and value.keys() == {"eq"} else value
    if not isinstance(wanted, str) or "/" in wanted:
        raise ValueError(f'has `{name}` with something else than one id, or "{ANY}" for any that the key may see')
    wanted = ANY_ID if value == ANY else wanted
    if owner.setdefault(name, wanted) != wanted:
        raise ValueError(f"has two values of `{name}`: it is the owner, who is one. Ask once for each {name}")


def _of_record_field(name: str, value: Any, field: RecordField) -> list[Condition]:
    """Returns the conditions on a field of the record. Of a list, each operator but `exists` is about its items."""
    parts = list[Condition]()
    if value == ANY:
        return [Compare(field.path, "exists", (True,))]
    if isinstance(value, dict) and not _is_comparison(value):
        raise ValueError(_misplaced((name,), next(filter(_looks_like_operator, value), next(iter(value), ""))))
    for given, wanted in (value if isinstance(value, dict) else {"eq": value}).items():
        if given in ("eq", "ne") and wanted is None:
            parts.append(Compare(field.path, "exists", (given == "ne",)))
            continue
        compare = _compared((name,), given, wanted)
        operator = compare.operator
        if operator in _ORDERS and field.kind not in ("number", "time"):
            raise ValueError(f"has `{operator}` of `{name}`, whose values have no order")
        if operator.endswith("contains") and field.kind not in ("text", "list"):
            raise ValueError(f"has `{operator}` of `{name}`, which is neither a text nor a list")
        path, values = field.path, compare.values
        if operator.endswith("contains") and field.kind == "text":  # a part of it, as it is shown: no key of it
            path = path if len(path) > 1 else (name,)
        elif operator != "exists":
            try:
                values = tuple(map(field.stored, values))
            except ValueError as error:
                raise ValueError(f"has `{name}` with a value that it cannot have: {error}") from None
        if field.kind == "list" and operator in ("eq", "ne", "in", "nin"):
            holding = tuple(Compare(path, "contains", (item,)) for item in values)
            parts.append(AnyOf(holding) if operator in ("eq", "in") else NoneOf(holding))
        else:
            parts.append(Compare(path, operator, values))
    return parts


def _is_comparison(value: Any) -> bool:
    """Returns whether an object has operators and nothing else."""
    return isinstance(value, dict) and bool(value) and all(name in OPERATORS for name in value)


def _of_field(path: tuple[str, ...], value: Any) -> list[Condition]:
    if _is_comparison(value):
        return [_compared(path, name, wanted) for name, wanted in value.items()]
    if not isinstance(value, dict) or not _has_operator(value):
        return [Compare(path, "exists", (True,)) if value == ANY else Compare(path, "eq", (value,))]
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


def matches(condition: Condition, record: Mapping[str, Any]) -> bool:
    """Returns whether the record matches. What is missing matches `ne`, `nin`, `exists: false` and NOT alone. A field
    that is null is missing; an entry of the metadata that is null is there.

    It takes as long as it takes to read the record once and the condition once, not their product: a list may have
    thousands of items, and a condition may look for 256 in it.
    """
    return _matches(condition, _Record(record))


class _Record:
    """A record whose values are each looked up and prepared once."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record, self._found = record, dict[tuple[str, ...], _Value]()

    def at(self, path: tuple[str, ...]) -> "_Value":
        if path not in self._found:
            value: Any = self._record
            for name in path:
                value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
            self._found[path] = _Value(_MISSING if value is None and path[0] != METADATA else value)
        return self._found[path]


class _Value:
    """A value of the record, and what operators compare of it."""

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


def _matches(condition: Condition, record: _Record) -> bool:
    match condition:
        case AllOf(parts):
            return all(_matches(part, record) for part in parts)
        case AnyOf(parts):
            return any(_matches(part, record) for part in parts)
        case NoneOf(parts):
            return not any(_matches(part, record) for part in parts)
        case Compare(path):
            return _holds(condition, record.at(path))


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
