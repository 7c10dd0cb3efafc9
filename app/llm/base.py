"""The interface of a language model, and the budget of its calls."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from app.errors import LLMBudgetSpent, LLMNotConfigured
from app.settings import LLMSettings


class ReplyShape(BaseModel):
    """The shape of an answer."""

    answer_tokens: ClassVar[int] = 4096
    """Most tokens of an answer of this shape."""
    cheap: ClassVar[bool] = False
    """A small model can give such an answer."""
    whole: ClassVar[bool] = False
    """Of an answer that was cut off nothing can be used: what it does not say counts, too."""


class Allowance(Protocol):
    """The tokens that a tenant may spend on a day."""

    async def reserve(self, tokens: int) -> None:
        """Counts a call whose prompt has `tokens` tokens, before it is made. Raises LLMBudgetSpent."""

    async def settle(self, reserved: int, spent: Mapping[str, int]) -> None:
        """Counts what a call has spent: calls, tokens and cached tokens. `reserved` of the tokens are counted."""


class Budget:
    """Limits the calls and tokens of one run, prompts included, and those of its tenant on one day."""

    def __init__(self, calls: int, tokens: int, allowance: Allowance | None = None) -> None:
        self._most_calls, self._most_tokens = calls, tokens
        self.allowance = allowance
        self.calls = self.tokens = self.cached_tokens = 0

    async def claim(self, tokens: int) -> None:
        """Counts a call whose prompt has `tokens` tokens. Raises LLMBudgetSpent if the budget does not allow it."""
        if self.calls >= self._most_calls:
            raise LLMBudgetSpent(f"this run has made the {self._most_calls} model calls that it may make")
        if self.tokens + tokens > self._most_tokens:
            raise LLMBudgetSpent(f"this run may spend {self._most_tokens} tokens, and has spent {self.tokens}")
        if self.allowance is not None:
            await self.allowance.reserve(tokens)
        self.calls += 1

    async def spend(self, claimed: int, tokens: int, cached_tokens: int) -> None:
        """Adds the tokens of a finished call whose prompt was claimed with `claimed` tokens."""
        self.tokens += tokens
        self.cached_tokens += cached_tokens
        if self.allowance is not None:
            await self.allowance.settle(claimed, {"calls": 1, "tokens": tokens, "cached_tokens": cached_tokens})

    @property
    def spent(self) -> dict[str, int]:
        """Calls, tokens and how many of these the server's prompt cache had, for the report of the run."""
        return {"calls": self.calls, "tokens": self.tokens, "cached_tokens": self.cached_tokens}


T = TypeVar("T", bound=BaseModel)

ObserveCall: TypeAlias = Callable[[str, float, int], None]
"""Observes one call. Takes its outcome, its seconds and its tokens."""


class LLM(Protocol):
    """A language model that answers in a given shape."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def prompt_tokens(self) -> int:
        """Most tokens of a prompt: what the context has beside the answer."""

    def model_for(self, shape: type[BaseModel]) -> str:
        """Returns the name of the model that is asked for such an answer."""

    def budget(self, allowance: Allowance | None = None) -> Budget:
        """Returns a new budget for one run of a tenant with that allowance."""

    async def reply(self, instructions: str, data: str, shape: type[T], budget: Budget) -> T:
        """Returns the model's answer to `data` under `instructions`, parsed as `shape`.

        Raises LLMUnavailable, LLMReplyInvalid or LLMBudgetSpent.
        """

    async def close(self) -> None:
        """Closes the connections."""


def configured(llm: LLM | None) -> LLM:
    """Returns the model. Raises LLMNotConfigured if it is None."""
    if llm is None:
        raise LLMNotConfigured("No language model is configured: set RECALLD_LLM_BASE_URL and RECALLD_LLM_MODEL.")
    return llm


def open_llm(settings: LLMSettings, observe: ObserveCall) -> LLM | None:
    """Returns the model of the settings, or None if none is configured."""
    if not settings.base_url:
        return None
    from app.llm.client import OpenAIChat  # noqa: PLC0415 (its client takes half a second to import)

    return OpenAIChat(settings, observe)
