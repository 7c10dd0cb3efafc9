"""LangGraph's filters and namespace patterns. Pure."""

from collections.abc import Mapping
from typing import Any

from langgraph.store.base import MatchCondition

OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def check(condition: Mapping[str, Any] | None) -> None:
    """Raises ValueError for an operator that is not known, so that no filter silently matches nothing."""
    for name, wanted in (condition or {}).items():
        if not isinstance(wanted, Mapping):
            continue
        unknown = [word for word in wanted if str(word).startswith("$") and word not in OPERATORS]
        if unknown:
            raise ValueError(f"filter[{name!r}]: unknown operator {unknown[0]}; known are {', '.join(OPERATORS)}.")
        check(wanted)


def matches(value: Mapping[str, Any], condition: Mapping[str, Any] | None) -> bool:
    """Whether a stored value has all entries of a filter."""
    return all(_fits(value.get(name), wanted) for name, wanted in (condition or {}).items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(word).startswith("$") for word in wanted):
            return all(_compare(value, word, operand) for word, operand in wanted.items())
        return isinstance(value, Mapping) and matches(value, wanted)
    if isinstance(wanted, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same and all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compare(value: Any, operator: str, operand: Any) -> bool:
    """Texts compare as texts, numbers as numbers. A missing value, or one of another kind, is in no order."""
    if operator in ("$eq", "$ne"):
        return bool(value == operand) is (operator == "$eq")
    order = _order(value, operand)
    if order is None:
        return False
    return {"$gt": order > 0, "$gte": order >= 0, "$lt": order < 0, "$lte": order <= 0}[operator]


def _order(value: Any, operand: Any) -> int | None:
    """-1, 0 or 1; None where the two have no order. Texts that are numbers compare with numbers."""
    if isinstance(value, str) and isinstance(operand, str):
        return (value > operand) - (value < operand)
    try:
        left, right = float(value), float(operand)
    except (TypeError, ValueError):
        return None
    return (left > right) - (left < right)


def namespace_matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with a path; `*` stands for any label."""
    step = 1 if condition.match_type == "prefix" else -1
    path, labels = tuple(condition.path)[::step], namespace[::step]
    return len(path) <= len(labels) and all(a in ("*", b) for a, b in zip(path, labels, strict=False))
