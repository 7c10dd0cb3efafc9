"""What is stored of a model's answer about a conversation: the statements that pass the checks, and what they make."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from unicodedata import category

from pydantic import ValidationError

from app.core.language import sentences, word_count, wording, words
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import Invalid
from app.facts.profile import PREDICATES, field_of, settled
from app.facts.schemas import FACTS, USER, FactCreate
from app.findings.service import meant
from app.learning import checks
from app.learning.prompts import CitedItem, LearnedLesson, LearnedStatement, TranscriptLine
from app.memories.repository import same_partition
from app.memories.schemas import EvidenceName, MemoryCreate, MemoryRecord, Source
from app.profiles.users import ProfilePatch
from app.storage.schema import OwnedRecord
from app.storage.text import normalise_content

DroppedCounts = Counter[str]
"""Counts of the items that were not stored as the model wrote them, by reason, as docs/contributing/learning.md lists
them: `{"not_quoted": 2, "invalid": 1}`."""
USER_WORDS = ("user", "the user", "user_name", "i", "me", "myself", "speaker", "assistant's user")
"""What models write for the user as a subject."""
UNSUPPORTED = "\x00unsupported"
"""Stands in an answer in place of an item that the second look removed. Its first character is in no stored text."""


class Replaced(NamedTuple):
    """A known memory with the words that no longer hold (none: all of it), and the index of the new memory that
    replaces them."""

    memory: MemoryRecord
    clause: EvidenceName
    by: int


class Accepted(NamedTuple):
    """A statement that passed the checks. `at`, `until`: its times, as far as its message supports them."""

    statement: LearnedStatement
    quote: checks.Quote
    text: str
    of_user: bool
    at: checks.TimeSaid | None
    until: checks.TimeSaid | None
    source: Source
    """The message's memory, the quote and the time, as fields of a source."""
    trust: float
    """That of the memory made of the message, else that of the message."""


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

    def accepted(self, statements: Sequence[LearnedStatement | None]) -> list[Accepted]:
        """Returns the statements that may be stored. Counts the others by reason."""
        result: list[Accepted] = []
        for statement in statements:
            of_user = isinstance(statement, LearnedStatement) and is_user(statement.subject, self.names)
            quote = self._quoted(statement, of_user=of_user)
            if quote is None or statement is None:
                continue
            text = strip_served(statement.text).strip()
            # "Their apprentice, 17, begins on 1 September." draws on what the user said elsewhere, too
            drawn_on = [*(line for line in self.lines if line.role == "user"), *quote.lines]
            if not text or not checks.numbers_said(text, drawn_on, quote.sentence).stands:
                self.dropped["not_said" if text else "invalid"] += 1
                continue
            if not self.looked and not checks.verbatim(text, quote):
                self.dropped["reworded"] += 1
                text = quote.sentence
            at, until = (
                checks.time_said(given, quote.lines, quote.sentence, looked=self.looked)
                for given in (statement.at, statement.until)
            )
            memory = self.message_memories.get(quote.line.seq)
            memory_ids = [] if memory is None else [memory["memory_id"]]
            source: Source = {"memory_ids": memory_ids, "quote": quote.text, "said_at": quote.line.at}
            trust = quote.line.trust if memory is None else memory["trust"]
            result.append(Accepted(statement, quote, text, of_user, at, until, source, trust))
        return result

    def _quoted(self, item: CitedItem | str | None, *, of_user: bool = False) -> checks.Quote | None:
        """Returns the quote of an item that may be stored, or None and counts why not."""
        if isinstance(item, CitedItem):
            quote = checks.quoted(item, self.lines, of_user=of_user)
        else:
            quote = "invalid" if item is None else "unsupported"
        if isinstance(quote, checks.Quote):
            return quote
        self.dropped[quote] += 1
        return None

    # --- What statements make -----------------------------------------------------------------------------------------

    def memories(
        self, accepted: Sequence[Accepted], known: Mapping[str, MemoryRecord]
    ) -> list[tuple[MemoryCreate, Source]]:
        """Returns the memory of each statement, with further fields of its source.

        `known`: the memories that the model was shown, by id. The new memory may supersede only these (`_retired`); it
        is stored as disputed if a memory that it supersedes has more trust (`memories/create.py`).
        """
        taken: set[str] = set()
        result: list[tuple[MemoryCreate, Source]] = []
        for by, one in enumerate(accepted):
            retired = self._retired(one, known, taken, by)
            taken |= {*retired}
            body = MemoryCreate(
                agent_id=self.owner["agent_id"],
                user_id=self.owner["user_id"],
                content=one.text,
                memory_type=one.statement.kind,
                importance=round(one.statement.importance, 3),
                always=one.statement.always if one.of_user and one.statement.holds == "now" else None,
                supersedes=retired,
                trust=one.trust,
                event_at=None if one.at is None else one.at.at,
                event_at_precision=None if one.at is None else one.at.precision,
            )
            result.append((body, one.source))
        return result

    def _retired(self, new: Accepted, known: Mapping[str, MemoryRecord], taken: set[str], by: int) -> list[str]:
        """Returns the ids of the known memories that a statement supersedes. `taken`: ids that other statements of this
        answer supersede already. `by`: the index of the statement.

        An invented id, words that a memory does not have, a record of another partition, an id in `taken` and a pinned
        memory (unless it has more trust, so that the new memory becomes disputed) count as `known`, and stay as they
        are. So does a memory that says other things, too; what no longer holds of it is noted in `replaced`.
        """
        retired: list[str] = []
        for replaced in {each.memory_id: each for each in new.statement.replaces if each is not None}.values():
            memory_id = replaced.memory_id
            other = known.get(memory_id)
            clause = None if other is None else meant(replaced.words, replaced.left, other["content"])
            protected = other is not None and other["pinned"] and other["trust"] <= new.trust
            if other is None or not same_partition(other, self.owner) or memory_id in taken or protected:
                self.dropped["known"] += 1
            elif not clause:
                if clause is None:
                    self.dropped["known"] += 1
                else:
                    retired.append(memory_id)
            elif other["trust"] <= new.trust:
                self.replaced.setdefault(memory_id, Replaced(other, clause, by))
        return retired

    def facts(self, accepted: Sequence[Accepted], known: str = "") -> list[tuple[FactCreate, Source]]:
        """Returns the facts of the statements that state one, with further fields of its source. Name, age, home and
        occupation of the user are facts.

        A fact without a time is valid from its message on, one that is planned from its day on. A fact that is over was
        valid until its message, and stands beside the facts that are known to hold at that time.

        `known`: the names in the facts that the model was shown. They may be subjects, too: "It squeals" is said of the
        "Kestrel 518", whose number stands in no message.
        """
        named = [*self.lines, *(replace(line, text=known) for line in self.lines[:1])]  # `known` as one line more
        result: list[tuple[FactCreate, Source]] = []
        for one in accepted:
            statement = one.statement
            predicate, value = statement.predicate, (statement.object or "").strip()
            if one.of_user and (of_field := PREDICATES.get(statement.profile_field or "")):
                predicate = of_field
                if statement.profile_field == "age":  # "58 years"
                    value = "".join(character for character in value if character.isdecimal())
            if not predicate or not value or one.quote.line.role != "user":
                continue
            stated = {
                "subject": statement.subject,
                "predicate": predicate,
                "object": value,
                "cardinality": statement.cardinality,
            }
            user = self.profiled and one.of_user
            try:
                fields = fact_fields(stated, self.owner, user=user)
            except Invalid:
                self.dropped["invalid"] += 1
                continue
            single = user and field_of(FACTS.as_record({**self.owner, **fields})) is not None
            if statement.holds == "planned":
                belongs = one.at is not None and one.at.at > one.quote.line.at  # it becomes true on that day
            else:  # a field has one value at a time, and when a past value ended is not known
                belongs = statement.holds == "now" or not single
            named_numbers = checks.numbers_said(f"{statement.subject} {predicate}", named)
            if not belongs:
                self.dropped["not_of_this_part"] += 1
            elif not named_numbers.enough(looked=self.looked) or not self._shown(value, one.quote):
                self.dropped["not_said"] += 1
            else:
                try:
                    body = FactCreate(**{**self.owner, **fields}, trust=one.trust, **self._valid(one))
                except ValidationError:
                    self.dropped["invalid"] += 1
                else:
                    result.append((body, one.source))
        return result

    def _shown(self, value: str, quote: checks.Quote) -> bool:
        return checks.value_shown(value, quote).enough(looked=self.looked)

    def _valid(self, one: Accepted) -> Json:
        """Returns the fields of a fact that say from when, or until when, it holds: the time that the model gives, if
        the message supports its numbers, else the time of the message.

        When a fact that is over ended is not known, so it does not replace another fact of that time (`keep_both`). Its
        predicate keeps the cardinality that the model gives: who used to live in Rome lives in one place.
        """
        given, begins, ends = one.statement, one.at, one.until
        if unsaid := (given.at is not None and begins is None) + (given.until is not None and ends is None):
            self.dropped["not_said"] += unsaid
        begun, told = None if begins is None else begins.at, one.quote.line.at
        if given.holds != "then":
            since = begun or told
            return {"valid_from": since} | ({"valid_until": ends.last} if ends and ends.last > since else {})
        until = ends.last if ends and ends.last < told else told
        over = {"valid_until": until, "on_conflict": "keep_both"}
        return over | ({"valid_from": begun} if begun and begun < until else {})

    def profile(self, accepted: Sequence[Accepted]) -> list[tuple[Json, checks.Quote]]:
        """Returns what the statements add to the lists and preferences of the profile, each as a patch with its quote.
        The user said it about themselves, and it holds now."""
        lists = {"interest": "interests", "conversation_preference": "conversation_preferences"}
        result: list[tuple[Json, checks.Quote]] = []
        for one in accepted:
            name, value = one.statement.profile_field, (one.statement.object or "").strip()
            if name is None or name in PREDICATES:
                continue
            if not one.of_user or one.statement.holds != "now" or one.quote.line.role != "user":
                self.dropped["not_of_this_part"] += 1
            elif not value or not self._shown(value, one.quote):
                self.dropped["not_said" if value else "invalid"] += 1
            elif name in lists:
                result.append(({lists[name]: [value]}, one.quote))
            else:
                topic = (one.statement.predicate or "").replace("_", " ").strip()
                worded = not checks.stands(topic, "\n".join(line.text for line in one.quote.lines))
                shown = checks.numbers_said(topic, self.lines).stands and (self.looked or not worded)
                result.append(({"preferences": {topic if topic and shown else value: value}}, one.quote))
        return result

    def lessons(
        self, learned: Sequence[LearnedLesson | None], known: Mapping[str, Sequence[str]]
    ) -> list[LearnedLesson]:
        """Returns new lessons. `known`: the lessons that the model was shown; one of these is no new evidence for
        itself. The numbers of a lesson may stand in any message, also in what a tool gave back: a lesson draws on more
        than its quote."""
        texts = {normalise_content(text) for lessons in known.values() for text in lessons}
        result: list[LearnedLesson] = []
        for lesson in learned:
            if self._quoted(lesson) is None or lesson is None:
                continue
            if normalise_content(lesson.text) in texts:
                self.dropped["known"] += 1
            elif checks.numbers_said(lesson.text, self.lines).enough(looked=self.looked):
                result.append(lesson)
            else:
                self.dropped["not_said"] += 1
        return result


