"""Filters as the two search indexes take them: `$vectorSearch` a query, `$search` operators.

Only what both have always had is used: negations are moved inwards, to single conditions, and what is absent is listed
in a field of its own, so that absence is an equality.
"""

from typing import TypeAlias

from app.storage.filters import Absent, And, Eq, Filter, Has, In, Not, Or, Range
from app.storage.mongo.documents import PAIR, Stored
from app.storage.mongo.search_indexes import ABSENT, range_path
from app.storage.packed import range_value

Leaf: TypeAlias = Eq | Has | In | Absent | Range

NOTHING: Stored = {PAIR: {"$eq": -1}}
NOTHING_TEXT: Stored = {"equals": {"path": PAIR, "value": -1}}


def inwards(part: Filter, negated: bool = False) -> Filter:
    """The same filter, with `Not` around single conditions only, and around no range."""
    match part:
        case Not(inner):
            return inwards(inner, not negated)
        case And(parts) | Or(parts):
            inner_parts = tuple(inwards(inner, negated) for inner in parts)
            return And(inner_parts) if isinstance(part, And) != negated else Or(inner_parts)
        case Range() if negated:
            return Or((Absent(part.field), *_outside(part)))
        case _:
            return Not(part) if negated else part


def _outside(part: Range) -> list[Filter]:
    beyond = {"lt": part.ge, "le": part.gt, "gt": part.le, "ge": part.lt}
    return [Range(part.field, **{name: bound}) for name, bound in beyond.items() if bound is not None]


def _numbers(part: Range, sign: str) -> dict[str, float]:
    given = {"gte": part.ge, "gt": part.gt, "lte": part.le, "lt": part.lt}
    return {f"{sign}{name}": range_value(bound) for name, bound in given.items() if bound is not None}


# --- $vectorSearch ----------------------------------------------------------------------------------------------------


def vector_filter(where: Filter) -> list[Stored]:
    """Conditions that all must hold."""
    made = _vector(inwards(where))
    return [made] if made else []


def _vector(part: Filter) -> Stored:
    match part:
        case And(parts):
            every = [made for inner in parts if (made := _vector(inner))]
            return {"$and": every} if every else {}
        case Or(parts):
            some = [_vector(inner) for inner in parts]
            return NOTHING if not some else {"$or": some} if all(some) else {}
        case Not(inner):
            return _vector_not(inner)
        case _:
            return _vector_leaf(part)


def _vector_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$eq": value}}
        case In(field, values):
            return {field: {"$in": list(values)}} if values else NOTHING
        case Absent(field):
            return {ABSENT: {"$eq": field}}
        case Range():
            bounds = _numbers(part, "$")
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


# --- $search ----------------------------------------------------------------------------------------------------------


def text_filter(where: Filter) -> list[Stored]:
    """Operators that all must match."""
    made = _text(inwards(where))
    return [] if made is None else [made]


def _text(part: Filter) -> Stored | None:
    """None where everything passes."""
    match part:
        case And(parts):
            every = [made for inner in parts if (made := _text(inner)) is not None]
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
            bounds = _numbers(part, "")
            path = range_path(part.field)
            return {"range": {"path": path, **bounds}} if bounds else {"exists": {"path": path}}
