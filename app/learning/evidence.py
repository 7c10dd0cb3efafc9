"""Rules of evidence: what a quote must show before an item that was learned from it is stored. Pure functions.

Every rule returns None, or the reason for which the item is dropped. The reasons are counted in the operation's report.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from app.core.clock import parse_rfc3339
from app.learning.quotes import FRAGMENT, Quote, said_together
from app.learning.words import (
    Token,
    fold,
    languages,
    number_words,
    other_subject,
    said_by,
    table,
    tokens,
    weight,
    without_compounds,
)
from app.retrieval.time_expressions import read_interval
from app.storage.text import terms

SHORT_ANSWER = 6
"""The number of tokens of a message that may be an answer to a question, such as "Ada." to "What is your name?"."""
SHORT_QUESTION = 2
"""The number of tokens of a question that may be an answer, such as "Ada?"."""
REQUEST_WORDS = 4
"""The number of words from the beginning of a sentence that show a request."""
SHARED_TERMS = 2 / 3
"""The share of a memory's terms that its message has to contain. Names and numbers have to be there all the same."""
SHORT_MEMORY = 3
"""A memory of so few terms has to have all of them from the sentence of its quote; its first word may be a name."""
LEAST_WORDS = 2
"""The number of words beside the one for the user that say something of the user."""
_CLAUSE = re.compile(
    r"[,;:()\u2013\u2014\u3001\uff0c\uff1b]|\s-\s|\.\s|\b(?:but|and|aber|und|mais|et|pero|y|ma|mas|maar)\b"
)
_CONTRAST = re.compile(r"\b(?:but|aber|mais|pero|maar)\b")
_CLAUSE_END = re.compile(r"[,;:.!?]")
_QUESTION = re.compile(r"[?\u061f\uff1f]\s*[\"')\u201d\u00bb]*\s*$")
_NAME = re.compile(r"(?<![.!?\u2026]\s)(?<!^)(?<=\s)[\"'(\u201c\u00ab]?([A-Z\u00c0-\u00de\u0410-\u042f][\w'-]+)")
_NUMBER = re.compile(r"(?<![A-Za-z\u00c0-\u024f\d])\d+")
"""A number; digits behind a letter belong to a name, as in "E3"."""
_WHOLE_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_UNSPACED_NUMBER = re.compile("[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]")


def asserted(quote: Quote, value: str, *, negated: bool = False, requested: bool = False) -> str | None:
    """Returns why a quote does not assert a value: `question`, `unsure` or `negated`.

    Args:
        quote: The quote.
        value: The value, which says what clause of the sentence counts.
        negated: Whether the item is negated itself, so that a negation in the quote is no objection.
        requested: Whether the quote asks the agent to do something, so that neither its form nor its "could" counts.
    """
    if not requested and _QUESTION.search(quote.sentence) and len(tokens(quote.sentence)) > SHORT_QUESTION:
        return "question"
    clause = clause_of(quote, value)
    spoken = languages(quote.sentence)
    if not requested and table("unsure", spoken).found_in(clause):
        return "unsure"
    if not negated and table("negations", spoken).found_in(without_compounds(clause)):
        return "negated"
    return None


def negated(text: str) -> bool:
    """Returns whether a text contains a negation."""
    return table("negations", languages(text)).found_in(without_compounds(text))


def requested(quote: Quote) -> bool:
    """Returns whether a sentence asks the agent to do something, as in "Can you do that by email?"."""
    first = [token.word for token in tokens(quote.sentence)[:REQUEST_WORDS]]
    if any(word in table("requests_alone") for word in first):
        return True
    asked = any(word in table("requests") for word in first) and any(word in table("second_person") for word in first)
    return asked or any(word in quote.sentence for word in table("requests").unspaced)


def about_user(quote: Quote, value: str) -> str | None:
    """Returns why a quote does not show something about the user: `said_by_assistant`, `of_another_person` or
    `not_about_user`.

    The user has to say it in the first person. The subject that stands last before the value counts: in "I think my
    brother is allergic to nuts" the allergy is the brother's. A short answer to the agent's question is about the user.
    """
    if quote.line.role != "user":
        return "said_by_assistant"
    spoken = languages(quote.sentence)
    before = _before(quote, value)
    subject = "other" if _owned_by_other(before, spoken) else _last_subject(before, spoken)
    if subject is None:
        subject = _last_subject(quote.sentence, spoken) or ("user" if _subject_left_out(quote) else None)
    if subject == "other":
        return "of_another_person"
    return None if subject == "user" else "not_about_user"


def other_person(quote: Quote, value: str) -> set[str]:
    """Returns the words for people whom the quote speaks of before the value, such as {"brother"}.

    The set is empty if the quote speaks of the user.
    """
    spoken = languages(quote.sentence)
    if about_user(quote, value) != "of_another_person":
        return set()
    relations = table("relations", spoken)
    return {token.word for token in tokens(quote.sentence) if token.word in relations} | {
        word for word in relations.unspaced if word in quote.sentence
    }


