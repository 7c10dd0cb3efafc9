"""What is stored of a model's answer about a conversation: each item that passes the checks, as a body to write."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from app.core.language import words
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import Invalid
from app.facts.profile import PREDICATES, UserProfile, field_of, settled
from app.facts.schemas import USER, FactCreate, FactRecord
from app.findings.service import meant
from app.learning import checks
from app.learning.checks import Quote, TimeSaid
from app.learning.prompts import (
    DatedItem,
    FactReply,
    LearnedFact,
    LearnedLesson,
    LearnedMemory,
    ProfileItem,
    TranscriptLine,
)
from app.memories.repository import same_partition
from app.memories.schemas import EvidenceName, MemoryCreate, MemoryRecord, Source
from app.storage.schema import OwnedRecord
from app.storage.text import normalise_content

DroppedCounts = Counter[str]
"""Counts of the items that were not stored as the model wrote them, by reason (`REASONS`)."""
REASONS: Mapping[str, str] = {
    "invalid": "it does not have the form that was asked for, or says nothing",
    "not_quoted": "its quote stands in no message that may show it",
    "not_stated": "the model says that it was guessed, asked or corrected",
    "not_of_this_part": "it is about somebody or some time that its part does not keep",
    "not_said": "a number, a date or a value of it stands not in its message",
    "unsupported": "the second look found that its quote does not support it",
    "known": "what is stored already stays as it is",
    "reworded": "the quoted sentence is stored instead, as a memory",
}
USER_WORDS = ("user", "the user", "user_name", "i", "me", "myself", "speaker", "assistant's user")
"""What models write for the user as the subject of a fact."""
UNSUPPORTED = "\x00unsupported"
"""Stands in an answer in place of an item that the second look removed. Its first character is in no stored text."""


class Replaced(NamedTuple):
    """A known memory with the words that no longer hold (none: all of it), and the index of the new memory that
    replaces them."""

    memory: MemoryRecord
    clause: EvidenceName
    by: int


@dataclass(frozen=True, slots=True)
class Rules:
    """Decides what is stored of a model's answer about one conversation.

    `lines`: the messages. `owner`: whose records are written. `message_memories`: the memories made of messages, by the
    numbers of the messages. `names`: the names of the user. `profiled`: whether the caller may change the profile;
    facts about the user then have the reserved subject. `looked`: whether the model has looked at the answer for a
    second time. `dropped`: counts the items that are not stored as they are.
    """

    lines: Sequence[TranscriptLine]
    owner: OwnedRecord
    message_memories: Mapping[int, MemoryRecord] = field(default_factory=dict)
    names: Sequence[str] = ()
    profiled: bool = True
    looked: bool = False
    dropped: DroppedCounts = field(default_factory=Counter)
    replaced: dict[str, Replaced] = field(default_factory=dict)

    # --- Memories -----------------------------------------------------------------------------------------------------

    def memories(
        self,
        learned: Sequence[LearnedMemory | None],
        known: Mapping[str, MemoryRecord],
        of_other_parts: Sequence[Any] = (),
    ) -> list[tuple[MemoryCreate, Source]]:
        """Returns each memory to store, with further fields of its source.

        A memory has the trust of the message that it quotes. `known`: the memories that the model was shown, by id.
        The new memory may supersede only these (`_retired`); it is stored as disputed if a memory that it supersedes
        has more trust (`memories/create.py`). `of_other_parts`: facts and items of the profile. A fact that its part
        cannot keep ("I'm moving to Bergen in May") becomes a memory with the sentence that it quotes.
        """
        taken: set[str] = set()
        result: list[tuple[MemoryCreate, Source]] = []
        sentences: set[str] = set()
        for memory, quote in self._storable("memory", learned):
            content, context = strip_served(memory.content).strip(), memory.context
            if not content:
                self.dropped["invalid"] += 1
                continue
            # "Their apprentice, 17, begins on 1 September." draws on what the user said elsewhere, too
            drawn_on = [*(line for line in self.lines if line.role == "user"), *quote.lines]
            if not checks.numbers_said(f"{content} {context or ''}", drawn_on, quote.sentence).stands:
                self.dropped["not_said"] += 1
                continue
            if not self.looked and not checks.verbatim(content, quote):
                self.dropped["reworded"] += 1
                content = quote.sentence
            if not self.looked and context is not None and not checks.verbatim(context, quote):
                context = None
            retired = self._retired(memory, known, self.trust_of(quote), taken, len(result))
            taken |= {*retired}
            sentences.add(quote.sentence)
            fields = {
                "memory_type": memory.memory_type,
                "importance": round(memory.importance, 3),
                "always": memory.always if memory.about == "user" and memory.holds == "now" else None,
            }
            result.append(self._memory(memory, quote, content=content, context=context, supersedes=retired, **fields))
        for item in of_other_parts:
            quoted = self._only_remembered(item) if isinstance(item, LearnedFact | ProfileItem) else None
            if quoted is not None and quoted.sentence not in sentences:
                sentences.add(quoted.sentence)
                result.append(self._memory(item, quoted, content=quoted.sentence, memory_type="fact"))
        return result

    def _memory(self, item: DatedItem, quote: Quote, **fields: Any) -> tuple[MemoryCreate, Source]:
        time = self._time(item.at, quote)
        body = MemoryCreate(
            agent_id=self.owner["agent_id"],
            user_id=self.owner["user_id"],
            trust=self.trust_of(quote),
            event_at=None if time is None else time.at,
            event_at_precision=None if time is None else time.precision,
            **fields,
        )
        return body, self.source_of(quote)

    def _time(self, given: str | None, quote: Quote) -> TimeSaid | None:
        """Returns the time that a model gives of an item, if the quoted message supports it."""
        return checks.time_said(given, quote.lines, quote.sentence, looked=self.looked)

    def _only_remembered(self, item: LearnedFact | ProfileItem) -> Quote | None:
        """Returns the quote of a fact or an item of the profile that becomes a memory, or None.

        Its own part cannot keep it (`_misplaced`), for example since it is planned without a day or about somebody
        else. Or it is over or still to come: then it is kept both as a fact and as a memory, because contexts show only
        facts that hold.
        """
        quote = checks.find_quote(item.quote, self.lines, "user")
        if quote is None or checks.refusal("memory", item, self.lines) is not None:
            return None
        return quote if item.holds in ("past", "planned") or self._misplaced(item, quote) is not None else None

    def _misplaced(self, item: LearnedFact | ProfileItem, quote: Quote) -> str | None:
        """Returns why a fact cannot be kept as a fact, or an item of the profile in the profile; None if it can."""
        is_fact = isinstance(item, LearnedFact)
        if reason := checks.refusal("fact" if is_fact else "profile", item, self.lines):
            return reason
        if item.holds == "planned":
            begins = self._time(item.at, quote)  # it becomes true on that day
            of_day = isinstance(item, LearnedFact) or item.field in PREDICATES
            if begins is None or begins.at <= quote.line.at or not of_day:
                return "not_of_this_part"
        if isinstance(item, LearnedFact):
            value = item.object
            of_user = is_user(item.subject, self.names)
            if of_user and item.about != "user":
                # the model says that it is about somebody else, and names the user as its subject; only "has_wife
                # Leila", about Leila, is said of the user, too
                whom = {*words(item.whom or "")}
                if not whom & {*words(f"{item.predicate.replace('_', ' ')} {item.object}")}:
                    return "not_of_this_part"
            in_profile = of_user and self.profiled and self.owner["user_id"] is not None
            if in_profile and item.holds == "past" and field_of(_of_user(item, self.owner)) is not None:
                return "not_of_this_part"  # a field has one value at a time, and when a past value ended is not known
        else:
            value = item.value
        return None if checks.value_shown(value, quote).enough(looked=self.looked) else "not_said"

    def _retired(
        self, memory: LearnedMemory, known: Mapping[str, MemoryRecord], trust: float, taken: set[str], by: int
    ) -> list[str]:
        """Returns the ids of the known memories that a memory supersedes. `trust`: that of the new memory. `taken`: ids
        that other memories of this answer supersede already. `by`: the index of the new memory.

        An invented id, words that a memory does not have, a record of another partition, an id in `taken` and a pinned
        memory (unless it has more trust, so that the new memory becomes disputed) count as `known`, and stay as they
        are. So does a memory that says other things, too; what no longer holds of it is noted in `replaced`.
        """
        retired: list[str] = []
        for replaced in {each.memory_id: each for each in memory.replaces if each is not None}.values():
            memory_id = replaced.memory_id
            other = known.get(memory_id)
            clause = None if other is None else meant(replaced.words, replaced.left, other["content"])
            protected = other is not None and other["pinned"] and other["trust"] <= trust
            if other is None or not same_partition(other, self.owner) or memory_id in taken or protected:
                self.dropped["known"] += 1
            elif not clause:
                if clause is None:
                    self.dropped["known"] += 1
                else:
                    retired.append(memory_id)
            elif other["trust"] <= trust:
                self.replaced.setdefault(memory_id, Replaced(other, clause, by))
        return retired

    # --- Facts --------------------------------------------------------------------------------------------------------

    def facts(self, learned: Sequence[LearnedFact | None], known: str = "") -> list[tuple[FactCreate, Source]]:
        """Returns each fact to assert, with further fields of its source.

        A fact without a time is valid from its message on, one that is planned from its day on. A fact that is over was
        valid until its message, and stands beside the facts that are known to hold at that time.

        `known`: the names in the facts that the model was shown. They may be subjects, too: "It squeals" is said of the
        "Kestrel 518", whose number stands in no message.
        """
        named = [*self.lines, *(replace(line, text=known) for line in self.lines[:1])]
        result: list[tuple[FactCreate, Source]] = []
        for fact, quote in self._storable("fact", learned):
            if not checks.numbers_said(f"{fact.subject} {fact.predicate}", named).enough(looked=self.looked):
                self.dropped["not_said"] += 1
                continue
            user = self.profiled and is_user(fact.subject, self.names)
            try:
                body = FactCreate(
                    agent_id=self.owner["agent_id"],
                    user_id=self.owner["user_id"],
                    **about(fact, self.owner, user=user),
                    trust=self.trust_of(quote),
                    **self._valid(fact, quote),
                )
            except (ValidationError, Invalid):
                self.dropped["invalid"] += 1
                continue
            result.append((body, self.source_of(quote)))
        return result

    def _valid(self, fact: LearnedFact, quote: Quote) -> Json:
        """Returns the fields of a fact that say from when, or until when, it holds: the time that the model gives, if
        the message supports its numbers, else the time of the message.

        When a fact that is over ended is not known, so it does not replace another fact of that time (`keep_both`). Its
        predicate keeps the cardinality that the model gives: who used to live in Rome lives in one place.
        """
        begins, ends = self._time(fact.at, quote), self._time(fact.until, quote)
        if unsaid := (fact.at is not None and begins is None) + (fact.until is not None and ends is None):
            self.dropped["not_said"] += unsaid
        begun, told = None if begins is None else begins.at, quote.line.at
        if fact.holds != "past":
            since = begun or told
            return {"valid_from": since} | ({"valid_until": ends.last} if ends and ends.last > since else {})
        until = ends.last if ends and ends.last < told else told
        over = {"valid_until": until, "on_conflict": "keep_both"}
        return over | ({"valid_from": begun} if begun and begun < until else {})

    # --- Profile ------------------------------------------------------------------------------------------------------

    def profile(self, learned: Sequence[ProfileItem | None]) -> list[tuple[ProfileItem, Quote]]:
        """Returns the items that the user said about themselves, each with its quote. An item loses its topic if the
        topic has a number that no message has, or, without the second look, words that its message does not have."""
        result: list[tuple[ProfileItem, Quote]] = []
        for item, quote in self._storable("profile", learned):
            topic = item.topic or ""
            worded = not checks.stands(topic, "\n".join(line.text for line in quote.lines))
            shown = checks.numbers_said(topic, self.lines).stands and (self.looked or not worded)
            result.append((item if shown else item.model_copy(update={"topic": None}), quote))
        return result

    def since(self, item: ProfileItem, quote: Quote) -> str:
        """Returns from when a value of the profile is true: its own time, or that of its message."""
        time = self._time(item.at, quote)
        return quote.line.at if time is None else time.at

    # --- Lessons ------------------------------------------------------------------------------------------------------

    def lessons(
        self, learned: Sequence[LearnedLesson | None], known: Mapping[str, Sequence[str]]
    ) -> list[LearnedLesson]:
        """Returns new lessons. `known`: the lessons that the model was shown; one of these is no new evidence for
        itself. The numbers of a lesson may stand in any message, also in what a tool gave back: a lesson draws on more
        than its quote."""
        texts = {normalise_content(text) for lessons in known.values() for text in lessons}
        result: list[LearnedLesson] = []
        for lesson, _ in self._storable("lesson", learned):
            if normalise_content(lesson.text) in texts:
                self.dropped["known"] += 1
            elif checks.numbers_said(lesson.text, self.lines).enough(looked=self.looked):
                result.append(lesson)
            else:
                self.dropped["not_said"] += 1
        return result

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _storable(self, part: str, learned: Sequence[Any]) -> Iterator[tuple[Any, Quote]]:
        """Yields the items of a part that may be stored, each with its quote. Counts the others by reason; a fact that
        becomes a memory instead (`_only_remembered`) counts as `reworded`."""
        for item in learned:
            if item is None or item == UNSUPPORTED:
                self.dropped["invalid" if item is None else "unsupported"] += 1
                continue
            quote = checks.find_quote(item.quote, self.lines, "user")
            if part in ("fact", "profile") and quote is not None:
                reason = self._misplaced(item, quote)
                if reason and self._only_remembered(item):
                    reason = "reworded"
            else:
                reason = checks.refusal(part, item, self.lines)
            if reason is not None:
                self.dropped[reason] += 1
            elif quote is not None:
                yield item, quote

    def trust_of(self, quote: Quote) -> float:
        """Returns the trust of what is learned from a quote: that of the memory made of its message, else that of the
        message."""
        memory = self.message_memories.get(quote.line.seq)
        return quote.line.trust if memory is None else memory["trust"]

    def source_of(self, quote: Quote) -> Source:
        """Returns the memory of the quoted message, and the quote, as fields of a source."""
        memory = self.message_memories.get(quote.line.seq)
        memory_ids = [] if memory is None else [memory["memory_id"]]
        return {"memory_ids": memory_ids, "quote": quote.text, "said_at": quote.line.at}


def about(fact: FactReply, owner: OwnedRecord, *, user: bool) -> Json:
    """Returns subject, predicate, object and cardinality of a fact.

    `user`: the fact is about the user. Its subject is then the reserved subject, so that the profile shows it, and a
    fact of a field of the profile has the cardinality `one`. Raises Invalid for a value that the profile cannot have.
    """
    stated = fact.model_dump(include={"subject", "predicate", "object", "cardinality"})
    if not user or owner["user_id"] is None:
        return stated
    stated["subject"] = USER
    of_profile = _of_user(fact, owner)
    if field_of(of_profile) is None:
        return stated
    settled(of_profile)
    return stated | {"cardinality": "one"}


def _of_user(fact: FactReply, owner: OwnedRecord) -> FactRecord:
    return {
        "subject": USER,
        "predicate": fact.predicate,
        "object": fact.object,
        "agent_id": owner["agent_id"],
        "user_id": owner["user_id"],
    }


def is_user(subject: str, names: Sequence[str]) -> bool:
    """Returns whether the subject of a fact is the user: a word such as "user", a name of the user or a part of it
    ("Ada" of "Ada Lovelace")."""
    own = words(subject)
    if " ".join(own) in USER_WORDS or subject == USER:
        return True
    return bool(own) and any({*own} <= {*words(name)} for name in names)


def profile_patch(items: Sequence[ProfileItem], profile: UserProfile) -> Json:
    """Returns the fields to change in `profile`: lists and preferences with the new values alone, any other field with
    the value of its last item."""
    lists = {"interest": "interests", "conversation_preference": "conversation_preferences"}
    patch: Json = {}
    for item in items:
        if item.field in lists:
            patch.setdefault(lists[item.field], []).append(item.value)
        elif item.field == "preference":
            patch.setdefault("preferences", {})[item.topic or item.value] = item.value
        elif item.field == "age":
            digits = "".join(character for character in item.value if character.isdecimal())
            if digits and int(digits) <= 150:
                patch["age"] = int(digits)
        else:
            patch[item.field] = item.value
    return {name: value for name, value in patch.items() if value != profile.get(name)}
