"""What sources offer to a prompt: candidates, and the headings under which some of them stand."""

from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

from app.facts.outdated import Utterance
from app.sessions.schemas import ToolCall


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
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]


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
    keys: frozenset[str] = frozenset()
    """Keys of what it says, made in `repetition.py`. Of candidates that share a key only one is packed."""
    says: frozenset[str] = frozenset()
    """Keys of what it says beside that, of each fact of a chain: what has one of them is not packed after it."""
    factor: float = 1.0
    """By what kind of text it is: an answer is seldom found in a line of the assistant, a question or a scrap."""
    derived: bool = False
    """Whether a model made it from other texts, so that it adds nothing where the prompt has its words."""
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

    @property
    def day(self) -> str:
        """The day when it was said; empty if it holds whenever it is read, as a fact does."""
        return "" if self.utterance is None else self.utterance.at[:10]

    def marked(self, text: str, partner: "Candidate | None") -> "Candidate":
        """Returns the candidate with a text that has marks, and with this partner."""
        return self if text == self.text and partner is self.partner else replace(self, text=text, partner=partner)