def hard_values(text: str) -> list[str]:
    """Returns the names and numbers of a text."""
    return [*_NAME.findall(text), *_WHOLE_NUMBER.findall(text)]


def number(text: str) -> bool:
    """Returns whether a text holds a number, in digits or as a word."""
    if _NUMBER.search(text) or _UNSPACED_NUMBER.search(text):
        return True
    return any(token.word in number_words() for token in tokens(text))


def name(text: str) -> bool:
    """Returns whether a text may be a person's name: it has no digit and, where letters have a case, a capital."""
    return not _NUMBER.search(text) and (text != text.lower() or text == text.upper())


def relative(text: str) -> bool:
    """Returns whether a text has a word for a person of the speaker's, such as "brother"."""
    return table("relations").found_in(text)


def says_predicate(predicate: str, quote: Quote, value: str) -> bool:
    """Returns whether the sentence says the predicate of a value: right before it, by a word of its table, or else, in
    the clause of the value, by one of its own words. A predicate that repeats the whole value says nothing about it."""
    own, wanted = predicate.replace("_", " "), _terms(value)
    part = max(_CONTRAST.split(quote.sentence), key=lambda part: len(wanted & _terms(part)))  # beyond "but" is another
    if said_together(own, value, quote.sentence) or any(words.found_in(part) for words in said_by(predicate)):
        return True
    if said_by(predicate):
        return shown(own, quote.sentence)
    if _terms(own) >= _terms(value):
        return False
    spoken = languages(quote.sentence)
    if relative(own) and table("relations", spoken).found_in(quote.sentence):
        return True
    clause = clause_of(quote, value)
    return any(shown(token.word, clause) for token in tokens(own) if token.word not in table("generic"))


def share_terms(content: str, sentence: str) -> bool:
    """Returns whether two texts share a term that not any memory may use."""
    return bool(content_terms(content) & content_terms(sentence))


def hard_terms(text: str) -> set[str]:
    """Returns the terms of the names and numbers of a text."""
    return content_terms(" ".join([*_NUMBER.findall(text), *_NAME.findall(text)]))


def shown(value: str, text: str) -> bool:
    """Returns whether every word and number of a value stands in a text, by stem; number words count as digits."""
    wanted = _terms(value)
    return bool(wanted) and wanted <= _terms(text) | _joined(text)


def content_shown(content: str, quote: Quote, names: Iterable[str]) -> str | None:
    """Returns why a memory says more than its message: `number_not_said`, `name_not_said` or `not_said`.

    Args:
        content: The memory.
        quote: Its evidence.
        names: Names that the memory may use for people in the conversation.
    """
    subject = next((token.word for token in tokens(content)), "")
    said = _terms(f"{quote.line.text} {subject} {' '.join(names)}") | _dates(quote)
    generic = table("generic")
    words = {token.word for token in tokens(quote.line.text)} | generic.words
    numbers = {*_NUMBER.findall(quote.line.text)}
    if any(number not in numbers and not _terms(number) <= said for number in _NUMBER.findall(content)):
        return "number_not_said"
    if any(not _terms(name) <= said and fold(name) not in words for name in _NAME.findall(content)):
        return "name_not_said"
    told, near = content_terms(content), _terms(f"{quote.sentence} {subject} {' '.join(names)}") | _dates(quote)
    short = len(told) <= SHORT_MEMORY
    if not told & _terms(quote.sentence) or (short and not told <= near) or len(told & said) < SHARED_TERMS * len(told):
        return "not_said"
    fragment = sum(weight(token.word) for token in tokens(content) if token.word not in table("naming")) < LEAST_WORDS
    return "not_said" if fragment and len(tokens(quote.sentence)) > FRAGMENT else None


def term_share(text: str, said: str) -> float:
    """Returns the share of a text's terms, generic ones aside, that occur in what was said; 1 if it has none."""
    told = content_terms(text)
    return len(told & _terms(said)) / len(told) if told else 1.0


# --- Subjects ---------------------------------------------------------------------------------------------------------


def _before(quote: Quote, value: str) -> str:
    """Returns the sentence up to the first word of the value, or the whole sentence."""
    wanted = _terms(value)
    for token in tokens(quote.sentence):
        if wanted & _terms(token.word):
            return quote.sentence[: token.start]
    return quote.sentence


def clause_of(quote: Quote, value: str) -> str:
    """Returns the clauses of the quote that contain the value, or else those of its sentence, or the whole sentence.

    A clause that only names the value goes with the one before it, as in "I ride an e-bike now, a Halcyon E3".
    """
    wanted, place = _terms(value), quote.sentence.find(quote.text)
    end = place + len(quote.text) if place >= 0 else len(quote.sentence)
    spans = clause_spans(quote.sentence)
    told = [_terms(quote.sentence[slice(*span)]) for span in spans]
    held = [at for at, said in enumerate(told) if wanted & said]
    quoted = [at for at in held if spans[at][0] < end and spans[at][1] > place]
    kept = set(quoted or held)
    small, replies = wanted | _generic_terms(), table("denials").words
    kept |= {at - 1 for at in kept if at and told[at] <= small and not told[at - 1] <= replies}
    return " ".join(quote.sentence[slice(*spans[at])] for at in sorted(kept)) or quote.sentence


