"""Rules of what may be stored of a model's answer about a conversation. Each item has to be shown by a quote."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from app.core.served_text import strip_served
from app.facts.schemas import FactCreate
from app.learning import evidence
from app.learning.prompts import LearnedFact, LearnedLesson, LearnedMemory, ProfileItem, TranscriptLine
from app.learning.quotes import Quote, find
from app.learning.words import languages, said_by, table, tokens
from app.memories.repository import same_pair
from app.memories.schemas import MemoryCreate
from app.storage.schema import Doc
from app.storage.text import normalise_content

DroppedCounts = Counter[str]
"""Counts of dropped items by reason."""
USER_WORDS = ("user", "the user", "i", "me", "myself", "speaker")
"""Subjects of a fact that name the user."""
WISHES = ("preference", "instruction")
"""Memory types that may come from a request to the agent, such as "Please answer in German"."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one conversation.

    `said` maps message numbers to the memories made of the messages; `owner` has `agent_id` and `user_id`. `names` are
    those that the user goes by.
    """

    lines: Sequence[TranscriptLine]
    owner: Mapping[str, str | None]
    said: Mapping[int, Doc] = field(default_factory=dict)
    names: Sequence[str] = ()
    dropped: DroppedCounts = field(default_factory=Counter)

    # --- Memories -----------------------------------------------------------------------------------------------------

    def memories(
        self, learned: Sequence[LearnedMemory | None], known: Mapping[str, Doc]
    ) -> list[tuple[MemoryCreate, Doc]]:
        """Returns each memory to store, with further fields of its source.

        Its trust is that of the message that shows it. `known` are the memories that the model was shown: superseding
        another id, a record of another partition or a pinned memory is dropped. If one of them has more trust than the
        new memory, the new one is stored as disputed (`memories/create.py`).
        """
        taken: set[str] = set()
        result: list[tuple[MemoryCreate, Doc]] = []
        for one in self._valid(learned):
            content = strip_served(one.content).strip()
            quote = self._shown(
                one.quote, content, lambda quote, one=one, content=content: _memory(one, content, quote, self)
            )
            if quote is None:
                continue
            trust = self._trust(quote)
            retired = self._retired(one, known, {**self.owner, "trust": trust}, taken)
            taken |= {*retired}
            body = MemoryCreate(
                agent_id=self.owner["agent_id"],
                user_id=self.owner["user_id"],
                content=content,
                context=self._context(one, quote),
                memory_type=one.memory_type,
                importance=round(one.importance, 3),
                trust=trust,
                event_at=quote.line.at,
                supersedes=retired,
            )
            result.append((body, self._source(quote)))
        return result

    def _context(self, one: LearnedMemory, quote: Quote) -> str | None:
        """Returns the memory's condition, or None if the message does not say it; the memory stays then."""
        if one.context is None or evidence.no_value(one.context):
            return None
        if evidence.shown(one.context, quote.line.text):
            return one.context
        self.dropped["context"] += 1
        return None

    def _retired(
        self, one: LearnedMemory, known: Mapping[str, Doc], new: Mapping[str, Any], taken: set[str]
    ) -> list[str]:
        retired: list[str] = []
        for memory_id in dict.fromkeys(one.superseded_ids):
            doc = known.get(memory_id)
            if doc is None:
                self.dropped["invented_ids"] += 1
            elif not same_pair(doc, new):
                self.dropped["of_another_scope"] += 1
            elif memory_id in taken:
                self.dropped["retired_twice"] += 1
            elif doc["pinned"] and doc["trust"] <= new["trust"]:
                self.dropped["protected"] += 1
            else:
                retired.append(memory_id)
        return retired

    # --- Facts --------------------------------------------------------------------------------------------------------

    def facts(self, learned: Sequence[LearnedFact | None]) -> list[tuple[FactCreate, Doc]]:
        """Returns each fact to assert, with further fields of its source. A fact without a time is valid from its
        message on."""
        result: list[tuple[FactCreate, Doc]] = []
        for one in self._valid(learned):
            quote = self._shown(one.quote, one.object, lambda quote, one=one: _fact(one, quote, self))
            if quote is None:
                continue
            try:
                body = FactCreate(
                    agent_id=self.owner["agent_id"],
                    user_id=self.owner["user_id"],
                    subject=one.subject,
                    predicate=one.predicate,
                    object=one.object,
                    cardinality=one.cardinality,
                    trust=self._trust(quote),
                    valid_from=self._valid_from(one, quote),
                )
            except ValidationError:
                self.dropped["invalid"] += 1
                continue
            result.append((body, self._source(quote)))
        return result

    def _valid_from(self, one: LearnedFact, quote: Quote) -> str:
        if one.valid_from is None:
            return quote.line.at
        try:
            if evidence.time_shown(one.valid_from, quote):
                return one.valid_from
        except ValueError:
            pass
        self.dropped["time_not_said"] += 1
        return quote.line.at

    # --- Profile ------------------------------------------------------------------------------------------------------

    def profile(self, learned: Sequence[ProfileItem | None]) -> list[tuple[ProfileItem, Quote]]:
        """Returns the items that the user said about themselves, each with its quote."""
        result: list[tuple[ProfileItem, Quote]] = []
        for one in self._valid(learned):
            quote = self._shown(one.quote, one.value, lambda quote, one=one: _profile(one, quote))
            if quote is not None:
                result.append((one, quote))
        return result

    # --- Lessons ------------------------------------------------------------------------------------------------------

    def lessons(
        self, learned: Sequence[LearnedLesson | None], known: Mapping[str, Sequence[str]]
    ) -> list[LearnedLesson]:
        """Returns new lessons that a message shows. A lesson that the model was shown is no new evidence for itself."""
        texts = {normalise_content(text) for each in known.values() for text in each}
        result: list[LearnedLesson] = []
        for one in self._valid(learned):
            if normalise_content(one.text) in texts:
                self.dropped["known"] += 1
            elif self._shown(one.quote, one.text, lambda _: None) is not None:
                result.append(one)
        return result

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _valid(self, learned: Sequence[Any]) -> Iterator[Any]:
        for one in learned:
            if one is None:
                self.dropped["invalid"] += 1
            else:
                yield one

    def _shown(self, text: str, value: str, rule: Any) -> Quote | None:
        """Returns the place of a quote, or None if the item is dropped. `rule` takes the quote and returns a reason."""
        if not value.strip():
            self.dropped["empty"] += 1
            return None
        quote = find(text, self.lines, "user")
        reason = "unfounded" if quote is None else rule(quote)
        if reason is not None:
            self.dropped[reason] += 1
            return None
        return quote

    def _trust(self, quote: Quote) -> float:
        """Returns the trust of the memory made of the message, or else that of its role."""
        said = self.said.get(quote.line.seq)
        return quote.line.trust if said is None else float(said["trust"])

    def _source(self, quote: Quote) -> Doc:
        said = self.said.get(quote.line.seq)
        return {"memory_ids": [] if said is None else [said["memory_id"]], "quote": quote.text}

    def names_user(self, text: str) -> bool:
        """Returns whether a text names the user, as "user" or by name."""
        plain = " ".join(token.word for token in tokens(text))
        return plain in USER_WORDS or any(_mentions(text, name) for name in (*self.names, "user"))


