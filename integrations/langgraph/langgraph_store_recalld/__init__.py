"""Recalld as LangGraph's long-term store: `RecalldStore`."""

from langgraph_store_recalld.store import RecalldStore

__all__ = ["RecalldStore"]
