"""Rules of what may be stored of a model's answer about a conversation. Each item has to be shown by a quote."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from app.core.characters import is_idle
from app.core.served_text import strip_served
from app.errors import Invalid
from app.facts.keys import USER, field_of, settled
from app.facts.schemas import FactCreate
from app.learning import evidence, quotes
from app.learning.output_validation import lesson_reason, profile_reason, time_shown
from app.learning.prompts import FactReply, LearnedFact, LearnedLesson, LearnedMemory, ProfileItem, TranscriptLine
from app.learning.quotes import Quote, find, narrowed
from app.learning.retractions import says_verbs, states_nothing, withdrawn, without_withdrawn
from app.learning.words import mentions, no_value, table, tokens
from app.memories.repository import same_pair
from app.memories.schemas import MemoryCreate
from app.storage.schema import Doc
from app.storage.text import normalise_content

DroppedCounts = Counter[str]
"""Counts of dropped items by reason."""
USER_WORDS = ("user", "the user", "user_name", "i", "me", "myself", "speaker")
"""Subjects of a fact that name the user."""
REWORDED = ("not_said", "not_about_user", "other_words", "given_up")
"""Reasons that lie in the words of a memory: its quote has other ones."""
WISHES = ("preference", "instruction")
"""Memory types that may come from a request to the agent, such as "Please answer in German"."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one conversation.

    `said` maps message numbers to the memories made of the messages; `owner` has `agent_id` and `user_id`. `names` are
    those that the user goes by. `profiled`: whether the caller may change the profile; facts about the user then have
    the reserved subject.
    """

    lines: Sequence[TranscriptLine]
    owner: Mapping[str, str | None]
    said: Mapping[int, Doc] = field(default_factory=dict)
    names: Sequence[str] = ()
    profiled: bool = True
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
            if (worded := self._worded(one)) is None:
                continue
            content, quote = worded
            trust = self.trust_of(quote)
            retired = self._retired(one, known, {**self.owner, "trust": trust}, taken)
            taken |= {*retired}
            body = MemoryCreate(
                agent_id=self.owner["agent_id"],
                user_id=self.owner["user_id"],
                content=content,
                context=self._context(one, content, quote),
                memory_type=one.memory_type,
                importance=round(one.importance, 3),
                trust=trust,
                event_at=quote.line.at,
                supersedes=retired,
            )
            result.append((body, self.source_of(quote)))
        return result

    def _worded(self, one: LearnedMemory) -> tuple[str, Quote] | None:
        """Returns the text of a memory and its evidence, or None if it is dropped.

        If the model tells in words of its own, or in another language, what its quote says, the sentence of the quote
        is stored instead and counted as `reworded`. Advice beside a promise of the assistant is left out.
        """
        content = strip_served(one.content).strip()
        quote = find(one.quote, self.lines, "user")
        if quote is not None and quote.line.role != "user":
            content = quotes.promises(content, quote) or content
            if quotes.promised(quote) and evidence.content_shown(content, quote, self.names):
                self.dropped["reworded"] += 1
                content = quotes.promises(quote.sentence, quote)
        elif quote is not None:
            content = without_withdrawn(content, quote, self.lines)
            if self._reworded(one, content, quote):
                self.dropped["reworded"] += 1
                content = without_withdrawn(quote.sentence, quote, self.lines)
        shown = self._shown(one.quote, content, lambda quote: _memory(one, content, quote, self))
        return None if shown is None else (content, shown)

    def _reworded(self, one: LearnedMemory, content: str, quote: Quote) -> bool:
        """Returns whether the sentence of the quote takes the place of a memory's words."""
        own = quote.sentence
        in_other_words = _memory(one, content, quote, self) in REWORDED and evidence.share_terms(content, own)
        return (in_other_words or quotes.other_language(content, own)) and _memory(one, own, quote, self) is None

    def _context(self, one: LearnedMemory, content: str, quote: Quote) -> str | None:
        """Returns the memory's condition, or None if the message does not say it, or if it repeats the memory; the
        memory stays then."""
        if one.context is None or no_value(one.context):
            return None
        repeated = evidence.content_terms(content) <= evidence.content_terms(one.context)
        if evidence.shown(one.context, quote.line.text) and not repeated:
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
            quote = self._shown(
                one.quote, one.object, lambda quote, one=one: self._stated(one, narrowed(quote, one.object))
            )
            if quote is None:
                continue
            try:
                body = FactCreate(
                    agent_id=self.owner["agent_id"],
                    user_id=self.owner["user_id"],
                    **about(one, self.owner, user=self.profiled and is_user(one.subject, self.names)),
                    trust=self.trust_of(quote),
                    valid_from=self._valid_from(one, quote),
                )
            except (ValidationError, Invalid):
                self.dropped["invalid"] += 1
                continue
            result.append((body, self.source_of(quote)))
        return result

    def _stated(self, one: LearnedFact, quote: Quote) -> str | None:
        return _fact(one, quote, self) or withdrawn(quote, one.predicate.replace("_", " "), self.lines)

    def _valid_from(self, one: LearnedFact, quote: Quote) -> str:
        if one.valid_from is None:
            return quote.line.at
        try:
            if time_shown(one.valid_from, quote):
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
            quote = self._shown(
                one.quote, one.value, lambda quote, one=one: profile_reason(one, narrowed(quote, one.value))
            )
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
            elif (
                self._shown(one.quote, one.text, lambda quote, one=one: lesson_reason(one.text, quote, self.lines))
                is not None
            ):
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
        reason: str | None = "unfounded"
        if quote is not None:
            idle = "small_talk" if is_idle(quote.sentence) else None
            reason = rule(quote) or idle or withdrawn(quote, value, self.lines)
        if reason is not None:
            self.dropped[reason] += 1
            return None
        return quote

    def trust_of(self, quote: Quote) -> float:
        """Returns the trust of the memory made of the message, or else that of its role."""
        said = self.said.get(quote.line.seq)
        return quote.line.trust if said is None else float(said["trust"])

    def source_of(self, quote: Quote) -> Doc:
        """Returns the memory of the quoted message, and the quote, as fields of a source."""
        said = self.said.get(quote.line.seq)
        return {"memory_ids": [] if said is None else [said["memory_id"]], "quote": quote.text}

    def names_user(self, text: str) -> bool:
        """Returns whether a text names the user, as "user" or by name."""
        plain = " ".join(token.word for token in tokens(text))
        return plain in USER_WORDS or any(mentions(text, name) for name in (*self.names, "user"))