def _memory(one: LearnedMemory, content: str, quote: Quote, rules: Rules) -> str | None:
    if quote.line.role != "user":
        return None if _promised(quote) else "said_by_assistant"
    if reason := _contradicted(content, quote):
        return reason
    about = evidence.about_user(quote, content)
    if about == "of_another_person" and not _names_person(content, quote, rules):
        return about
    if about == "not_about_user" and one.memory_type not in WISHES and rules.names_user(content):
        return about
    return evidence.content_shown(content, quote, rules.names)


def _contradicted(content: str, quote: Quote) -> str | None:
    """Returns `question`, `unsure` or `negated` if the memory says as certain, or denies, what the quote does not."""
    negated = evidence.negated(content)
    reason = evidence.asserted(quote, content, negated=negated)
    if reason == "unsure" and table("unsure").found_in(content):
        return None
    if reason is None and negated and not evidence.negated(quote.sentence):
        return "negated"
    return reason


def _names_person(content: str, quote: Quote, rules: Rules) -> bool:
    """Returns whether a memory is about the person that its quote is about: a relative, or the first word's name."""
    people = evidence.other_person(quote, content)
    if any(word in content.casefold() for word in people):
        return True
    first = tokens(quote.sentence)[:1]
    return not people and bool(first) and _mentions(content, first[0].word) and not rules.names_user(content)


