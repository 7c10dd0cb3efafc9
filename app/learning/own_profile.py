"""What users say of themselves and how they want to be answered, found without a model. Pure functions.

It completes the profile of a model's answer: "my name is Zeb", "vivo en Oviedo", "ich arbeite als Maurerin", "tengo 34
años", "no emojis, please". The rules of evidence judge these items like a model's.
"""

import re
from collections.abc import Iterator, Sequence

from app.learning.extraction import Rules
from app.learning.prompts import ProfileItem, heard
from app.learning.quotes import Quote, find, sentences
from app.learning.statements import FUNCTION_TABLES, apart, certain, earnest
from app.learning.words import Token, table, tokens

MOST_WISHES = 5
"""The most wishes for answers that code adds for a stretch."""
WISH_CHARS = 200
JOB_TOKENS, PLACE_CHARS = 3, 4
"""The most tokens of an occupation, and characters of a name or place in a script without spaces."""
AGE_VERBS = ("i'm", "am", "im", "bin", "tengo", "j'ai", "ai", "ho", "tenho", "ben")
"""What stands before the number of an age."""


def further_profile(rules: Rules, stored: Sequence[tuple[ProfileItem, Quote]]) -> list[tuple[ProfileItem, Quote]]:
    """Returns what users say of themselves and how they want to be answered, without the fields that are stored, and
    without the wishes that a stored item of the profile quotes."""
    quoted = [quote.sentence for one, quote in stored if one.field == "conversation_preference"]
    told = {one.field for one, _ in stored}
    about_self: dict[tuple[str, str], ProfileItem] = {}
    found: list[ProfileItem] = []
    for line in heard(rules.lines):
        if line.role == "user":
            for sentence in sentences(line.text):
                quote = find(sentence, [line])
                if quote is not None and certain(quote) and earnest(quote, rules.lines):
                    new = [one for one in _of_self(sentence) if one.field not in told]
                    about_self |= {(one.field, str(one.value)): one for one in new}
                if _wish(sentence) and not any(sentence in each or each in sentence for each in quoted):
                    found.append(_item(sentence, "conversation_preference", sentence[:WISH_CHARS]))
    return [*apart(rules).profile([*about_self.values()]), *apart(rules).profile(found)[:MOST_WISHES]]


def _of_self(sentence: str) -> Iterator[ProfileItem]:
    """Yields the name, the home, the age and the occupation that a sentence says of its speaker."""
    said = tokens(sentence)
    words = [token.word for token in said]
    for field, names in (("name", True), ("home", True), ("occupation", False)):
        phrases = table(f"{field}_phrases")
        for phrase in phrases.words:
            wanted = phrase.split()
            starts = [at for at in range(len(words)) if words[at : at + len(wanted)] == wanted]
            for value in (_behind(sentence, said, at + len(wanted), names=names) for at in starts):
                if value:
                    yield _item(sentence, field, value)
        for phrase in phrases.unspaced:
            value = re.split(r"[\W_]", sentence.partition(phrase)[2], maxsplit=1)[0]
            if 1 < len(value) <= PLACE_CHARS:
                yield _item(sentence, field, value)
    for at in range(1, len(words) - 1):
        unit = next(
            (each for each in table("years").words if f"{' '.join(words[at + 1 :])} ".startswith(f"{each} ")), ""
        )
        more = " ".join(words[at + 1 + len(unit.split()) :]).startswith(("de ", "di ", "d'"))
        if unit and words[at].isdigit() and words[at - 1] in AGE_VERBS and not more:
            yield _item(sentence, "age", words[at])


def _behind(sentence: str, said: Sequence[Token], at: int, *, names: bool) -> str:
    """Returns the words with a capital from a token on, or else those of an occupation, up to a function word."""
    end = at
    while end < len(said) and (end == at or not sentence[said[end - 1].end : said[end].start].strip(" ")):
        word, folded = sentence[said[end].start : said[end].end], said[end].word
        small = any(folded in table(name) for name in FUNCTION_TABLES) and not word[0].isupper()
        if folded in table("no_home") or small or (names and not word[0].isupper()):
            break
        end += 1
    if end == at or (not names and end - at > JOB_TOKENS):
        return ""
    return sentence[said[at].start : said[end - 1].end]


def _item(sentence: str, field: str, value: str) -> ProfileItem:
    return ProfileItem.model_validate({"quote": sentence, "field": field, "about": None, "value": value})


def _wish(sentence: str) -> bool:
    """Returns whether a sentence says how to answer: "you may tutoyer me", or "no emojis, please".

    A form of address says so alone. Another word of style needs one with which somebody asks.
    """
    if table("forms_of_address").found_in(sentence):
        return True
    return table("styles").found_in(sentence) and table("asking").found_in(sentence)
