"""Prompts of the extractors, and the transcript of a conversation that they read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)

from app.core import prompt_text
from app.core.characters import says_nothing
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.core.work import off_loop
from app.jobs.queue import handled
from app.llm.base import ReplyShape
from app.memories.agents import LessonList
from app.sessions.repository import trust_of
from app.sessions.schemas import MESSAGES, SPEAKING, MessageRecord, own_text

CHUNK_TOKENS = 6_000
"""The limit of tokens of a chunk. A model with a small context reads shorter ones (`chunk_tokens`)."""
SHAPE_TOKENS = 700
"""Tokens that a request has besides data and instructions: the system message and the schema."""
LEAST_CHUNK_TOKENS = 400
MESSAGE_CHARS = 8_000
"""The limit of characters of one message."""


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A message of a conversation, without text that the service itself served. `trust` is 0 to 1."""

    seq: int
    role: str
    name: str | None
    at: str
    text: str
    trust: float = 1.0

    def shown(self) -> Json:
        """Returns the message as the model sees it."""
        named = {"name": self.name} if self.name else {}
        return {"seq": self.seq, "role": self.role, **named, "at": self.at, "text": self.text}


def read(messages: Sequence[MessageRecord]) -> list[TranscriptLine]:
    """Returns the messages of users and assistants that have a text, in order."""

    def line(message: MessageRecord) -> TranscriptLine | None:
        role = message["role"]
        if role not in SPEAKING:  # output of tools and system prompts is nobody's word: nothing is learned from it
            return None
        text = strip_served(own_text(message)).strip()[:MESSAGE_CHARS]
        return TranscriptLine(message["seq"], role, message["name"], message["timestamp"], text, trust_of(message))

    lines = handled(MESSAGES, messages, line)
    return [line for _, line in lines if line is not None and line.text]


def heard(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Returns the lines without small talk. Nothing can be learned from it."""
    return [line for line in lines if not says_nothing(line.text)]


async def chunked(lines: Sequence[TranscriptLine], prompt_tokens: int) -> list[list[TranscriptLine]]:
    """Splits lines into chunks for prompts of at most `prompt_tokens` tokens. A message that is longer than a chunk is
    cut, and is a chunk of its own."""
    limit = chunk_tokens(prompt_tokens, CONVERSATION_PROMPTS)

    def chunks() -> list[list[TranscriptLine]]:
        cut = (
            line if len(line.text) <= limit else replace(line, text=prompt_text.truncate(line.text, limit))
            for line in lines
        )
        return list(prompt_text.in_chunks(cut, lambda line: orjson.dumps(line.shown()).decode(), limit))

    return await off_loop(sum(len(line.text) for line in lines), chunks)


def chunk_tokens(prompt_tokens: int, names: Sequence[str]) -> int:
    """Returns the most tokens of a chunk that is read under these prompts: three quarters of what they leave. The last
    quarter is for known data."""
    instructions = sum(prompt_text.count(load(name).text) for name in names)
    return max(LEAST_CHUNK_TOKENS, min(CHUNK_TOKENS, (prompt_tokens - instructions - SHAPE_TOKENS) * 3 // 4))


def fitting(known: Json, limit: int) -> Json:
    """Returns known data of at most `limit` tokens, as far as its lists allow: the last items of the longest one go."""
    known = dict(known)
    while prompt_text.count(orjson.dumps(known).decode()) > limit:
        sizes = {name: len(orjson.dumps(value)) for name, value in known.items() if isinstance(value, list) and value}
        if not sizes:
            break
        longest = max(sizes, key=lambda name: sizes[name])
        known[longest] = known[longest][:-1]
    return known


def data(lines: Sequence[TranscriptLine], **known: Any) -> str:
    """Returns the conversation and further data as JSON for the model.

    The conversation stands first, so that calls about the same conversation begin alike and servers' prompt caches hit.
    """
    conversation: list[Json] = []
    day = None
    for line in lines:
        shown = line.shown()
        if line.at[:10] == day:  # only the first message of a day has its time, to the minute
            del shown["at"]
        else:
            shown["at"] = f"{line.at[:16]}Z"
        day = line.at[:10]
        conversation.append(shown)
    return orjson.dumps({"conversation": conversation, **known}).decode()


ASKED_IN_ORDER = ("statements", "experience")
"""The order of the parts in a request and in its answer."""
CONVERSATION_PROMPTS = ("conversation", "statements", "experience")
"""The prompts of a call for all parts of a conversation."""
_FOLDER = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt with its version."""

    name: str
    version: str
    text: str

    @property
    def id(self) -> str:
        """The prompt's id, as stored in the source of derived records."""
        return f"{self.name}.{self.version}"

    def with_wishes(self, wishes: str | None) -> str:
        """Returns the instructions, with those of the agent's owner added."""
        return self.text if wishes is None else f"{self.text}\n\nThe owner of this agent asks in addition:\n{wishes}"


@cache
def load(name: str) -> PromptTemplate:
    """Reads `prompts/NAME.md`, which begins with its version."""
    head, _, text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")
    return PromptTemplate(name, head.removeprefix("version: ").strip(), text.strip())


ReplyLine = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
TimeText = Annotated[str, StringConstraints(max_length=40)]
ReplyLines = Annotated[list[ReplyLine], Field(max_length=20)]
QuoteText = Annotated[str, StringConstraints(max_length=2000)]
"""The words of a message that show an item. It is the first field, so that a model writes it before the item."""


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


LENIENT = WrapValidator(_or_none)
"""An item that does not have its shape becomes None. The other items of the answer stay; None is counted as dropped."""


def _or_usual(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return 0.5


class Shape(ReplyShape):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class CitedItem(Shape):
    """What an item of a conversation says of itself. Code filters by these fields and by no other rule of meaning
    (`checks.quoted`). Every one must be given: a model that leaves one out has not thought of it."""

    quote: QuoteText
    certainty: Literal["stated", "guessed", "asked", "corrected"]
    holds: Literal["now", "then", "planned"]


class ReplacedText(Shape):
    """A known memory of which something no longer holds: `words` are those that do not, `left` what it says besides."""

    memory_id: Annotated[str, StringConstraints(max_length=128)]
    words: QuoteText
    left: QuoteText = ""


class LearnedStatement(CitedItem):
    """One claim. Memories, facts and values of the profile are made of it, with its time and its quote.

    `at`, `until`: since when it holds, or when it happened or will, and until when; null where nobody said so.
    "2026-12-04T15:00Z" is an instant, "2026-12-04" a day, "2026-12" a month, "2026" a year. `predicate` and `object`:
    a fact about the subject; `profile_field` and `object`: a value of the user's profile."""

    subject: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
    text: Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]
    kind: Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution"]
    at: TimeText | None = None
    until: TimeText | None = None
    predicate: Annotated[str, StringConstraints(max_length=256)] | None = None
    object: Annotated[str, StringConstraints(max_length=1000)] | None = None
    cardinality: Literal["one", "many"] = "many"
    profile_field: (
        Literal["name", "age", "home", "occupation", "interest", "conversation_preference", "preference"] | None
    ) = None
    always: Literal["health", "identity", "wish"] | None = None
    # no grammar of llama.cpp bounds a number, and no claim is lost for `"importance": 7`
    importance: Annotated[Annotated[float, Field(ge=0, le=1)], WrapValidator(_or_usual)] = 0.5
    replaces: Annotated[list[Annotated[ReplacedText | None, LENIENT]], Field(max_length=50)] = []


class Statements(Shape):
    answer_tokens = 4000
    statements: Annotated[list[Annotated[LearnedStatement, LENIENT]], Field(max_length=80)]


class LearnedLesson(CitedItem):
    about: Literal["work", "person"]
    kind: LessonList
    text: ReplyLine


class LearnedExperience(Shape):
    answer_tokens = 1000
    lessons: Annotated[list[Annotated[LearnedLesson, LENIENT]], Field(max_length=20)]


class StatedFact(Shape):
    subject: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
    predicate: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
    object: ReplyLine
    cardinality: Literal["one", "many"]
    valid_from: TimeText | None
    episode_numbers: Annotated[list[int], Field(max_length=100)]


class FoundFacts(Shape):
    facts: Annotated[list[StatedFact], Field(max_length=50)]


class StatedProcedure(Shape):
    procedure_id: Annotated[str, StringConstraints(max_length=128)] | None
    name: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"\S")]
    trigger: ReplyLine
    preconditions: ReplyLines
    steps: Annotated[list[ReplyLine], Field(min_length=1, max_length=30)]
    notes: ReplyLines
    episode_numbers: Annotated[list[int], Field(max_length=100)]


