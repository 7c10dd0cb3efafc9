"""What the speaker of a message stands for: not the text that he quotes, not what he takes back or corrects later,
and of an assistant only its promises."""

import re
from collections.abc import Sequence

from app.learning.prompts import TranscriptLine
from app.learning.quotes import Quote, find, sentences
from app.learning.words import Token, languages, table, tokens
from app.storage.text import terms

LONG = 6
"""The number of tokens from which text in quotation marks is somebody's statement, and no title or name."""
BETWEEN = 2
"""The number of prepositions or articles that may stand between "not" and what is taken back, as in "not in Madrid"."""
CORRECTION_WORDS = 2
"""The number of words from the beginning of a sentence that show a correction."""
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
    later = [line.text for line in lines if line.seq > quote.line.seq and line.role == quote.line.role]
    same = quote.line.text.partition(quote.sentence)[2]
    return any(_denied(wanted, clause) for text in (same, *later) for clause in _CLAUSE_END.split(text))


def corrected(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether the speaker corrects a number of a value later, as in "Sorry, it is 3.10." after "It is 3.9.".

    The correction begins with a word such as "sorry" or "wait", and has a number that is written like one of the value:
    both with a point, or both as times of day.
    """
    numbers = set(_NUMBER.findall(value))
    if not numbers:
        return False
    later = [line.text for line in lines if line.seq > quote.line.seq and line.role == quote.line.role]
    for text in later:
        for sentence in sentences(text):
            first = [token.word for token in tokens(sentence)[:CORRECTION_WORDS]]
            if any(word in table("corrections") for word in first) or sentence.startswith(
                table("corrections").unspaced
            ):
                new = set(_NUMBER.findall(sentence))
                if any(_alike(old, each) for old in numbers for each in new) and not new & numbers:
                    return True
    return False


def _alike(old: str, new: str) -> bool:
    """Returns whether two numbers are written alike: both with a point, as versions are, or both clock times."""
    mark = next((mark for mark in ".:" if mark in old), "")
    return bool(mark) and mark in new and old.count(mark) == new.count(mark)


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
    if _QUESTION.search(sentence) or any(word in table("advice") for word in said):
        return False
    if "i'll" in said or sum(word in committing for word in said) > 1:
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
