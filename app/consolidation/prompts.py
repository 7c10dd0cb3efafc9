"""What the model is told, one file each; the version is kept in the source of all that came of it."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    version: str
    text: str

    @property
    def id(self) -> str:
        """As it stands in a source."""
        return f"{self.name}.{self.version}"

    def with_wishes(self, wishes: str | None) -> str:
        """The instructions, and what the agent's owner asks for beside."""
        return self.text if wishes is None else f"{self.text}\n\nThe owner of this agent asks in addition:\n{wishes}"


@cache
def load(name: str) -> Prompt:
    """`prompts/NAME.md`, which begins with its version."""
    head, _, text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")
    return Prompt(name, head.removeprefix("version: ").strip(), text.strip())
