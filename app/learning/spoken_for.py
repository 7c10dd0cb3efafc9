"""Words of a message that are not the speaker's own statement: text that was quoted, and what was taken back later."""

import re
from collections.abc import Sequence

from app.learning.prompts import TranscriptLine
from app.learning.quotes import Quote
from app.learning.words import Token, languages, table, tokens
from app.storage.text import terms

LONG = 6
"""The number of tokens from which text in quotation marks is somebody's statement, and no title or name."""
BETWEEN = 2
"""The number of prepositions or articles that may stand between "not" and what is taken back, as in "not in Madrid"."""
BEHIND = 3
"""The number of tokens in which a negation follows what is taken back, as in "212 is not right"."""
_QUOTED = re.compile(
    "\u201c[^\u201d]*\u201d?|\u201e[^\u201c\u201d]*[\u201c\u201d]?|\u00ab[^\u00bb]*\u00bb?|\u300c[^\u300d]*\u300d?"
    '|\u300e[^\u300f]*\u300f?|"[^"]*"?|```.*?(?:```|$)',
    re.DOTALL,
)
_CLAUSE_END = re.compile(r"[,;:.!?\u2014\u3001\uff0c\u3002\uff1f\uff01]+|\s-\s")


def cited(quote: Quote, value: str) -> bool:
    """Returns whether the words of a value stand in text that the speaker quotes.

    A letter to be translated is somebody else's: in 'Translate: "My name is Bruno and I live in Rome."' Bruno is not
    the user. Short text in quotation marks, such as a title, does not count.
    """
    text, at = quote.line.text, quote.line.text.find(quote.sentence)
    own = _QUOTED.sub(lambda found: _blank(found[0]), text)[at : at + len(quote.sentence)]
    wanted = set(terms(value)) & set(terms(quote.sentence))
    return bool(wanted) and not wanted & set(terms(own))


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
