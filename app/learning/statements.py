"""What a user says plainly, found without a model: it completes what a model leaves out of its answer. Pure functions.

Small models name one to three items of a conversation and leave out the others. Three kinds of items can be found here
by the form of a sentence: people ("my wife Nuala"), what is said of them ("she's allergic to nuts"), and statements in
the user's own words. A fourth one is the profile (`own_profile.py`). The rules of evidence judge these items like a
model's. What a model quotes goes before what it does not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from app.core.characters import is_idle
from app.facts.schemas import FactCreate
from app.learning import evidence
from app.learning.extraction import Rules
from app.learning.prompts import LearnedFact, LearnedMemory, TranscriptLine, heard
from app.learning.quotes import CONTRACTED, Quote, find, promised, said_later, sentences
from app.learning.words import Token, languages, table, tokens, weight
from app.memories.schemas import MemoryCreate
from app.retrieval.time_expressions import names_time
from app.storage.schema import Doc

LEAST_TERMS, QUOTED_TERMS = 4, 2
"""The number of words of its own that a statement has; fewer are enough where the model quotes it."""
MOST_TERMS = 12
"""More words do not make a statement more telling."""
COVERED = 0.6
"""A statement with this share of its terms in one memory that is stored says nothing new."""
FEWEST = 5
"""The most memories of a stretch, those of the model included, if this is more than half of the user's messages."""
MOST_PROMISES, MOST_FACTS = 2, 20
"""The most of each that code adds for a stretch."""
VALUE_TOKENS = 6
"""The number of tokens of what is said of a person."""
FUNCTION_TABLES = (
    *("first_subject", "first_other", "first_verbs", "other_subject", "second_person", "common", "articles", "copulas"),
    *("prepositions", "negations", "corrections", "changes", "subordinating", "clause_words"),
)


# --- Memories ---------------------------------------------------------------------------------------------------------


