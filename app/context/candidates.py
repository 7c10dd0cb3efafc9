"""What sources offer to a prompt: candidates, and the headings under which some of them stand."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NotRequired, TypedDict

from app.facts.outdated import Utterance
from app.sessions.schemas import ToolCallRecord


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of entries. Entries with the same `key` share one heading; no prompt shows the key."""

    key: str
    date: str
    """A date such as `2026-05-08`."""
    conversation: bool = False
    """Whether it is a conversation. Conversations are numbered within the prompt."""


class PromptMessage(TypedDict):
    """A message as OpenAI's clients send it: `{"role": "assistant", "content": None, "tool_calls": [...]}`."""

    role: str
    content: str | None
    tool_calls: NotRequired[list[ToolCallRecord]]
    tool_call_id: NotRequired[str]


class Comparison(NamedTuple):
    """What an entry is compared by with others, so that a prompt says nothing twice: by keys, and by sentence."""

    keys: frozenset[str] = frozenset()
    """Keys of what it says, made in `repetition.py`. Of candidates that share a key only one is packed."""
    text: str | None = None
    """The text whose sentences are compared, if that is another one: without marks; of a fact without its time."""
    statements: tuple[str, ...] = ()
    """The sentences that it is compared by; empty: those of its text. A chain has those of its facts."""
    by_sentence: bool = False
    """Whether it is compared by sentence with others, in a section that is not."""
    of_its_day: bool = False
    """Whether it tells what happened on its day, so that the same words of another day tell something else."""
    content: tuple[int, str | None] | None = None
    """Hash of a memory's content, and its condition: equal for texts that say the same. None: it is no memory."""


BY_TEXT = Comparison()
"""Compared by the sentences of its text, where its section is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that may go into the prompt, such as `Candidate("mem_1", "message", "I moved to Boston", 0.4, "Ann: ")`.

    `text` is content as it was given; it is escaped when it is rendered.
    """

    id: str
    type: str
    text: str
    score: float | None = None
    """From 0 to 1: how well it answers the query. None: it was not searched for.

    Of a memory, a fact or an action it is a probability, that of a procedure is multiplied by how well it works, and
    that of a lesson or an interaction grows with the share of the query's words that it has. While the embedding model
    does not answer, what is searched has BM25. `intent.py` compares all of them."""
    prefix: str = ""
    """Text of the service before the content, such as time and speaker."""

    # what it says, by whom and when
    comparison: Comparison = BY_TEXT
    role: str | None = None
    """Role of a conversation turn."""
    turns: tuple[PromptMessage, ...] = ()
    """Messages that the candidate stands for as a whole, as they were given: a tool call and all its results."""
    utterance: Utterance | None = None
    """When and by whom it was said. None: not known, or of no importance."""

    # where it stands
    heading: Heading | None = None
    place: tuple[str, int] = ("", 0)
    """Position under the heading: by time, then by number."""

    # what goes with it
    memory_id: str | None = None
    """Memory that counts as accessed when the candidate is packed."""
    links: tuple[str, ...] = ()
    """Ids of the facts that the text states, in its order; empty if it is no fact."""
    partner: "Candidate | None" = None
    """The turn that belongs to this one: a question's answer, or the question before an answer."""
    part: "Callable[[int, int], Candidate] | None" = field(default=None, compare=False)
    """Makes the part of a chain from one of its facts up to another one, which stands where the prompt has the rest."""
    recalls: bool = False
    """Whether it stands for what was last talked about, which a query does not need that is answered."""

    @property
    def day(self) -> str:
        """The day when it was said; empty if it holds whenever it is read, as a fact does."""
        return "" if self.utterance is None else self.utterance.at[:10]

    @property
    def as_compared(self) -> str:
        """The text as it is compared with others."""
        return self.text if self.comparison.text is None else self.comparison.text

    @property
    def unmarked_line(self) -> str:
        """The line without marks. A fact is never marked: its compared text lacks the time for which it holds."""
        return f"{self.prefix}{self.text if self.type == 'fact' else self.as_compared}"

    def marked(self, text: str, partner: "Candidate | None") -> "Candidate":
        """Returns the candidate with a text that has marks, and with this partner."""
        if text == self.text and partner is self.partner:
            return self
        return replace(self, text=text, comparison=self.comparison._replace(text=self.as_compared), partner=partner)
