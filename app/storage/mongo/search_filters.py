"""Filters in the languages of the search stages: `filter` of `$vectorSearch`, and the operators of `$search`."""

from typing import TypeAlias

from app.storage.index.record_codec import range_value
from app.storage.mongo.codec import OWN, PARTITION, Stored, range_name
from app.storage.schema import Absent, And, Eq, Filter, Has, In, Not, Or, Range

ABSENT = f"{OWN}.absent"


def range_path(field: str) -> str:
    """Returns the path of a range field in stored documents."""
    return f"{OWN}.ranges.{range_name(field)}"


Leaf: TypeAlias = Eq | Has | In | Absent | Range

NO_FILTER: Stored = {PARTITION: {"$eq": -1}}

NOTHING_TEXT: Stored = {"equals": {"path": PARTITION, "value": -1}}


def inwards(part: Filter, negated: bool = False) -> Filter:
    """Returns an equivalent filter with `Not` only around single conditions that are not ranges."""
    match part:
        case Not(inner):
            return inwards(inner, not negated)
        case And(parts) | Or(parts):
            inner_parts = tuple(inwards(inner, negated) for inner in parts)
            return And(inner_parts) if isinstance(part, And) != negated else Or(inner_parts)
        case Range() if negated:
            beyond = {"lt": part.ge, "le": part.gt, "gt": part.le, "ge": part.lt}
            outside = [Range(part.field, **{name: bound}) for name, bound in beyond.items() if bound is not None]
            return Or((Absent(part.field), *outside))
        case _:
            return Not(part) if negated else part


def _numbers(part: Range) -> dict[str, float]:
    given = {"gte": part.ge, "gt": part.gt, "lte": part.le, "lt": part.lt}
    return {name: range_value(bound) for name, bound in given.items() if bound is not None}


def vector_filter(where: Filter) -> list[Stored]:
    """Returns the conditions that must all hold, for `$vectorSearch`."""
    result = _vector(inwards(where))
    return [result] if result else []


def _vector(part: Filter) -> Stored:
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _vector(inner))]
            return {"$and": every} if every else {}
        case Or(parts):
            some = [_vector(inner) for inner in parts]
            return NO_FILTER if not some else {"$or": some} if all(some) else {}
        case Not(inner):
            return _vector_not(inner)
        case _:
            return _vector_leaf(part)


def _vector_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$eq": value}}
        case In(field, values):
            return {field: {"$in": list(values)}} if values else NO_FILTER
        case Absent(field):
            return {ABSENT: {"$eq": field}}
        case Range():
            bounds = {f"${sign}": bound for sign, bound in _numbers(part).items()}
            return {range_path(part.field): bounds} if bounds else {ABSENT: {"$ne": part.field}}


def _vector_not(part: Filter) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$ne": value}}
        case In(field, values):
            return {field: {"$nin": list(values)}} if values else {}
        case Absent(field):
            return {ABSENT: {"$ne": field}}
        case _:
            raise TypeError(f"{part} was not moved inwards")


def text_filter(where: Filter) -> list[Stored]:
    """Returns the operators that must all match, for `$search`."""
    result = _text(inwards(where))
    return [] if result is None else [result]


def _text(part: Filter) -> Stored | None:
    """Returns the operator, or None if everything matches."""
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _text(inner)) is not None]
            return {"compound": {"filter": every}} if every else None
        case Or(parts):
            some = [_text(inner) for inner in parts]
            if not some:
                return NOTHING_TEXT
            return None if None in some else {"compound": {"should": some, "minimumShouldMatch": 1}}
        case Not(inner):
            return {"compound": {"mustNot": [_text(inner)]}}
        case _:
            return _text_leaf(part)


def _text_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {"equals": {"path": field, "value": value}}
        case In(field, values):
            return {"in": {"path": field, "value": list(values)}} if values else NOTHING_TEXT
        case Absent(field):
            return {"equals": {"path": ABSENT, "value": field}}
        case Range():
            return _text_range(range_path(part.field), _numbers(part))


def _text_range(path: str, bounds: dict[str, float]) -> Stored:
    """Returns the operator. `range` takes one bound on each side, and refuses bounds that leave nothing between them,
    such as `gte: 2` with `lt: 2`."""
    lower = max(((bounds[sign], sign == "gt", sign) for sign in ("gte", "gt") if sign in bounds), default=None)
    upper = min(((bounds[sign], sign != "lt", sign) for sign in ("lte", "lt") if sign in bounds), default=None)
    if lower is not None and upper is not None:
        both_included = lower[2] == "gte" and upper[2] == "lte"
        if lower[0] > upper[0] or (lower[0] == upper[0] and not both_included):
            return NOTHING_TEXT
    narrowest = {bound[2]: bound[0] for bound in (lower, upper) if bound is not None}
    return {"range": {"path": path, **narrowest}} if narrowest else {"exists": {"path": path}}
