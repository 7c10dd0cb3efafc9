"""Recalld's API: `Recalld` and `AsyncRecalld` have a method for each operation, bodies and answers are typed dicts."""

from recalld_client import _generated as models
from recalld_client._base import Problem
from recalld_client._generated import AsyncRecalld, Recalld

__all__ = ["AsyncRecalld", "Problem", "Recalld", "models"]
