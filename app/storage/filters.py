"""Filters: typed conditions over declared fields. Field names come from our code, values from callers; a caller's dict
is never used.

Each engine translates filters. `matches` defines their meaning, and the contract suite checks every engine against it.
Filters are treated as immutable but are not frozen: a frozen one takes five times as long to make, and searches make
eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool


@dataclass(slots=True, unsafe_hash=True)
class Eq:
    """The field equals the value."""

    field: str
    value: Scalar


@dataclass(slots=True, unsafe_hash=True)
class In:
    """The field equals one of the values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(slots=True, unsafe_hash=True)
class Has:
    """The list field contains the value."""

    field: str
    value: str


@dataclass(slots=True, unsafe_hash=True)
class Range:
    """The number or time (RFC 3339, as stored) is within the bounds. An absent field is in no range."""

    field: str
    ge: str | float | None = None
    gt: str | float | None = None
    le: str | float | None = None
    lt: str | float | None = None


@dataclass(slots=True, unsafe_hash=True)
class Absent:
    """The field is null or missing."""

    field: str


@dataclass(slots=True, unsafe_hash=True)
class Not:
    """The part does not match."""

    part: "Filter"


@dataclass(slots=True, unsafe_hash=True)
class And:
    """All parts match. Without parts it matches every document."""

    parts: tuple["Filter", ...] = ()


@dataclass(slots=True, unsafe_hash=True)
class Or:
    """At least one part matches."""

    parts: tuple["Filter", ...]


Filter: TypeAlias = Eq | In | Has | Range | Absent | Not | And | Or

EVERYTHING = And()


def both(*parts: Filter | None) -> Filter:
    """Returns the conjunction of the parts that are not None, flattened."""
    flat: list[Filter] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, And) else () if part is None else (part,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def following(field: str, after: str | None, order: str) -> Filter:
    """Returns the filter for values of a text field that follow `after`; None: for all that are present."""
    return Range(field, lt=after) if order == "desc" else Range(field, gt=after)


def value_at(doc: Mapping[str, Any], field: str) -> Any:
    """Returns the value at a path such as `source.session_id`, or None if it is missing."""
    if "." not in field:
        return doc.get(field)
    value: Any = doc
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def top_of(field: str) -> str:
    """Returns the top-level field of a path."""
    return field.partition(".")[0]


def matches(doc: Mapping[str, Any], where: Filter) -> bool:
    """Returns whether the document matches the filter."""
    match where:
        case And(parts):
            return all(matches(doc, part) for part in parts)
        case Or(parts):
            return any(matches(doc, part) for part in parts)
        case Not(part):
            return not matches(doc, part)
        case Absent(field):
            return value_at(doc, field) is None
        case Eq(field, wanted):
            return bool(value_at(doc, field) == wanted)
        case In(field, values):
            return value_at(doc, field) in values
        case Has(field, wanted):
            return wanted in (value_at(doc, field) or ())
        case Range():
            return _in_range(value_at(doc, where.field), where)


def _in_range(value: Any, bounds: Range) -> bool:
    return (
        value is not None
        and (bounds.ge is None or value >= bounds.ge)
        and (bounds.gt is None or value > bounds.gt)
        and (bounds.le is None or value <= bounds.le)
        and (bounds.lt is None or value < bounds.lt)
    )
