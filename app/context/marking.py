"""Marks the texts of a prompt that are out of date, and those that a finding of a judge names.

"I live in Oslo" beside a home in Bergen becomes "I live in Oslo (home since 2026-11-01: Bergen)". The mark states the
present fact, so it is true beside any text. A text gets it if a value was learned from it that has since been replaced
(`app/facts/replaced.py`), or if whom the fact is about said it before the present value began, and it has an earlier
value word for word. Marks are made when a prompt is, so a prompt of another time has those of that time.
"""

from collections.abc import Iterable, Sequence

from app.context.candidates import Candidate, Doubt, SourceRequest
from app.core.clock import rfc3339
from app.core.language import place_of, sentences, words
from app.core.work import off_loop
from app.facts.outdated import MOST_GROUPS, Utterance, outdated, values_behind
from app.facts.replaced import ReplacedValue
from app.facts.repository import FactRepository, View, of_pairs
from app.storage.schema import Doc, Eq, Or, both

SHOWN_CHARS = 60
"""The maximum length of a value in a mark."""
MARKED = frozenset({"instructions", "summary", "memories"})
"""Sections whose texts are marked. Facts have their time, and turns of the session stay as they were said."""


# --- Values that were replaced ----------------------------------------------------------------------------------------


def value_mark(value: ReplacedValue) -> str:
    """Returns the mark of a text that states a replaced value."""
    present = " ".join(str(value.present["object"]).split())
    return f"({value.stated(present if len(present) <= SHOWN_CHARS else f'{present[:SHOWN_CHARS]}…')})"


def marked(
    text: str, memory_id: str | None, said: Utterance | None, values: Iterable[ReplacedValue], names: Sequence[str]
) -> str:
    """Returns the text with a mark for each replaced value that it states."""
    found = outdated(text, memory_id, said, values, names)
    return " ".join([text, *dict.fromkeys(value_mark(value) for value in found)])


def mark(items: Sequence[Candidate], values: Sequence[ReplacedValue], names: Sequence[str]) -> list[Candidate]:
    """Returns the candidates, with marks behind the texts that state replaced values."""
    return [_marked(item, values, names) for item in items] if values else list(items)


def _marked(item: Candidate, values: Sequence[ReplacedValue], names: Sequence[str]) -> Candidate:
    text = marked(item.text, item.memory_id, item.said, values, names)
    partner = None if item.partner is None else _marked(item.partner, values, names)
    return item.marked(text, partner)


async def values_of(
    request: SourceRequest, facts: Sequence[Doc], items: Sequence[Candidate] = ()
) -> list[ReplacedValue]:
    """Returns the replaced values that a prompt may show: of the profile, of `facts`, and those that were learned in
    the sessions of `items`."""
    user, at = request.body.user_id, request.body.as_of or rfc3339(request.now)
    repository = FactRepository(request.resources.store, request.scope)
    single = [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
    return await values_behind(repository, user, (item.said for item in items), at, request.body.known_at, single)


async def marked_memories(
    facts: FactRepository, agent_id: str, profile: Doc, memories: Sequence[Doc], now: str
) -> list[Doc]:
    """Returns memories with marks behind the texts that state replaced values. `profile`: the user's id and name."""
    if not memories:
        return []
    user_id: str = profile["user_id"]
    pairs = facts.scope.pairs(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"), Or(tuple(of_pairs(pairs))))
    found = await facts.find(single, limit=MOST_GROUPS) if pairs else []
    said = {doc["memory_id"]: Utterance.in_memory(doc) for doc in memories}
    values = await values_behind(facts, user_id, said.values(), now, more=[fact["group_id"] for fact in found])
    names = [str(name) for name in (user_id, profile["name"]) if name]

    def shown(doc: Doc) -> Doc:
        memory_id = doc["memory_id"]
        return doc | {"content": marked(doc["content"], memory_id, said[memory_id], values, names)}

    return await off_loop(sum(len(doc["content"]) for doc in memories), lambda: [shown(doc) for doc in memories])


# --- What findings of a judge name ------------------------------------------------------------------------------------

SHOWN_OTHER = 80
"""Characters of a sentence that a mark shows."""
LEAST_WORDS = 4
"""A shorter sentence, such as "How are you?", is no repetition."""


def mark_doubts(items: Sequence[Candidate], doubts: Sequence[Doubt]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that says what a finding doubts or has replaced."""
    return [_doubted(item, doubts) for item in items] if doubts else list(items)


def _doubted(item: Candidate, doubts: Sequence[Doubt]) -> Candidate:
    partner = None if item.partner is None else _doubted(item.partner, doubts)
    marks = [doubt_mark(doubt, item.text) for doubt in doubts if _says(item, doubt)]
    return item.marked(" ".join([item.text, *dict.fromkeys(marks)]), partner)


def _says(item: Candidate, doubt: Doubt) -> bool:
    """Returns whether a candidate is the record that a finding names, or repeats its sentence word for word, as a
    summary may. Who reads both sentences in the order in which they were said needs no mark."""
    if item.id == doubt.id:
        return True
    if len(words(doubt.text)) < LEAST_WORDS or place_of(doubt.text, item.text) is None:
        return False
    return doubt.settled or not doubt.later or place_of(doubt.other, item.text) is None


def doubt_mark(doubt: Doubt, text: str) -> str:
    """Returns the mark of a text that says what a finding doubts or has replaced. If the text says other things, too,
    the mark names the sentence."""
    alone = len(sentences(text)) <= len(sentences(doubt.text))
    named = "" if alone else f", \u201c{_short(doubt.text)}\u201d"
    if doubt.settled:
        return f"(earlier{named}; since {doubt.other_at[:10]}: {_short(doubt.other)})"
    return f"(uncertain{named}; {'later' if doubt.later else 'earlier'}, {doubt.other_at[:10]}: {_short(doubt.other)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_OTHER else f"{line[:SHOWN_OTHER]}…"