def about(one: FactReply, owner: Mapping[str, str | None], *, user: bool) -> Doc:
    """Returns subject, predicate, object and cardinality of a fact. If it is about the user, the subject is the
    reserved one, so that the profile shows what is learned. Raises Invalid for a value that the profile cannot have."""
    stated = one.model_dump(include={"subject", "predicate", "object", "cardinality"})
    if not user or owner["user_id"] is None:
        return stated
    stated["subject"] = USER
    fact = {**stated, **owner}
    if field_of(fact) is None:
        return stated
    settled(fact)
    return stated | {"cardinality": "one"}


def is_user(subject: str, names: Sequence[str]) -> bool:
    """Returns whether a subject is the user: a word such as "user", one of the user's names, or a part of one."""
    words = [token.word for token in tokens(subject)]
    if " ".join(words) in USER_WORDS or subject == USER:
        return True
    return bool(words) and any({*words} <= {token.word for token in tokens(name)} for name in names)


def _memory(one: LearnedMemory, content: str, quote: Quote, rules: Rules) -> str | None:
    if quote.line.role != "user":
        return None if quotes.promised(quote) else "said_by_assistant"
    if quotes.cited(quote, content):
        return "cited"
    if reason := _contradicted(content, quote, wish=one.memory_type in WISHES):
        return reason
    about = evidence.about_user(quote, content)
    if about == "of_another_person" and not _names_person(content, quote, rules):
        return about
    if about == "not_about_user" and one.memory_type not in WISHES and rules.names_user(content):
        return about
    unstated = None if one.memory_type in WISHES else states_nothing(content, quote)
    return unstated or evidence.content_shown(content, quote, rules.names) or says_verbs(content, quote)


def _contradicted(content: str, quote: Quote, *, wish: bool) -> str | None:
    """Returns `question`, `unsure` or `negated` if the memory says as certain, or denies, what the quote does not."""
    negated = evidence.negated(content)
    reason = evidence.asserted(quote, content, negated=negated, requested=wish and evidence.requested(quote))
    if reason == "unsure" and table("unsure").found_in(content):
        return None
    if reason == "negated" and content == quote.sentence:  # says what it denies
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
    return not people and bool(first) and mentions(content, first[0].word) and not rules.names_user(content)


def _fact(one: LearnedFact, quote: Quote, rules: Rules) -> str | None:
    if quote.line.role != "user":
        return "said_by_assistant"
    if no_value(one.object) or no_value(one.subject):
        return "no_value"
    if not evidence.shown(one.object, quote.sentence):
        return "not_said"
    if not evidence.says_predicate(one.predicate, quote, one.object):
        return "predicate_not_said"
    told = f"{one.predicate.replace('_', ' ')} {one.object}"
    if reason := evidence.asserted(quote, one.object, negated=evidence.negated(told)):
        return reason
    user = rules.names_user(one.subject) or is_user(one.subject, rules.names)
    if user and not evidence.relative(one.subject):
        return "cited" if quotes.cited(quote, one.object) else _of_user(one, quote)
    subject = " ".join(token.word for token in tokens(one.subject) if not rules.names_user(token.word))
    if not evidence.shown(subject, quote.line.text):
        return "subject_not_said"
    apart = not evidence.shown(subject, evidence.clause_of(quote, one.object))
    return "of_user" if apart and evidence.about_user(quote, one.object) is None else None


def _of_user(one: LearnedFact, quote: Quote) -> str | None:
    """Returns why a fact is not about the user. That the user has a brother is; what the brother does is not."""
    about = evidence.about_user(quote, one.object)
    if about in ("of_another_person", "not_about_user") and evidence.relative(one.predicate.replace("_", " ")):
        return None if evidence.name(one.object) or evidence.number(one.object) else about
    return about
