"""What a query may ask of documents: a typed value, never a caller's dict. Fields are our own names, values are data.

Each engine translates these; `matches` is their meaning, and the contract suite holds every engine to it. Nobody
writes into one; that Python could is for speed: a frozen one takes five times as long to make, and searches make eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool


@dataclass(slots=True, unsafe_hash=True)
class Eq:
    field: str
    value: Scalar


@dataclass(slots=True, unsafe_hash=True)
class In:
    field: str
    values: tuple[Scalar, ...]


@dataclass(slots=True, unsafe_hash=True)
class Has:
    """The list field holds the value."""

    field: str
    value: str


@dataclass(slots=True, unsafe_hash=True)
class Range:
    """Bounds on a number or a time (RFC 3339, as stored). An absent field is in no range."""

    field: str
    ge: str | float | None = None
    gt: str | float | None = None
    le: str | float | None = None
    lt: str | float | None = None


@dataclass(slots=True, unsafe_hash=True)
class Absent:
    """The field is null or not there."""

    field: str


@dataclass(slots=True, unsafe_hash=True)
class Not:
    part: "Filter"


@dataclass(slots=True, unsafe_hash=True)
class And:
    parts: tuple["Filter", ...] = ()


@dataclass(slots=True, unsafe_hash=True)
class Or:
    parts: tuple["Filter", ...]


Filter: TypeAlias = Eq | In | Has | Range | Absent | Not | And | Or

EVERYTHING = And()


def both(*parts: Filter | None) -> Filter:
    """All of `parts` that are there, flattened."""
    flat: list[Filter] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, And) else () if part is None else (part,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def value_at(doc: Mapping[str, Any], field: str) -> Any:
    """The value of a field, `source.session_id` included; None where there is none."""
    if "." not in field:
        return doc.get(field)
    value: Any = doc
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def top_of(field: str) -> str:
    """The top-level field that a field lies in."""
    return field.partition(".")[0]


def matches(doc: Mapping[str, Any], where: Filter) -> bool:
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