def clause_spans(sentence: str) -> list[tuple[int, int]]:
    """Returns where the clauses of a sentence begin and end."""
    breaks = [(found.start(), found.end()) for found in _CLAUSE.finditer(sentence)]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(sentence)]
    return list(zip(starts, ends, strict=True))


def _last_subject(text: str, spoken: frozenset[str]) -> str | None:
    """Returns "user" or "other" for the subject that stands last in the text, or None if it has none."""
    said = tokens(text)
    for at in range(len(said) - 1, -1, -1):
        if (subject := _subject_at(said, at, text, spoken)) is not None:
            return subject
    return _unspaced_subject(text)


def _owned_by_other(before: str, spoken: frozenset[str]) -> bool:
    """Returns whether what follows a text is somebody else's, as behind "his" or "their", or "his car's"."""
    owners, said = table("other_owner", spoken), [token.word for token in tokens(_CLAUSE_END.split(before)[-1])]
    said = said[:-1] if said and said[-1] in table("copulas") else said
    small = table("articles").words | table("prepositions", spoken).words
    beside = len(said) > 1 and said[-1] not in small and said[-2] in owners
    return beside or (bool(said) and said[-1] in owners) or before.endswith(owners.unspaced)


def _subject_at(said: Sequence[Token], at: int, text: str, spoken: frozenset[str]) -> str | None:
    word = said[at].word
    if word in table("first_subject", spoken) or word in table("first_verbs", spoken):
        return "user"
    if other_subject(said, at, text, spoken):
        return "other"
    if word in table("relations", spoken):
        return None if _behind_preposition(said, at, text, spoken) else "other"
    if word in table("first_other", spoken):
        return None if _of_relation(said, at, spoken) else "user"
    return "other" if _name_at(said, at, text) else None


def _behind_preposition(said: Sequence[Token], at: int, text: str, spoken: frozenset[str]) -> bool:
    near = [token for token in said[max(0, at - 3) : at] if not _CLAUSE_END.search(text[token.end : said[at].start])]
    return any(token.word in table("prepositions", spoken) for token in near)


def _of_relation(said: Sequence[Token], at: int, spoken: frozenset[str]) -> bool:
    return any(token.word in table("relations", spoken) for token in said[at + 1 : at + 4])


def _name_at(said: Sequence[Token], at: int, text: str) -> bool:
    """Returns whether a name begins the text as its subject, as in "Marco is allergic to nuts"."""
    if at or len(said) < 2 or not text[said[0].start].isupper():
        return False
    return said[1].word in {"is", "has", "was", "lives", "works", "likes", "ist", "hat", "wohnt", "est", "es", "tiene"}


def _unspaced_subject(text: str) -> str | None:
    text = without_compounds(text)
    user = max(table("first_subject").place_in(text), table("first_other").place_in(text))
    other = max(table("other_subject").place_in(text), table("relations").place_in(text))
    if user < 0 and other < 0:
        return None
    return "other" if other > user else "user"


def _subject_left_out(quote: Quote) -> bool:
    """Returns whether a sentence without any person is about the user: a short answer to a question, or Japanese and
    Chinese, which leave the subject out."""
    kana_or_han = re.search("[\u3041-\u30ff\u4e00-\u9fff]", quote.sentence) is not None
    return kana_or_han or _short_answer(quote)


def _short_answer(quote: Quote) -> bool:
    before = quote.before
    if before is None or before.role != "assistant" or len(tokens(quote.line.text)) > SHORT_ANSWER:
        return False
    asked = _QUESTION.search(before.text) is not None
    return asked and table("second_person").found_in(before.text)


# --- Terms ------------------------------------------------------------------------------------------------------------


def all_terms(text: str) -> set[str]:
    """Returns the terms of a text; number words count as digits."""
    return _terms(text)


def content_terms(text: str) -> set[str]:
    """Returns the terms of a text without those that a memory or a summary may use on its own."""
    return _terms(text) - _generic_terms()


def _terms(text: str) -> set[str]:
    numbers = number_words()
    found = set(terms(text))
    return found | {numbers[token.word] for token in tokens(text) if token.word in numbers}


def _joined(text: str) -> set[str]:
    """Returns pairs of neighbours as one term: "New York" is the value "newyork", "e-mail" is "email"."""
    words = [token.word for token in tokens(text)]
    return {term for one, other in pairwise(words) for term in terms(one + other)}


def _generic_terms() -> set[str]:
    return {term for word in table("generic").words for term in terms(word)}


def _dates(quote: Quote) -> set[str]:
    """Returns the terms of the dates that the message names, reckoned from its time, and of that time itself."""
    at = parse_rfc3339(quote.line.at)
    found = {at}
    interval = read_interval(quote.sentence, at)
    if interval is not None:
        found |= {datetime.fromtimestamp(ms / 1000, at.tzinfo) for ms in (interval.start, interval.end - 1)}
    return {term for time in found for term in terms(f"{time:%d %B %Y %A} {time.day} {time.month}")}
