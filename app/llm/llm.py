"""What the service asks of a language model. Nothing but background work and extraction needs one."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from app.errors import LLMNotConfigured
from app.llm.budget import Budget
from app.settings import LLMSettings

T = TypeVar("T", bound=BaseModel)

Observe: TypeAlias = Callable[[str, float, int], None]
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


def open_llm(settings: LLMSettings, observe: Observe) -> LLM | None:
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
