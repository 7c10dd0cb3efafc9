"""Marks the candidates of a prompt that state another value of a single-valued fact, or what a finding doubts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.context.candidates import Candidate, Doubt, SourceRequest
from app.context.single_values import SingleValue, marked, single_values
from app.core.clock import rfc3339
from app.core.process import off_loop
from app.facts.about_user import PREDICATES, group_of_field
from app.facts.repository import FactRepository, View, of_pairs
from app.learning.quotes import sentences
from app.learning.words import tokens
from app.storage.filters import Eq, In, Or, both
from app.storage.schema import Doc

MARKED = frozenset({"instructions", "summary", "memories", "facts"})
"""Sections whose texts are marked. Turns of the session stay as they were said."""
MOST_GROUPS = 60
MOST_ROWS = 500


async def values_of(request: SourceRequest, facts: Sequence[Doc]) -> list[SingleValue]:
    """Returns the single-valued facts that a prompt may contradict: those among `facts`, and those of the profile."""
    user = request.body.user_id
    groups = [] if user is None else [group_of_field(user, name) for name in PREDICATES]
    groups += [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    if not named:
        return []
    repository = FactRepository(request.resources.store, request.scope)
    return await _read(repository, named, request.body.as_of or rfc3339(request.now), request.body.known_at)


async def marked_memories(
    facts: FactRepository, agent_id: str, profile: Doc, memories: Sequence[Doc], now: str
) -> list[Doc]:
    """Returns memories with a mark behind each text that states another value of a single-valued fact than the one that
    holds. `profile`: the user's id and name."""
    user_id: str = profile["user_id"]
    pairs = facts.scope.pairs(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"), Or(tuple(of_pairs(pairs))))
    found = await facts.find(single, limit=MOST_GROUPS) if memories and pairs else []
    groups = [*(group_of_field(user_id, name) for name in PREDICATES), *(fact["group_id"] for fact in found)]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    values = await _read(facts, named, now, None) if memories else []
    names = [str(name) for name in (user_id, profile["name"]) if name]
    said = ((doc, doc["event_at"] or doc["created_at"]) for doc in memories)
    size = sum(len(doc["content"]) for doc in memories)
    return await off_loop(
        size, lambda: [doc | {"content": marked(doc["content"], at, values, names)} for doc, at in said]
    )


async def _read(facts: FactRepository, groups: tuple[str, ...], as_of: str, known_at: str | None) -> list[SingleValue]:
    written = View(None, known_at).written()
    return single_values(await facts.find(both(In("group_id", groups), written), limit=MOST_ROWS), as_of, known_at)


def mark(items: Sequence[Candidate], values: Sequence[SingleValue], names: Sequence[str]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that states another value than the one that holds."""
    return [_marked(item, values, names) for item in items] if values else list(items)


def _marked(item: Candidate, values: Sequence[SingleValue], names: Sequence[str]) -> Candidate:
    text = marked(item.text, item.place[0], values, names)
    partner = None if item.partner is None else _marked(item.partner, values, names)
    return item if text == item.text and partner is item.partner else replace(item, text=text, partner=partner)


# --- What findings doubt ----------------------------------------------------------------------------------------------

SHOWN_OTHER = 80
"""Characters of the other statement that a mark shows."""
LEAST_WORDS = 4
"""A shorter sentence, such as "How are you?", is no repetition."""
ECHO = 1
"""An answer so many messages after a statement may repeat a number or a date of it."""


def mark_doubts(items: Sequence[Candidate], doubts: Sequence[Doubt]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that repeats what a finding doubts or has replaced."""
    known = [(doubt, _Said.of(doubt)) for doubt in doubts]
    return [_doubted(item, known) for item in items] if known else list(items)


@dataclass(frozen=True, slots=True)
class _Said:
    """The words of a doubt: its longest sentence, that of what was said otherwise, and the numbers that only it has."""

    sentences: tuple[str, ...]
    others: tuple[str, ...]
    numbers: frozenset[str]

    @classmethod
    def of(cls, doubt: Doubt) -> "_Said":
        one, other = ({token.word for token in tokens(text)} for text in (doubt.text, doubt.other))
        numbers = frozenset(word for word in one - other if any(character.isdigit() for character in word))
        return cls(_key_sentence(doubt.text), _key_sentence(doubt.other), numbers)


def _key_sentence(text: str) -> tuple[str, ...]:
    """Returns the words of the longest sentence, by which a repetition is known, if it is long enough."""
    words = max(([token.word for token in tokens(one)] for one in sentences(text)), key=len, default=[])
    return (f" {' '.join(words)} ",) if len(words) >= LEAST_WORDS else ()


def _doubted(item: Candidate, known: Sequence[tuple[Doubt, _Said]]) -> Candidate:
    partner = None if item.partner is None else _doubted(item.partner, known)
    plain = f" {' '.join(token.word for token in tokens(item.text))} "
    marks = [doubt_mark(doubt) for doubt, said in known if _repeats(item, plain, doubt, said)]
    text = " ".join([item.text, *dict.fromkeys(marks)])
    return item if not marks and partner is item.partner else replace(item, text=text, partner=partner)


def _repeats(item: Candidate, plain: str, doubt: Doubt, said: _Said) -> bool:
    if item.id == doubt.id:
        return True
    if any(sentence in plain for sentence in said.sentences):
        # who reads both in the order in which they were said needs no mark
        return doubt.settled or not any(sentence in plain for sentence in said.others) or not doubt.later
    if doubt.seq is None or item.heading is None or not said.numbers:
        return False
    place, behind = f"{doubt.session}:", item.place[1] - doubt.seq
    repeated = any(f" {number} " in plain for number in said.numbers)
    return item.heading.conversation and item.heading.key.startswith(place) and behind == ECHO and repeated


def doubt_mark(doubt: Doubt) -> str:
    """Returns the mark of a text that repeats a doubted statement."""
    if not doubt.other:
        return "(uncertain: its time is past)"
    other = " ".join(doubt.other.split())
    shown = other if len(other) <= SHOWN_OTHER else f"{other[:SHOWN_OTHER]}…"
    if doubt.settled:
        return f"(earlier; since {doubt.other_at[:10]}: {shown})"
    return f"(uncertain; {'later' if doubt.later else 'earlier'}, {doubt.other_at[:10]}: {shown})"
