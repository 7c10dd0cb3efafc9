"""Quotes of a conversation: where they stand, the sentence around them, and what can be seen of a text by its form.

What the speaker of a message stands for: not the text that he quotes, not what he takes back or corrects later,
and of an assistant only its promises.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from app.learning.prompts import TranscriptLine
from app.learning.words import Token, languages, number_words, table, tokens
from app.storage.text import UNSPACED, terms

QUOTE_CHARS = 300
"""The limit of a quote that is stored, in characters."""
FRAGMENT = 4
"""The number of tokens of a sentence that has no room for a verb beside a subject, so that it may begin with a name."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_LATIN_WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2}")
_PARTS = re.compile(r"\s*(?:\.{3}|\u2026|\[\.{3}\]|\[\u2026\])\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026\u061f\u06d4\u0964])\s+|(?<=[\u3002\uff01\uff1f])|[\r\n]+")
_NO_END = re.compile(
    r"\b(?:(?:am|im|der|den|dem|des|vom|zum|beim|bis|ab|seit)\s\d{1,2}|Dr|Mr|Mrs|Ms|St|Sr|Sra|Prof|Hr|bzw|ca)\.\s+$"
)
"""What ends in a full stop and does not end a sentence: a German ordinal, an abbreviation."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a message. `sentence` holds the whole sentences that they stand in; `before` is the message before."""

    line: TranscriptLine
    text: str
    sentence: str
    before: TranscriptLine | None


def find(text: str, lines: Sequence[TranscriptLine], role: str | None = None) -> Quote | None:
    """Returns the place of a quote, or None if nobody said it.

    Case, accents, punctuation and spaces do not count; words do, in their order. A quote may leave words out by "...".
    If several messages contain it, those of `role` go first, then the earliest.

    Args:
        text: The words as the model gives them.
        lines: The conversation.
        role: The role whose messages are preferred.
    """
    parts = [found for part in _PARTS.split(text) if (found := tokens(part))]
    if not parts:
        return None
    order = sorted(range(len(lines)), key=lambda at: (lines[at].role != role, at))
    for at in order:
        span = _span(parts, tokens(lines[at].text))
        if span is not None:
            said = lines[at].text
            before = lines[at - 1] if at else None
            return Quote(lines[at], said[span[0] : span[1]][:QUOTE_CHARS], _sentences(said, span), before)
    return None


def _span(parts: Sequence[Sequence[Token]], said: Sequence[Token]) -> tuple[int, int] | None:
    """Returns where the parts stand in this order, as a span of characters."""
    words, place, start = [token.word for token in said], 0, None
    for part in parts:
        wanted = [token.word for token in part]
        found = _index(words, wanted, place)
        if found is None:
            return None
        start = said[found].start if start is None else start
        place = found + len(wanted)
    assert start is not None
    return start, said[place - 1].end


