"""JSON bodies, parsed strictly: what cannot be parsed is 400, what no record could hold is 422 with its pointer.

Checked on every body alike, before any schema sees it: depth, numbers outside int64 and float64, strings that are no
valid Unicode or hold NUL, and the limits of SPEC §1 on texts, arrays and objects.
"""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from app.errors import BadRequest, FieldError, Invalid
from app.settings import LimitSettings

MAX_ERRORS = 20
INT64 = 1 << 63


def parse(body: bytes, limits: LimitSettings) -> Any:
    """Raises BadRequest or Invalid."""
    try:
        value = json.loads(body.decode())
    except UnicodeDecodeError as fault:
        raise BadRequest(f"The body is not valid UTF-8 at byte {fault.start}.") from fault
    except json.JSONDecodeError as fault:
        raise BadRequest(f"The body is not valid JSON: {fault.msg} at character {fault.pos}.") from fault
    except RecursionError as fault:
        raise _too_deep(limits) from fault
    except ValueError as fault:  # Python refuses to read integers of thousands of digits
        raise Invalid("The body holds an integer outside int64.") from fault
    errors: list[FieldError] = []
    for error in _faults(value, "", limits, 1):
        errors.append(error)
        if len(errors) == MAX_ERRORS:
            break
    if errors:
        raise Invalid(f"{errors[0].pointer or 'The body'}: {errors[0].detail}", errors=errors)
    return value


def _too_deep(limits: LimitSettings) -> Invalid:
    return Invalid(f"The body is nested deeper than {limits.json_depth} levels.")


def _faults(value: Any, pointer: str, limits: LimitSettings, depth: int) -> Iterator[FieldError]:
    if isinstance(value, list | dict):
        if depth > limits.json_depth:
            yield FieldError(pointer, f"must not be nested deeper than {limits.json_depth} levels")
        elif isinstance(value, list):
            yield from _array_faults(value, pointer, limits, depth)
        else:
            yield from _object_faults(value, pointer, limits, depth)
    elif fault := _scalar_fault(value, limits):
        yield FieldError(pointer, fault)


def _scalar_fault(value: str | float | bool | None, limits: LimitSettings) -> str | None:
    if isinstance(value, str):
        return _text_fault(value, limits)
    if isinstance(value, float):
        return None if isfinite(value) else "must be a finite number"
    return "must fit into 64 bits" if isinstance(value, int) and not -INT64 <= value < INT64 else None


def _array_faults(value: list[Any], pointer: str, limits: LimitSettings, depth: int) -> Iterator[FieldError]:
    if len(value) > limits.batch_items:
        yield FieldError(pointer, f"must have at most {limits.batch_items} items")
        return
    for at, item in enumerate(value):
        yield from _faults(item, f"{pointer}/{at}", limits, depth + 1)


def _object_faults(value: dict[str, Any], pointer: str, limits: LimitSettings, depth: int) -> Iterator[FieldError]:
    if len(value) > limits.object_keys:
        yield FieldError(pointer, f"must have at most {limits.object_keys} keys")
        return
    for key, item in value.items():
        if fault := _text_fault(key, limits):
            yield FieldError(pointer, f"has a key that {fault}")
        else:
            yield from _faults(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", limits, depth + 1)


def _text_fault(text: str, limits: LimitSettings) -> str | None:
    if len(text) > limits.text_chars:
        return f"must have at most {limits.text_chars} characters"
    if "\0" in text:
        return "must not contain NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "must be valid Unicode, without lone surrogates"
    return None
