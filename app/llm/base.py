"""A language model as the rest of the service sees it, and the budget of its calls."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from app.errors import LLMBudgetSpent, LLMNotConfigured
from app.settings import LLMSettings


class Budget:
    """Calls and tokens of one run, prompts included; `spent` is for its report."""

    def __init__(self, calls: int, tokens: int) -> None:
        self._most_calls, self._most_tokens = calls, tokens
        self.calls = self.tokens = 0

    def claim(self, tokens: int) -> None:
        """Before a call whose prompt has so many tokens. Raises `LLMBudgetSpent`."""
        if self.calls >= self._most_calls:
            raise LLMBudgetSpent(f"this run has made the {self._most_calls} model calls that it may make")
        if self.tokens + tokens > self._most_tokens:
            raise LLMBudgetSpent(f"this run may spend {self._most_tokens} tokens, and has spent {self.tokens}")
        self.calls += 1

    def spend(self, tokens: int) -> None:
        self.tokens += tokens

    @property
    def spent(self) -> dict[str, int]:
        return {"calls": self.calls, "tokens": self.tokens}


T = TypeVar("T", bound=BaseModel)

ObserveCall: TypeAlias = Callable[[str, float, int], None]
"""Outcome of one call, its seconds, its tokens."""


class LLM(Protocol):
    @property
    def model(self) -> str: ...

    def budget(self) -> Budget:
        """A fresh one, for one run."""
        ...

    async def reply(self, instructions: str, data: str, shape: type[T], budget: Budget) -> T: ...

    async def close(self) -> None: ...


def configured(llm: LLM | None) -> LLM:
    """Raises `LLMNotConfigured`."""
    if llm is None:
        raise LLMNotConfigured("No language model is configured: set RECALLD_LLM_BASE_URL and RECALLD_LLM_MODEL.")
    return llm


def open_llm(settings: LLMSettings, observe: ObserveCall) -> LLM | None:
    """None where none is configured. Raises `LLMNotConfigured` where the extra is missing."""
    if not settings.base_url:
        return None
    try:
        from app.llm.client import OpenAIChat  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        raise LLMNotConfigured(
            f"RECALLD_LLM_BASE_URL is set, and the extra openai is not installed ({error.name} is missing): install it "
            "with `scripts/extra openai`, or `pip install '/path/to/recalld[openai]'`"
        ) from error
    return OpenAIChat(settings, observe)
