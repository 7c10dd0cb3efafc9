"""Which texts state a value that has since been replaced, and the order of hits that follows from it.

"I live in Oslo" is out of date once the home is Bergen: the value was learned from it, or the person that the
fact is about said it before the present value began. This is worked out when it is read, so the answer holds for any
time and any state of knowledge.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from app.core.caches import kept
from app.core.clock import day_of
from app.core.language import STOP_WORDS, Letters, is_unspaced, place_of, sentences, words
from app.core.metadata_filter import ANY_ID
from app.facts.profile import PREDICATES, field_of, group_of_field
from app.facts.repository import FactRepository, View
from app.facts.schemas import FACTS, USER, FactRecord, key_of, sentence
from app.memories.repository import told_at
from app.memories.schemas import MemoryRecord
from app.retrieval.retriever import Hit
from app.retrieval.time_expressions import read_interval
from app.storage.protocol import Store
from app.storage.schema import Absent, Eq, In, Not, Or, R, both
from app.storage.scope import ANY_AGENT, Partition, Scope, Viewpoint

# --- Values that were replaced ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplacedValue:
    """A value that a single-valued fact had, with the fact that states the present one."""

    earlier: FactRecord
    present: FactRecord
    letters: Letters
    """Of the earlier value, to be looked up in texts."""
    present_letters: Letters
    learned_from: frozenset[str]
    """The ids of the memories, those of messages included, that the earlier value was learned from."""

    @classmethod
    def of(cls, earlier: FactRecord, present: FactRecord) -> "ReplacedValue":
        """Returns it of two facts of one group."""
        learned_from = frozenset(earlier["source"].get("memory_ids") or ())
        return cls(earlier, present, Letters.of(earlier["object"]), Letters.of(present["object"]), learned_from)

    @property
    def since(self) -> str | None:
        """When the present value began (RFC 3339), if somebody said so."""
        return None if self.present.get("start_assumed") else self.present["valid_from"]

    @property
    def begun(self) -> str:
        """When the present value began, or else when it became known."""
        return self.present["valid_from"] or self.present["known_from"]

    @property
    def subject(self) -> str:
        """Whom the fact is about, as subjects are compared: "@user" for the user."""
        return self.present["subject_key"]

    def stated(self, shown: str, zone: tzinfo) -> str:
        """Returns the present fact in words that are true beside any text: "home since 2026-11-01: Bergen", "since
        2026-11-01: Ben works at Acme". `shown`: the present value as it is to be shown; the day is one of the zone."""
        field, day = field_of(self.present), "now" if self.since is None else f"since {day_of(self.since, zone)}"
        if field is not None:
            return f"{field} {day}: {shown}"
        return f"{day}: {sentence({**self.present, 'object': shown})}"


def replaced_values(facts: Iterable[FactRecord], as_of: str, known_at: str | None = None) -> list[ReplacedValue]:
    """Returns the values that single-valued facts had before the one that holds at `as_of`, as far as that was known at
    `known_at` (None: now).

    `facts` are all rows of their groups that had been written by then. What was retracted was never a value; a value
    that holds again is not replaced. Example: of the rows home Oslo until November, home Bergen from then on, Oslo is
    replaced by Bergen in December, and nothing in October.
    """
    groups: dict[str, list[FactRecord]] = {}
    for fact in facts:
        if fact["standing"] == "held" and fact["status"] != "retracted":
            groups.setdefault(fact["group_id"], []).append(fact)
    replaced = list[ReplacedValue]()
    for rows in groups.values():
        holding = [row for row in rows if _was_known(row, known_at) and holds(row, as_of)]
        if not holding or any(row["cardinality"] != "one" for row in holding):
            continue
        present = max(holding, key=lambda row: (row["valid_from"] or "", row["known_from"]))
        begun = [row for row in rows if (row["valid_from"] or "") <= as_of]
        # a fact whose end became known later stands in two rows: they say and were learned from the same
        earlier = {
            (row["object_key"], *(row["source"].get("memory_ids") or ())): row
            for row in begun
            if row["object_key"] != present["object_key"]
        }
        replaced += [ReplacedValue.of(row, present) for row in earlier.values()]
    return replaced


def _was_known(fact: FactRecord, known_at: str | None) -> bool:
    until = fact["known_until"]
    return until is None or (known_at is not None and until > known_at)


def holds(record: FactRecord | MemoryRecord, as_of: str) -> bool:
    """Returns whether a fact or a memory is true at a time (RFC 3339)."""
    return (record["valid_from"] or "") <= as_of and (record["valid_until"] is None or record["valid_until"] > as_of)


# --- Texts that state them --------------------------------------------------------------------------------------------