def _promised(quote: Quote) -> bool:
    """Returns whether an assistant commits itself in its quote."""
    promises = table("promises")
    said = [token.word for token in tokens(quote.text)]
    return (
        "i'll" in said
        or sum(word in promises for word in said) > 1
        or any(word in quote.text for word in promises.unspaced)
    )


def _fact(one: LearnedFact, quote: Quote, rules: Rules) -> str | None:
    if quote.line.role != "user":
        return "said_by_assistant"
    if evidence.no_value(one.object) or evidence.no_value(one.subject):
        return "no_value"
    if not evidence.shown(one.object, quote.sentence):
        return "not_said"
    if not _says(one.predicate, quote):
        return "predicate_not_said"
    if reason := evidence.asserted(quote, one.object, negated=evidence.negated(one.predicate.replace("_", " "))):
        return reason
    if rules.names_user(one.subject) and not _relative(one.subject):
        return _of_user(one, quote)
    subject = " ".join(token.word for token in tokens(one.subject) if not rules.names_user(token.word))
    return None if evidence.shown(subject, quote.line.text) else "subject_not_said"


def _of_user(one: LearnedFact, quote: Quote) -> str | None:
    """Returns why a fact is not about the user. That the user has a brother is; what the brother does is not."""
    about = evidence.about_user(quote, one.object)
    if about == "of_another_person" and _relative(one.predicate.replace("_", " ")):
        return None
    return about


def _relative(text: str) -> bool:
    return table("relations").found_in(text)


def _says(predicate: str, quote: Quote) -> bool:
    """Returns whether the sentence says the predicate: by a word of its table, or else by one of its own words."""
    if any(words.found_in(quote.sentence) for words in said_by(predicate)):
        return True
    own = predicate.replace("_", " ")
    if said_by(predicate):
        return evidence.shown(own, quote.sentence)
    spoken = languages(quote.sentence)
    if _relative(own) and table("relations", spoken).found_in(quote.sentence):
        return True
    return any(
        evidence.shown(token.word, quote.sentence) for token in tokens(own) if token.word not in table("generic")
    )


_FIELDS = {"name": "name", "age": "age", "home": "live", "occupation": "work", "interest": "like"}
"""The predicate of each field that has one."""


def _profile(one: ProfileItem, quote: Quote) -> str | None:
    if evidence.no_value(one.value):
        return "no_value"
    if not evidence.shown(one.value, quote.sentence):
        return "not_said"
    if reason := evidence.asserted(quote, one.value, negated=one.field == "conversation_preference"):
        return reason
    about = evidence.about_user(quote, one.value)
    if about == "not_about_user" and one.field == "conversation_preference":
        return None  # a request to the agent has no subject
    if about is not None:
        return about
    predicate = _FIELDS.get(one.field)
    return None if predicate is None or one.field == "interest" or _says(predicate, quote) else "field_not_said"


def _mentions(text: str, name: str) -> bool:
    words = {token.word for token in tokens(name)}
    return bool(words) and words <= {token.word for token in tokens(text)}


def profile_patch(items: Sequence[ProfileItem], profile: Doc) -> Doc:
    """Returns the fields to add and replace in `profile`. The last item of a field counts."""
    patch: dict[str, Any] = {}
    for one in items:
        if one.field in ("interest", "conversation_preference"):
            name = {"interest": "interests", "conversation_preference": "conversation_preferences"}[one.field]
            patch.setdefault(name, []).append(one.value)
        elif one.field == "preference":
            patch.setdefault("preferences", {})[one.about or one.value] = one.value
        elif one.field == "age":
            digits = "".join(character for character in one.value if character.isdecimal())
            if digits and int(digits) <= 150:
                patch["age"] = int(digits)
        else:
            patch[one.field] = one.value
    return {name: value for name, value in patch.items() if value != profile.get(name)}


def new_lessons(lessons: Sequence[LearnedLesson]) -> Doc:
    """Returns the texts of lessons by list."""
    found: dict[str, list[str]] = {}
    for one in lessons:
        found.setdefault(one.kind, []).append(one.text)
    return found
