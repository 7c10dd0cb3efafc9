"""Recalld for PydanticAI: `RecalldToolset` and `RecalldHistory`."""

from pydantic_ai_recalld.history import RecalldHistory
from pydantic_ai_recalld.toolset import RecalldToolset

__all__ = ["RecalldHistory", "RecalldToolset"]