LEAST_LETTERS = 4
"""A value of fewer letters, such as "vet" or "no", may be any word of a text. Texts that it was learned from are marked
all the same. Where words are written without spaces, two characters are enough."""
A_DAY = datetime(2026, 1, 1, tzinfo=UTC)
"""Any day: of a value only whether it names a time is asked."""
MOST_GROUPS = 60
MOST_SESSIONS = 60
MOST_ROWS = 500
USER_ROLE = "user"
"""The role of the user's messages; also the name of a speaker whose message had none."""


class Utterance(NamedTuple):
    """When a text was said (RFC 3339), by whom, and in which session. `by`: as subjects of facts are compared, "@user"
    for the user; None if it is nobody's word, such as an assistant's or an agent's."""

    at: str
    by: str | None
    session: str | None = None
    learned_from: tuple[str, ...] = ()
    """The ids of the memories that it was learned from, those of messages included."""

    @classmethod
    def in_memory(cls, memory: MemoryRecord) -> "Utterance":
        """Returns it of a memory. What a caller stored for a user, or was learned of one, counts as the user's word."""
        source = memory["source"]
        role, name = source.get("role"), source.get("speaker")
        if memory["user_id"] is None or role not in (None, USER_ROLE) or name == "assistant":
            by = None
        else:
            by = USER if name is None or name == USER_ROLE else key_of(name)
        return cls(told_at(memory), by, source.get("session_id"), tuple(source.get("memory_ids") or ()))


def outdated(
    letters: Letters,
    memory_id: str | None,
    utterance: Utterance | None,
    values: Iterable[ReplacedValue],
    names: Sequence[str],
) -> list[ReplacedValue]:
    """Returns the replaced values that a text states, one for each fact.

    Args:
        letters: Those of the text.
        memory_id: The id of the memory that has it, if it is one.
        utterance: When and by whom it was said, if that is known.
        values: The replaced values.
        names: The names of the user.
    """
    by_fact: dict[str, ReplacedValue] = {}
    for value in values:
        states_it = memory_id in value.learned_from or (
            utterance is not None
            and letters.place_of(value.letters) is not None
            and utterance.at < value.begun
            and (
                not value.learned_from.isdisjoint(utterance.learned_from)  # the same statement, learned as a memory
                or (_is_of(value, letters, utterance.by, names) and telling(value.earlier["object"]))
            )
        )
        if states_it and letters.place_of(value.present_letters) is None:  # "I moved from Oslo to Bergen" is up to date
            by_fact.setdefault(value.present["group_id"], value)
    return list(by_fact.values())


MOST_BESIDE = 6
"""The most words that a sentence has besides a value if it says nothing else: "I live in Oslo, near the harbour"."""


def says_only(text: str, fact: FactRecord) -> bool:
    """Returns whether a text says nothing besides a fact: it has the words that the fact was learned from and no
    others, or else it is one short sentence. "I have a deadly peanut allergy and live in Oslo" keeps its place once the
    home is Bergen, because somebody may ask for the allergy."""
    place = place_of(fact["source"].get("quote") or "", text)
    if place is not None:
        return STOP_WORDS.issuperset(words(text[: place[0]] + " " + text[place[1] :]))
    return len(words(text)) - len(words(fact["object"])) <= MOST_BESIDE and len(sentences(text)) == 1


@kept(1 << 20, longest=256)
def telling(value: str) -> bool:
    """Returns whether a value is more than a number, a time or a short common word, so that a text that has its words
    probably means it: "Oslo" and "book shop" are, "42", "Wednesday", "it" and "vet" are not."""
    letters = "".join(word for word in words(value) if word not in STOP_WORDS and not any(map(str.isdigit, word)))
    if len(letters) < (2 if is_unspaced(letters) else LEAST_LETTERS):
        return False
    return read_interval(value, A_DAY) is None


def _is_of(value: ReplacedValue, letters: Letters, by: str | None, names: Sequence[str]) -> bool:
    """Returns whether a text is the word of whom a fact is about, or somebody's word that names the subject: "Ines
    works at Initech"."""
    subject = value.subject
    if by is None or by == subject:
        return by is not None
    if subject != USER:
        return letters.place_of(Letters.of(value.earlier["subject"])) is not None
    speaker = {*words(by)}
    return bool(speaker) and any(speaker <= {*words(name)} for name in names)