def further_memories(
    rules: Rules, quoted: Iterable[str], stored: Sequence[tuple[MemoryCreate, Doc]], known: Iterable[str] = ()
) -> list[tuple[MemoryCreate, Doc]]:
    """Returns statements of the user and promises of the assistant that no stored memory says or quotes.

    The most telling ones are taken, in the order in which they were said: those that the model quotes, in the first
    person, with names and numbers, and many words.

    Args:
        rules: The rules of the conversation.
        quoted: The quotes of the model's answer, of all parts, also of items that were dropped.
        stored: The memories that are stored of the answer.
        known: The texts of memories that are there already.
    """
    chosen = {found.sentence for text in quoted if (found := find(text, rules.lines, "user")) is not None}
    texts = [text for body, origin in stored for text in (body.content, origin["quote"])]
    told = [evidence.content_terms(text) for text in (*texts, *known)]
    user = [line for line in rules.lines if line.role == "user"]
    said = [
        each
        for each in _statements(rules.lines, chosen)
        if not _covered(each.quote.sentence, told) and earnest(each.quote, rules.lines)
    ]
    best = sorted(said, key=lambda each: -each.weight)
    kept: list[tuple[MemoryCreate, Doc]] = []
    for group, most in (("user", max(FEWEST, len(user) // 2) - len(stored)), ("assistant", MOST_PROMISES)):
        room = most
        for each in best:
            if room > 0 and each.quote.line.role == group and (made := _judged(rules, each.quote)):
                kept += made
                room -= 1
    order = {each.quote.sentence: at for at, each in enumerate(said)}
    return sorted(kept, key=lambda one: order[one[0].content])


@dataclass(frozen=True, slots=True)
class _Statement:
    quote: Quote
    weight: float


def _statements(lines: Sequence[TranscriptLine], chosen: Iterable[str]) -> Iterator[_Statement]:
    chosen = tuple(chosen)
    for line in heard(lines):
        for sentence in sentences(line.text):
            quote = find(sentence, [line])
            if quote is None:
                continue
            picked = any(sentence in each for each in chosen)
            if line.role == "user":
                own = _size(sentence)
                telling = picked or evidence.about_user(quote, sentence) is None or _of_relative(sentence)
                if own >= (QUOTED_TERMS if picked else LEAST_TERMS) and telling and certain(quote):
                    yield _Statement(quote, _weight(quote, own, picked=picked))
            elif promised(quote) and _size(sentence) >= LEAST_TERMS:
                yield _Statement(quote, 0)


def _size(sentence: str) -> int:
    """Returns the number of words of its own that a sentence has. Three characters without spaces make two words."""
    unspaced = sum(weight(token.word) < 1 for token in tokens(sentence))
    return unspaced * 2 // 3 if unspaced else len(evidence.content_terms(sentence))


def _of_relative(sentence: str) -> bool:
    """Returns whether a sentence speaks of a person of the user's, as in "my son Emil is at the Lessing school"."""
    return any(_people(sentence, tokens(sentence), languages(sentence)))


def certain(quote: Quote) -> bool:
    """Returns whether a sentence states something: it asks the agent nothing, and the first clause with its speaker,
    and those before, have no word of a wish or a guess. A later clause may: "I'm fine on boats, not if it rains"."""
    spoken, sentence = languages(quote.sentence), quote.sentence
    speaker = [table(name, spoken) for name in ("first_subject", "first_other", "first_verbs")]
    spans = evidence.clause_spans(sentence)
    own = next((end for start, end in spans if any(each.found_in(sentence[start:end]) for each in speaker)), None)
    return not table("unsure", spoken).found_in(sentence[:own]) and not evidence.requested(quote)


def earnest(quote: Quote, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a sentence is meant and still holds: no joke, nothing of the past, of a story or of a text to be
    worked on, and nothing of which the user says something else later."""
    if table("not_meant").found_in(quote.sentence) or table("fiction").found_in(quote.line.text):
        return False
    before = quote.line.text.partition(quote.sentence)[0]
    if before.rstrip().endswith(":") or (":" in before and table("text_work").found_in(before)):
        return False
    return not _revised(quote, lines)


def _revised(quote: Quote, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a later sentence of the speaker has words of this one beside one of correction or negation."""
    own = _content(quote.sentence)
    for sentence in (each for text in said_later(quote, lines) for each in sentences(text)):
        changed = table("corrections").found_in(sentence) or table("changes").found_in(sentence)
        if changed and own & _content(sentence):
            return True
    return False


def _content(text: str) -> set[str]:
    """Returns the terms of a text without those of function words, in any language."""
    return {term for term in evidence.content_terms(text) - _function_terms() if len(term) > 1}


@cache
def _function_terms() -> frozenset[str]:
    words = (word for name in FUNCTION_TABLES for word in (*table(name).words, *table(name).unspaced))
    return frozenset(term for word in words for term in evidence.all_terms(word))


def _weight(quote: Quote, own: int, *, picked: bool) -> float:
    first = evidence.about_user(quote, quote.sentence) is None or _of_relative(quote.sentence)
    hard = bool(evidence.hard_terms(quote.sentence))
    return min(own, MOST_TERMS) / 4 + 1.5 * first + evidence.number(quote.sentence) + hard + 2 * picked


def _covered(sentence: str, told: Sequence[set[str]]) -> bool:
    own = evidence.content_terms(sentence)
    return any(len(own & each) >= COVERED * len(own) for each in told)


def _judged(rules: Rules, quote: Quote) -> list[tuple[MemoryCreate, Doc]]:
    one = LearnedMemory(
        quote=quote.sentence,
        content=quote.sentence,
        context=None,
        memory_type="fact",
        importance=0.5,
        superseded_ids=[],
    )
    return apart(rules).memories([one], {})


def apart(rules: Rules) -> Rules:
    """Returns the rules with a count of its own: what code finds and drops is no fault of the model's."""
    return replace(rules, dropped=Counter())


# --- Facts ------------------------------------------------------------------------------------------------------------


def further_facts(rules: Rules, stored: Sequence[tuple[FactCreate, Doc]]) -> list[tuple[FactCreate, Doc]]:
    """Returns people of the user and what is said of them, without what a stored fact says."""
    told = [evidence.all_terms(f"{body.subject} {body.object}") for body, _ in stored]
    found = []
    for line in heard(rules.lines):
        if line.role == "user":
            for sentence in sentences(line.text):
                found += list(_of_people(sentence))
    new = [one for one in found if not any(evidence.all_terms(f"{one.subject} {one.object}") <= each for each in told)]
    return apart(rules).facts(new)[:MOST_FACTS]


def _of_people(sentence: str) -> Iterator[LearnedFact]:
    said, spoken = tokens(sentence), languages(sentence)
    people = list(_people(sentence, said, spoken))
    for person in people:
        if person.name:
            yield _fact(sentence, "user", sentence[said[person.at].start : said[person.at].end], person.name)
    if len(people) != 1:
        return  # whom "she" means is not certain
    person = people[0]
    subject = person.name or sentence[said[person.at].start : said[person.at].end]
    pronouns = table("other_subject", spoken).words | ({"sie"} if "de" in spoken else set())
    for verb in range(person.end, len(said)):
        follows = verb == person.end or any(said[at].word in pronouns for at in (verb - 1, verb))
        if follows and (value := _value(sentence, said, verb, spoken)) is not None:
            yield _fact(sentence, subject, *value)


@dataclass(frozen=True, slots=True)
class _Person:
    """A person of the user's. `at` is the token of the relation, `end` the one behind relation and name."""

    at: int
    end: int
    name: str


def _people(sentence: str, said: Sequence[Token], spoken: frozenset[str]) -> Iterator[_Person]:
    """Yields those of "my wife Nuala", "my wife", "Carmen, my boss," and "Alex is my boss"."""
    own, relations = table("first_other", spoken), table("relations", spoken)
    for at in range(1, len(said)):
        if said[at].word not in relations or said[at - 1].word not in own:
            continue
        behind = _name(sentence, said, at + 1, spoken)
        if behind is not None and sentence[said[at].end : said[at + 1].start] in (" ", ", "):
            yield _Person(at, at + 2, behind)
        elif (before := _name_before(sentence, said, at - 1, spoken)) is not None:
            yield _Person(at, at + 1, before)
        else:
            yield _Person(at, at + 1, "")


def _name(sentence: str, said: Sequence[Token], at: int, spoken: frozenset[str]) -> str | None:
    """Returns the name that a token is: it has a capital inside a sentence and is no common word.

    In German every noun has a capital, and behind a word such as "weil" a noun may follow: "weil meine Frau Krebs hat".
    """
    if not 0 < at < len(said):
        return None
    word = sentence[said[at].start : said[at].end]
    if len(word) < 2 or not word[0].isupper() or word.isupper() or "'" in word or _common(said[at].word, word):
        return None
    return None if any(token.word in table("subordinating") for token in said[:at]) and "de" in spoken else word


def _common(folded: str, word: str) -> bool:
    names = ("first_subject", "first_other", "other_subject", "common", "second_person", "articles")
    return any(folded in table(name) for name in names) or names_time(word)


def _name_before(sentence: str, said: Sequence[Token], own: int, spoken: frozenset[str]) -> str | None:
    """Returns the name before "my": that of "Carmen, my boss," or "Alex is my boss"."""
    gap = sentence[said[own - 1].end : said[own].start] if own else ""
    if own and gap.strip() == ",":
        behind = sentence[said[own + 1].end : said[own + 1].end + 1]
        return _name(sentence, said, own - 1, spoken) if behind in ("", ",", ".", ";", ")") else None
    linked = own > 1 and said[own - 1].word in table("linking_verbs")
    return _name(sentence, said, own - 2, spoken) if linked else None


def _value(sentence: str, said: Sequence[Token], verb: int, spoken: frozenset[str]) -> tuple[str, str] | None:
    """Returns the verb and what follows it, up to the end of the clause, or None if that says nothing."""
    if said[verb].word not in table("stating_verbs", spoken) or verb + 1 >= len(said):
        return None
    end = verb + 1
    while end < len(said) and end - verb <= VALUE_TOKENS:
        gap = sentence[said[end - 1].end : said[end].start]
        if gap.strip(" '\"") or said[end].word in table("clause_words"):
            break
        end += 1
    value = sentence[said[verb].end : said[end - 1].end].strip() if end > verb + 1 else ""
    rest = sentence[said[end - 1].end :].strip()
    whole = end - verb <= VALUE_TOKENS or not rest
    if not value or not whole or table("negations", spoken).found_in(value) or is_idle(value):
        return None
    return CONTRACTED.get(said[verb].word, said[verb].word), value


def _fact(sentence: str, subject: str, predicate: str, value: str) -> LearnedFact:
    return LearnedFact(
        quote=sentence,
        subject=subject,
        predicate=predicate.lower(),
        object=value,
        cardinality="many",
        valid_from=None,
    )
