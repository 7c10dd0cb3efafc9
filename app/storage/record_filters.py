"""Filters of callers (`core/metadata_filter.py`) as the store reads them: what it decides, and what is decided from
each record that it lets through.

The store compares declared fields and, where a collection has `metadata_terms`, digests of metadata entries. So it can
decide `{"memory_type": "fact"}`, `{"created_at": {"gte": …}}` and `eq`, `ne`, `in` and `nin` of an entry. It cannot
decide `gte` or `contains` of an entry, or what lies deeper in it. `SplitFilter.where` is what it can decide of the
whole filter: no record that matches is left out. `SplitFilter.keep` then decides, from the record itself.
"""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from app.core.metadata_filter import (
    METADATA,
    AllOf,
    Compare,
    Condition,
    NoneOf,
    RecordField,
    RecordFields,
    canonical,
    condition_of,
    filter_of,
    matches,
)
from app.core.schemas import JsonObject, RecordFilters, Timestamp
from app.storage.schema import Absent, And, Collection, Eq, Filter, Has, In, Not, Or, Range, SearchSchema

Keep: TypeAlias = Callable[[Any], bool]
_BOUNDS = {"gt": "gt", "gte": "ge", "lt": "lt", "lte": "le"}


class SplitFilter(NamedTuple):
    """A filter in two steps: what the store decides, and what is decided from a record that it let through (None:
    nothing more)."""

    where: Filter
    keep: Keep | None


def fields_of(
    collection: Collection[Any],
    shown: type,
    *names: str,
    keys: Mapping[str, tuple[str, Callable[[str], str]]] | None = None,
    **elsewhere: str,
) -> RecordFields:
    """Returns the fields of a record that filters may name: `fields_of(MEMORIES, Memory, "key", session_id=
    "source.session_id")`. `keys`: names that stand for a key of theirs, and how it is made:
    `{"subject": ("subject_key", key_of)}`. What else the answer shows of the record cannot be filtered by."""
    places: dict[str, tuple[str, Callable[[str], str]]] = {name: (name, str) for name in names}
    places |= {name: (place, str) for name, place in elsewhere.items()}
    fields: dict[str, RecordField | None] = dict.fromkeys(shown.__annotations__.keys() - {METADATA})
    for name, (place, key) in {**places, **(keys or {})}.items():
        kind = collection.fields[place]
        shape = {"time": Timestamp, "list": str, "number": float, "flag": bool}.get(kind) or (
            shown.__annotations__[name] if name in names else str
        )
        fields[name] = RecordField(tuple(place.split(".")), kind, _reader(TypeAdapter(shape), key))
    return fields


def _reader(valid: TypeAdapter[Any], key: Callable[[str], str]) -> Callable[[Any], Any]:
    def stored(value: Any) -> Any:
        try:
            checked = valid.validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(error.errors(include_url=False, include_input=False)[0]["msg"]) from None
        return key(checked) if isinstance(checked, str) else checked

    return stored


def split_filter(
    asked: RecordFilters, fields: RecordFields, collection: Collection[Any], *, searched: bool = False
) -> SplitFilter:
    """Returns the filter of what a list or, if `searched`, a search asks of metadata and fields, without the owner.
    The request's schema has checked `asked`."""
    metadata, filters = asked.get("metadata"), asked.get("filters")
    parts = [condition_of(metadata)] if metadata else []
    parts += [filter_of(filters, fields)[0]] if filters else []
    if not any(part.parts for part in parts):
        return SplitFilter(And(), None)
    condition, decide = AllOf(tuple(parts)), partial(_compared, collection, collection.searched if searched else None)
    where = _stored(condition, decide) or And()
    return SplitFilter(where, None if _is_stored(condition, decide) else lambda record: matches(condition, record))


def _is_stored(condition: Condition, decide: Callable[[Compare], Filter | None]) -> bool:
    """Returns whether the store can decide all of the condition."""
    if isinstance(condition, Compare):
        return decide(condition) is not None
    return all(_is_stored(part, decide) for part in condition.parts)


def _stored(
    condition: Condition, decide: Callable[[Compare], Filter | None], *, negated: bool = False
) -> Filter | None:
    """Returns a filter that lets through whatever matches the condition, or does not match it if `negated`. None: only
    one that lets everything through.

    Of `AllOf(a, b)` where the store cannot decide b, it is that of a; of `AnyOf(a, b)` it is None.
    """
    if isinstance(condition, Compare):
        decided = decide(condition)
        if decided is None or not negated:
            return decided
        return decided.part if isinstance(decided, Not) else Not(decided)
    # "not all of a and b" is "any of not a and not b", and "none of a and b" is "all of not a and not b"
    if isinstance(condition, NoneOf):
        negated = not negated
        all_hold = negated
    else:
        all_hold = isinstance(condition, AllOf) is not negated
    stored = [_stored(part, decide, negated=negated) for part in condition.parts]
    known = tuple(part for part in stored if part is not None)
    if all_hold:
        return And(known)
    return None if len(known) < len(stored) else Or(known)


def _compared(collection: Collection[Any], spec: SearchSchema | None, compare: Compare) -> Filter | None:
    """Returns the comparison as the store makes it, or None where it cannot. A search (`spec`) compares facets,
    and orders ranges; a list does both with any declared field."""
    kinds, operator, values = collection.fields, compare.operator, compare.values
    field = ".".join(compare.path)
    has: Filter
    if compare.path[0] == METADATA:
        if len(compare.path) > 2 or "metadata_terms" not in kinds:
            return None
        terms = [Has("metadata_terms", metadata_term(compare.path[1], value)) for value in values]
        has = terms[0] if len(terms) == 1 else Or(tuple(terms))
    elif operator in _BOUNDS or operator == "exists":
        if field not in (spec.ranges if spec else kinds):
            return None
        if operator == "exists":
            return Not(Absent(field)) if values[0] else Absent(field)
        return Range(field, **{_BOUNDS[operator]: values[0]})
    elif field not in (spec.facets if spec else kinds):
        return None
    elif kinds[field] == "list":
        return Has(field, values[0]) if operator == "contains" else None
    else:
        has = Eq(field, values[0]) if len(values) == 1 else In(field, values)
    return has if operator in ("eq", "in") else Not(has) if operator in ("ne", "nin") else None


def metadata_terms(metadata: JsonObject) -> list[str]:
    """Returns one digest for each metadata entry.

    Equal entries have equal digests, and a caller's key never becomes a field name.
    """
    return [metadata_term(key, value) for key, value in metadata.items()]


def metadata_term(key: str, value: Any) -> str:
    return blake2b(canonical([key, value]), digest_size=12).hexdigest()
