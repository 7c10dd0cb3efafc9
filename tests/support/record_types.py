"""Which type the records of a collection have, and how a stored document departs from it."""

import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typing_extensions
from typing_extensions import TypeAliasType

from app.storage.schema import Collection


def record_types(package: str = "app") -> dict[str, Any]:
    """Returns record types by the name of their collection, of the modules that are imported: `MemoryRecord` for
    `agent_memories`, which `MEMORIES: Collection[MemoryRecord]` says."""
    declared: dict[str, Any] = {}
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] != package:
            continue
        for constant in getattr(module, "__annotations__", {}):
            collection = getattr(module, constant, None)
            if isinstance(collection, Collection):
                (declared[collection.name],) = typing.get_args(typing.get_type_hints(module)[constant])
    return declared


def departures(declared: Any, value: Any, place: str = "") -> Iterator[str]:
    """Yields what of a value its declared type does not say: `source.speeker is not declared`, `tags[0]: 5`."""
    kinds = [*_kinds(declared)]
    record = next((kind for kind in kinds if typing_extensions.is_typeddict(typing.get_origin(kind) or kind)), None)
    if record is not None and isinstance(value, dict):
        hints = _fields(record)
        for name, part in value.items():
            path = f"{place}.{name}".strip(".")
            if name in hints:
                yield from departures(hints[name], part, path)
            else:
                yield f"{path} is not declared"
    elif not any(_fits(kind, value) for kind in kinds):
        yield f"{place}: {value!r}"
    elif isinstance(value, list):
        items = [typing.get_args(kind)[:1] for kind in kinds if typing.get_origin(kind) in (list, Sequence)]
        for at, item in enumerate(value):
            for (item_type,) in items:
                yield from departures(item_type, item, f"{place}[{at}]")


def field_kinds(declared: Any, path: str) -> set[str]:
    """Returns the kinds of field (`FieldKind`, or `object`) that the values at a path may be: `{"text", "time"}` for a
    `str | None`. Empty for a path that the type does not declare; all of them for one that is always null."""
    for name in path.split("."):
        records = [kind for kind in _kinds(declared) if typing_extensions.is_typeddict(typing.get_origin(kind) or kind)]
        hints = [_fields(record)[name] for record in records if name in _fields(record)]
        if not hints:
            return set()
        declared = hints[0]
    kinds = set[str]()
    for kind in _kinds(declared):
        origin = typing.get_origin(kind) or kind
        if origin is str or (origin is typing.Literal and isinstance(typing.get_args(kind)[0], str)):
            kinds |= {"text", "time"}
        elif origin in (int, float):
            kinds.add("number")
        elif origin is bool:
            kinds.add("flag")
        elif origin in (list, Sequence):
            kinds.add("list")
        elif kind not in (None, types.NoneType):
            kinds.add("object")
    return kinds or {"text", "time", "number", "flag", "list", "object"}


def _fields(record: Any) -> dict[str, Any]:
    """Returns the types of a record's fields; those of a generic one with its parameter in place."""
    origin = typing.get_origin(record) or record
    given = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(record), strict=False))
    return {name: given.get(hint, hint) for name, hint in typing.get_type_hints(origin).items()}


def _kinds(declared: Any) -> Iterator[Any]:
    """Yields the types that an annotation allows, out of unions and aliases."""
    origin = typing.get_origin(declared)
    if isinstance(declared, TypeAliasType):
        yield from _kinds(declared.__value__)
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(declared):
            yield from _kinds(part)
    elif origin in (typing.Annotated, typing.NotRequired, typing.Required):
        yield from _kinds(typing.get_args(declared)[0])
    else:
        yield declared


def _fits(kind: Any, value: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if kind in (Any, object):
        return True
    if origin is typing.Literal:
        return value in typing.get_args(kind)
    if kind is types.NoneType or kind is None:
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing_extensions.is_typeddict(origin) or origin is Mapping:
        return isinstance(value, dict)
    return isinstance(value, list if origin is Sequence else origin)
