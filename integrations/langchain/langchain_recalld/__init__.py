"""Recalld for LangChain: `RecalldChatMessageHistory` and `RecalldRetriever`."""

from langchain_recalld.history import RecalldChatMessageHistory
from langchain_recalld.retriever import RecalldRetriever

__all__ = ["RecalldChatMessageHistory", "RecalldRetriever"]