def fact_fields(stated: Json, owner: OwnedRecord, *, user: bool) -> Json:
    """Returns subject, predicate, object and cardinality of a fact.

    `user`: the fact is about the user. Its subject is then the reserved subject, so that the profile shows it, and a
    fact of a field of the profile has the cardinality `one`. Raises Invalid for a value that the profile cannot have.
    """
    if not user or owner["user_id"] is None:
        return stated
    of_user = FACTS.as_record({**owner, **stated, "subject": USER})
    if field_of(of_user) is None:
        return {**stated, "subject": USER}
    settled(of_user)
    return {**stated, "subject": USER, "cardinality": "one"}


def is_user(subject: str, names: Sequence[str]) -> bool:
    """Returns whether the subject of a statement is the user: a word such as "user", a name of the user or a part of it
    ("Ada" of "Ada Lovelace")."""
    own = words(subject)
    if " ".join(own) in USER_WORDS or subject == USER:
        return True
    return bool(own) and any({*own} <= {*words(name)} for name in names)


MAX_WORDS = 150
"""The most words of a summary. In scripts without spaces two characters count as a word."""


def summary_of(earlier: str, statements: Sequence[Accepted], known: Mapping[str, str], own: Container[str]) -> str:
    """Returns a session's summary: what still holds of the earlier one, and what the statements say that is new. If
    that is too long, the oldest sentences go. An empty text: the statements change nothing.

    `known`: the texts of the memories that the model was shown, by id. What a statement replaces of them goes. `own`:
    the ids of those that the session itself has led to.
    """
    left = {
        wording(known[replaced.memory_id]): replaced.left.strip()
        for one in statements
        for replaced in one.statement.replaces
        if replaced is not None and replaced.memory_id in known
    }
    texts = [left.get(wording(sentence), sentence) for sentence in sentences(earlier)]
    said = {wording(text) for text in (*texts, *(text for memory_id, text in known.items() if memory_id not in own))}
    new = [one.text for one in statements if wording(one.text) not in said and word_count(one.text) <= MAX_WORDS]
    if not new:
        return ""
    texts = [text if category(text[-1]) == "Po" else f"{text}." for text in dict.fromkeys([*texts, *new]) if text]
    while sum(map(word_count, texts)) > MAX_WORDS:
        texts.pop(0)
    return " ".join(texts)


def profile_patch(patches: Sequence[Json]) -> ProfilePatch:
    """Returns one patch: lists and preferences with the values of all."""
    patch: Json = {}
    for name, value in (item for one in patches for item in one.items()):
        patch[name] = (
            value if name not in patch else patch[name] | value if name == "preferences" else patch[name] + value
        )
    return ProfilePatch(**patch)