def _index(words: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    for at in range(start, len(words) - len(wanted) + 1):
        if words[at] == wanted[0] and list(words[at : at + len(wanted)]) == list(wanted):
            return at
    return None


def _sentences(text: str, span: tuple[int, int]) -> str:
    """Returns the sentences that the span touches."""
    ends = _ends(text)
    touched = [(start, end) for start, end in pairwise(ends) if start < span[1] and end > span[0]]
    return text[touched[0][0] : touched[-1][1]].strip() if touched else text


def narrowed(quote: Quote, value: str) -> Quote:
    """Returns the quote with the one of its sentences that says most of a value. The others are no evidence of it."""
    parts, wanted = sentences(quote.sentence), set(terms(value))
    if len(parts) < 2:
        return quote
    return replace(quote, sentence=max(parts, key=lambda part: len(wanted & set(terms(part)))))


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text that are not empty."""
    return [part for start, end in pairwise(_ends(text)) if (part := text[start:end].strip())]


def _ends(text: str) -> list[int]:
    found = [each.end() for each in _SENTENCE_END.finditer(text)]
    return [0, *(end for end in found if not _NO_END.search(text[max(0, end - 12) : end])), len(text)]


def capitalised(text: str) -> list[str]:
    """Returns the words of a text that begin with a capital inside a sentence, and its numbers. In a fragment such as
    "Dresden, first of March." the first word counts, too."""
    found: list[str] = []
    for sentence in sentences(text):
        said = [sentence[token.start : token.end] for token in tokens(sentence)]
        found += [word for word in said[len(said) > FRAGMENT :] if word[:1].isupper() and len(word) > 1]
        found += [word for word in said if word[:1].isdigit()]
    return found


def other_language(text: str, sentence: str) -> bool:
    """Returns whether a text is in another language than a sentence, as far as their words tell. A few words tell
    nothing."""
    if len(tokens(text)) < FRAGMENT:
        return False
    if bool(_UNSPACED.search(text)) != bool(_UNSPACED.search(sentence)):
        return True
    if all(_UNSPACED.search(each) for each in (text, sentence)):
        return bool(_LATIN_WORDS.search(text)) and not _LATIN_WORDS.search(sentence)
    return not languages(text, TELLING) & languages(sentence)


CONTRACTED = {"he's": "is", "she's": "is", "it's": "is", "i'm": "am", "they're": "are", "we're": "are"}
"""The verb of a pronoun that is written together with it."""


def said_together(first: str, second: str, text: str) -> bool:
    """Returns whether a text says one text directly before another, as "has" before "a cold"."""
    words = [word for token in tokens(text) for word in (token.word, CONTRACTED.get(token.word)) if word]
    wanted = [token.word for part in (first, second) for token in tokens(part)]
    return bool(tokens(first)) and _index(words, wanted, 0) is not None


TELLING = 2
"""The number of a language's words that tell it: one such as "a" is a word of several."""
LONG = 6
"""The number of tokens from which text in quotation marks is somebody's statement, and no title or name."""
BETWEEN = 2
"""The number of prepositions or articles that may stand between "not" and what is taken back, as in "not in Madrid"."""
CORRECTION_WORDS = 2
"""The number of words from the beginning of a sentence that show a correction."""
REPLACING_WORDS = 4
"""The number of words from the beginning of a sentence in which it sets another value, as in "make it eight"."""
BEHIND = 3
"""The number of tokens in which a negation follows what is taken back, as in "212 is not right"."""
_QUOTED = re.compile(
    "\u201c[^\u201d]*\u201d?|\u201e[^\u201c\u201d]*[\u201c\u201d]?|\u00ab[^\u00bb]*\u00bb?|\u300c[^\u300d]*\u300d?"
    '|\u300e[^\u300f]*\u300f?|"[^"]*"?|```.*?(?:```|$)',
    re.DOTALL,
)
_FUTURE = re.compile(r"\w{3,}(?:erai|irai)")
"""The French future of the first person, without accents."""
_QUESTION = re.compile(r"[?\u061f\uff1f]\s*[\"')\u201d\u00bb]*\s*$")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")
_NUMERALS = re.compile("[〇零一二两三四五六七八九十百千万亿]{2,}")
_CLAUSE_END = re.compile(r"[,;:.!?\u2014\u3001\uff0c\u3002\uff1f\uff01]+|\s-\s")


def cited(quote: Quote, value: str) -> bool:
    """Returns whether most words of a value stand in text that the speaker quotes.

    A letter to be translated is somebody else's: in 'Translate: "My name is Bruno and I live in Rome."' Bruno is not
    the user. Short text in quotation marks, such as a title, does not count.
    """
    text, at = quote.line.text, quote.line.text.find(quote.sentence)
    own = _QUOTED.sub(lambda found: _blank(found[0]), text)[at : at + len(quote.sentence)]
    wanted = set(terms(value)) & set(terms(quote.sentence))
    return bool(wanted) and len(wanted & set(terms(own))) < len(wanted) / 2


def _blank(text: str) -> str:
    return " " * len(text) if len(tokens(text)) >= LONG else text


def said_later(quote: Quote, lines: Sequence[TranscriptLine]) -> list[str]:
    """Returns what the speaker says after the sentence of a quote: the rest of the message, then the later messages."""
    later = [line.text for line in lines if line.seq > quote.line.seq and line.role == quote.line.role]
    return [quote.line.text.partition(quote.sentence)[2], *later]


def taken_back(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether the speaker denies a value later, as in "in Lisbon, not Madrid" or "212 is not right any more".

    Args:
        quote: Where the value was said.
        value: The value.
        lines: The conversation.
    """
    wanted = [token.word for token in tokens(value)]
    if not wanted:
        return False
    return any(_denied(wanted, clause) for text in said_later(quote, lines) for clause in _CLAUSE_END.split(text))


def corrected(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether the speaker corrects a number of a value later, as in "Sorry, it is 3.10." after "It is 3.9.".

    The correction begins with a word such as "sorry" or "wait", and has a number that is written like one of the value:
    both with a point, both as times of day, or both as words.
    """
    old_numbers = numbers(value)
    if not old_numbers:
        return False
    for sentence in (each for text in said_later(quote, lines) for each in sentences(text)):
        if _corrects(sentence):
            new = numbers(sentence)
            if any(_alike(old, each) for old in old_numbers for each in new) and not new & old_numbers:
                return True
    return False


def _corrects(sentence: str) -> bool:
    """Returns whether a sentence begins as a correction, such as "Sorry, it is 3.10." or "Make it eight."."""
    first = [token.word for token in tokens(sentence)[:REPLACING_WORDS]]
    if any(word in table("corrections") for word in first[:CORRECTION_WORDS]):
        return True
    if any(" ".join(first).startswith(f"{phrase} ") for phrase in table("replacements").words):
        return True
    return sentence.startswith(table("corrections").unspaced) or any(
        word in sentence for word in table("replacements").unspaced
    )


def numbers(text: str) -> set[str]:
    """Returns the numbers of a text: those in digits, words from "two" on ("one" and its like are articles), and
    numerals of two characters or more, such as 十七万."""
    words = {token.word for token in tokens(text) if number_words().get(token.word, "1") != "1"}
    words = {word for word in words if word.isascii() or len(word) > 1}
    return words | set(_NUMBER.findall(text)) | set(_NUMERALS.findall(text))


def _alike(old: str, new: str) -> bool:
    """Returns whether two numbers are written alike: both with a point, as versions are, both as times, or as words.
    Numerals end alike, as thousands do."""
    if _NUMERALS.fullmatch(old) and _NUMERALS.fullmatch(new):
        return old[-1] == new[-1]
    if old in number_words() and new in number_words():
        return True
    mark = next((mark for mark in ".:" if mark in old), "")
    return bool(mark) and mark in new and old.count(mark) == new.count(mark)


def denied_at_once(value: str, sentence: str) -> bool:
    """Returns whether a clause that ends with a value is denied by the next one, before something else is said, as in
    "on the 24th, no, the 25th"."""
    wanted = [token.word for token in tokens(value)]
    clauses = [[token.word for token in tokens(clause)] for clause in _CLAUSE_END.split(sentence)]
    denials = table("negations").words | table("corrections").words | table("denials").words
    for clause, denial, new in zip(clauses, clauses[1:], clauses[2:], strict=False):
        short = 0 < len(denial) <= CORRECTION_WORDS and all(word in denials for word in denial)
        if wanted and short and new and clause[-len(wanted) :] == wanted:
            return True
    return False


def _denied(wanted: Sequence[str], clause: str) -> bool:
    said = tokens(clause)
    words = [token.word for token in said]
    for at in range(len(said) - len(wanted) + 1):
        if words[at : at + len(wanted)] == list(wanted):
            return _denied_at(said, at, at + len(wanted), clause)
    return False


def _denied_at(said: Sequence[Token], start: int, end: int, clause: str) -> bool:
    spoken = languages(clause)
    negations, small = table("negations", spoken), table("prepositions", spoken)
    at = start - 1
    while at >= max(0, start - BETWEEN) and (said[at].word in small or said[at].word in table("articles")):
        at -= 1
    if at >= 0 and said[at].word in negations:
        return True
    unspaced_before = clause[: said[start].start].endswith(table("denials").unspaced)
    return unspaced_before or (start == 0 and any(token.word in negations for token in said[end : end + BEHIND]))


def promised(quote: Quote) -> bool:
    """Returns whether an assistant commits itself in a sentence of its quote."""
    return any(_promise(each) for each in sentences(quote.sentence))


def _promise(sentence: str) -> bool:
    committing, said = table("promises"), [token.word for token in tokens(sentence)]
    advice = table("advice")
    if (
        _QUESTION.search(sentence)
        or any(word in advice for word in said)
        or any(w in sentence for w in advice.unspaced)
    ):
        return False
    if "i'll" in said or sum(word in committing for word in {*said}) > 1:
        return True
    if any(word in sentence for word in committing.unspaced):
        return True
    to_user = "ich" in said and any(word in table("second_person") for word in said)
    return to_user or any(_FUTURE.fullmatch(word) for word in said)


def promises(content: str, quote: Quote) -> str:
    """Returns what an assistant commits itself to in a memory that it said word for word: advice and questions beside a
    promise are left out. A memory in other words stays as it is."""
    own = [(each, find(each, [quote.line])) for each in sentences(content)]
    if any(found is None for _, found in own):
        return content
    return " ".join(each for each, found in own if found is not None and promised(found))