async def values_behind(
    facts: FactRepository, viewpoint: Viewpoint, sessions: Iterable[str | None], more: Iterable[str] = ()
) -> list[ReplacedValue]:
    """Returns the values that were replaced, from this viewpoint: of the user's own fields, of `more` groups of facts,
    and of what was learned in these sessions. Without facts of the user or of the partitions nothing is read.

    Of more than `MOST_GROUPS` the first ones count, in this order.
    """
    user_id, known_at = viewpoint.user_id, viewpoint.known_at
    stored = [*viewpoint.partitions, *([] if user_id is None else [Partition(ANY_AGENT, user_id)])]
    if not (await facts.store.overview(FACTS, facts.scope.tenant, stored)).count:
        return []
    own = [] if user_id is None else [group_of_field(user_id, name) for name in PREDICATES]
    learned = await _groups_learned(facts, [session for session in sessions if session is not None])
    groups = tuple(dict.fromkeys([*own, *more, *learned]))[:MOST_GROUPS]
    if not groups:
        return []
    rows = await facts.find(both(In("group_id", groups), View(None, known_at).written()), limit=MOST_ROWS)
    return replaced_values(rows, viewpoint.as_of, known_at)


async def _groups_learned(facts: FactRepository, sessions: Sequence[str]) -> list[str]:
    """Returns the groups of the single-valued facts that were learned in these sessions and have ended."""
    named = tuple(dict.fromkeys(sessions))[:MOST_SESSIONS]
    if not named:
        return []
    ended = Or((Not(Absent("valid_until")), Not(Absent("known_until"))))
    learned = both(In("source.session_id", named), Eq("cardinality", "one"), Eq("standing", "held"), ended)
    return [fact["group_id"] for fact in await facts.find(learned, limit=MOST_ROWS)]


async def present_first(
    store: Store, scope: Scope, viewpoint: Viewpoint, hits: Sequence[Hit[MemoryRecord]]
) -> list[Hit[MemoryRecord]]:
    """Returns the hits of a search of memories. A hit that states a replaced value, and nothing else, goes behind the
    hit that states the present value.

    "We moved to Bergen" answers "Where do I live?" at least as well as "I live in Oslo", which it replaced. So it gets
    that one's place and score: the score of the search, not what "I live in Oslo" may get from a third hit. Only hits
    are moved: none is added or left out. Without one user nothing is moved: that Ada has moved says nothing of where
    Bob lives.
    """
    user_id = viewpoint.user_id
    if user_id is None or user_id == ANY_ID or len(hits) < 2:
        return list(hits)
    sessions = (hit.doc["source"].get("session_id") for hit in hits)
    values = await values_behind(FactRepository(store, scope), viewpoint, sessions)
    if not values:
        return list(hits)
    utterances = [Utterance.in_memory(hit.doc) for hit in hits]
    letters = [Letters.of(hit.doc["content"]) for hit in hits]
    places_of = dict[str, list[int]]()  # id of a present fact → places of the hits that state it
    pairs = list[tuple[int, int]]()  # place of a hit with an earlier value, place of one with the present value
    for place, hit in enumerate(hits):
        stated = outdated(letters[place], hit.doc["memory_id"], utterances[place], values, [user_id])
        for value in (value for value in stated if says_only(hit.doc["content"], value.earlier)):
            fact_id = value.present["fact_id"]
            if fact_id not in places_of:
                places_of[fact_id] = [at for at, other in enumerate(hits) if _states(other.doc, letters[at], value)]
            behind = next((at for at in places_of[fact_id] if at > place), None)
            if behind is not None:
                pairs.append((place, behind))
    return raised_over(hits, pairs)


def raised_over(hits: Sequence[Hit[R]], pairs: Iterable[tuple[int, int]]) -> list[Hit[R]]:
    """Returns the hits. One that replaced others gets at least the score of the best of these, and goes before it.
    Scores fall from hit to hit. `pairs`: the places of a replaced hit and of the one that replaced it."""
    over: dict[int, set[int]] = {}
    for old, new in pairs:
        if old < new:
            over.setdefault(new, set()).add(old)
    raised = [_raised(hit, hits[min(over[at])].score) if at in over else hit for at, hit in enumerate(hits)]
    order = sorted(range(len(hits)), key=lambda at: (-raised[at].score, -len(over.get(at, ()))))
    return [raised[at] for at in order]


def _raised(hit: Hit[R], score: float) -> Hit[R]:
    """Returns the hit with at least this score. What an explanation adds up to is raised with it."""
    if score <= hit.score:
        return hit
    explanation = hit.explanation
    if explanation is not None:
        gained = round(_log_odds(score) - _log_odds(hit.score), 4)
        explanation = replace(explanation, contributions={**explanation.contributions, "present_value": gained})
    return hit._replace(score=score, explanation=explanation)


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(bounded / (1 - bounded))


def _states(memory: MemoryRecord, letters: Letters, value: ReplacedValue) -> bool:
    """Returns whether a memory states the present value: it has its words, or the value was learned from it. `letters`:
    those of its content."""
    was_learned = memory["memory_id"] in (value.present["source"].get("memory_ids") or ())
    return was_learned or letters.place_of(value.present_letters) is not None
