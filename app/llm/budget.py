"""What one run may spend on the model."""

from app.errors import LLMBudgetSpent


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