class FoundProcedures(Shape):
    procedures: Annotated[list[StatedProcedure], Field(max_length=20)]


class MergedFact(Shape):
    answer_tokens, cheap = 500, True
    value: ReplyLine | None


class JudgedPair(Shape):
    """What a model says of two records. The quotes come before the reason, so that a model writes them first.
    `earlier_words`: "my sister is vegetarian", `earlier_left`: "I have a peanut allergy"."""

    id: Annotated[int, Field(ge=0, le=1000)]
    verdict: Literal["same", "contradicts", "replaces", "unrelated"]
    earlier_words: QuoteText
    earlier_left: QuoteText = ""
    later_words: QuoteText
    later_left: QuoteText = ""
    subject: Annotated[str, StringConstraints(max_length=100)] = ""
    reason: Annotated[str, StringConstraints(max_length=1000)]


class JudgedPairs(Shape):
    answer_tokens = 2000
    pairs: Annotated[list[Annotated[JudgedPair, LENIENT]], Field(max_length=100)]


class RevisedSteps(Shape):
    """Better steps of a procedure; none if the episodes show no better way."""

    answer_tokens = 1000
    revised_steps: Annotated[list[ReplyLine], Field(max_length=30)]


class InsightSource(Shape):
    quote: QuoteText
    number: int


class FoundInsight(Shape):
    """What several memories show together, with those that show it; null if they show nothing."""

    answer_tokens = 1000
    sources: Annotated[list[Annotated[InsightSource, LENIENT]], Field(max_length=20)]
    insight: ReplyLine | None


class DayText(Shape):
    answer_tokens, cheap = 500, True
    text: Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]


class Objection(Shape):
    """Why the quote of an item does not support it. The reason comes first, so that a model thinks before it counts."""

    why: str
    number: int


class SecondLook(Shape):
    """An objection that is cut off or cannot be read would let its item pass, so the whole answer is then wrong."""

    whole = True
    unsupported: Annotated[list[Objection], Field(max_length=500)]


@cache
def together(shapes: tuple[type[ReplyShape], ...]) -> type[ReplyShape]:
    """Returns one shape with the fields of all, for one call. An answer of that shape is also of each of them."""
    if len(shapes) == 1:
        return shapes[0]
    # Fields of the last base come first, so those of the first shape are first in the answer. All are lists: of an
    # answer that is cut off the complete items stay.
    made = cast("type[ReplyShape]", create_model("Learned", __base__=tuple(reversed(shapes))))
    made.answer_tokens, made.cheap = sum(shape.answer_tokens for shape in shapes), False
    return made
