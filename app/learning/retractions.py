"""Whether a speaker still stands for what a quote says: not for a plan that was given up, for what is corrected or
replaced later, for what happens in a story, and not for a few words that state nothing. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.learning import evidence, quotes
from app.learning.prompts import TranscriptLine
from app.learning.quotes import FRAGMENT, Quote, find, sentences
from app.learning.words import (
    Token,
    fold,
    languages,
    other_subject,
    said_by,
    said_by_unspaced,
    table,
    tokens,
    weight,
)
from app.retrieval.time_expressions import names_time

VALUE_TOKENS = 3
"""A longer text is no value itself. Its names, numbers and days are."""
OWNER_TOKENS = 3
"""The number of tokens before a word for a story, or a person, in which "my" stands, as in "my short story"."""
STOP_TOKENS = 5
"""The most tokens of a clause that says that something is over, without a word for what that is."""
OPENING_TOKENS = 3
"""The number of tokens from the beginning of a sentence that ask to forget something."""
ASKED_TOKENS = 3
"""A question of so few tokens leaves out whom it is about, as in "Any allergies?"."""
DAY_CHARS = 3
"""A word of fewer characters names no day."""
_CONTRAST = re.compile(r"\b(?:but|aber|sondern|mais|pero|sino|ma|mas|maar)\b|\u4f46|\u3051\u3069")
_GERMAN_NOUN = re.compile(
    r"\b(?:[dD](?:er|ie|as|en|em|es)|[kmKM]?[eE]in(?:e[nmrs]?)?|[iI]m|[aA]m|[zZ]u[mr]|[bB]eim|[vV]om)\s+[A-Z\u00c0-\u00de]"
)
"""A capital behind one of these words begins a noun, and no name."""
_GERMAN_SHE = re.compile(r"\b[sS]ie \w+t\b")


def withdrawn(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> str | None:
    """Returns why the speaker does not stand for a value of a quote: `fiction`, `given_up` or `taken_back`, or None."""
    if of_story(quote, value, lines):
        return "fiction"
    if dismissed(quotes.narrowed(quote, value).sentence):
        return "taken_back"
    if given_up(quote, value):
        return "given_up"
    if evidence.negated(value):
        return None
    values = [*_hard(value), *([value] if len(tokens(value)) <= VALUE_TOKENS else ())]
    whole = evidence.content_terms(quote.sentence) <= evidence.content_terms(value)
    if not whole and any(quotes.denied_at_once(each, quote.sentence) for each in values):
        return "taken_back"
    denied = any(quotes.taken_back(quote, each, lines) or _given_up_later(quote, each, lines) for each in values)
    return "taken_back" if denied or quotes.corrected(quote, value, lines) or _replaced(quote, value, lines) else None


def _hard(value: str) -> list[str]:
    """Returns the names, numbers and days of a value."""
    return [*quotes.capitalised(value), *_days(value)]


def _names(text: str) -> set[str]:
    """Returns the names, numbers and days inside a sentence, without German nouns behind an article."""
    plain = _GERMAN_NOUN.sub(lambda found: found[0].lower(), text)
    return {fold(value) for value in evidence.hard_values(plain)} | quotes.numbers(text) | set(_days(text))


def _days(text: str) -> list[str]:
    """Returns the words of a text that name a day, such as "lunes"."""
    return [
        token.word
        for token in tokens(text.replace("-", " "))
        if len(token.word) >= DAY_CHARS and names_time(token.word)
    ]


# --- Given up ---------------------------------------------------------------------------------------------------------


def given_up(quote: Quote, value: str) -> bool:
    """Returns whether all clauses that hold a value tell a plan or a habit of the past, as in "I was going to paint it,
    but I don't", or what was said before, as in "We said Monday, but it's Tuesday", or something that is over, as in
    "I played the cello, but I gave it up". A value that says so itself is none."""
    if table("former").phrased_in(value):
        return False
    wanted = evidence.content_terms(value)
    clauses = _clauses(quote.sentence)
    held = [clause for clause in clauses if wanted & evidence.all_terms(clause)]
    if held and _stopped(clauses[clauses.index(held[-1]) + 1 :]):
        return True
    return bool(held) and all(_former(clause, quote.sentence) for clause in held)


def _stopped(later: Sequence[str]) -> bool:
    """Returns whether the next clause says that what was told before it is over, as in "but I gave it up"."""
    next_one = next((clause for clause in later if clause.strip(" ,")), "")
    return len(tokens(next_one)) <= STOP_TOKENS and table("stopped").phrased_in(next_one)


def _clauses(sentence: str) -> list[str]:
    """Returns the clauses of a sentence. One that only says that something was said or planned holds the next one."""
    result: list[str] = []
    end = 0
    for start, stop in evidence.clause_spans(sentence):
        clause = sentence[start:stop]
        if result and sentence[end:start].strip() in (",", ":") and _opens(result[-1]):
            result[-1] += f" {clause}"
        else:
            result.append(clause)
        end = stop
    return result


def _opens(clause: str) -> bool:
    """Returns whether a clause has a phrase of what was said or planned and nothing else: "Ich sagte, am Montag"."""
    own = evidence.content_terms(clause) - table("first_subject").words
    phrases = (phrase for name in ("former", "said_before") for phrase in table(name).phrases_in(clause))
    return any(own <= evidence.content_terms(phrase) for phrase in phrases)


def _former(clause: str, sentence: str) -> bool:
    if table("former").phrased_in(clause):
        return not table("saying").found_in(clause)  # "I was going to say that I live here"
    return table("said_before").phrased_in(clause) and _contrasted(clause, sentence)


def _contrasted(clause: str, sentence: str) -> bool:
    """Returns whether "but" follows a clause with something else: another name, number or day if the clause has one,
    or else what is no reaction of other people, as in "I said so, but nobody listened"."""
    found = _CONTRAST.search(sentence)
    if found is None:
        return False
    behind = sentence[found.end() :]
    if _names(behind) - _names(sentence[: found.start()]):
        return True
    others = table("other_subject").words | table("anybody").words
    reaction = any(token.word in others for token in tokens(behind)[:1])
    return not _names(clause) and not reaction


def _given_up_later(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a later sentence tells of a value as of what was said or planned before."""
    wanted = evidence.all_terms(value)
    for sentence in _later(quote, lines):
        held = [clause for clause in _clauses(sentence) if wanted <= evidence.all_terms(clause)]
        if held and all(_former(clause, sentence) for clause in held):
            return True
    return False


def _replaced(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a later sentence with a word of change, such as "finally", has one of the value's days and
    another one, too."""
    own = set(_days(value))
    for sentence in _later(quote, lines) if own else ():
        if table("changes").found_in(sentence) and own & (named := set(_days(sentence))) and named - own:
            return True
    return False


def _later(quote: Quote, lines: Sequence[TranscriptLine]) -> Iterator[str]:
    """Yields the sentences that the speaker says after that of a quote."""
    for text in quotes.said_later(quote, lines):
        yield from sentences(text)


def dismissed(sentence: str) -> bool:
    """Returns whether a sentence asks to forget what it says, as in "Forget what I said about Rome", and not "They
    ignore Rome" or "Don't forget Rome"."""
    said = [token.word for token in tokens(sentence)[: OPENING_TOKENS + 1]]
    at = next((at for at, word in enumerate(said) if word not in table("openers")), len(said))
    if at < len(said) and said[at] in table("dismissals"):
        return not any(word in table("negations") for word in said[at + 1 : at + 2])
    return sentence.startswith(table("dismissals").unspaced)


# --- Stories ----------------------------------------------------------------------------------------------------------


def of_story(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a sentence tells of somebody in a story that the user has spoken of as theirs.

    A sentence in the first person, one after the user spoke of a person of theirs later than of the story, and a value
    that names the story tell of no such one.
    """
    if quote.line.role != "user" or table("fiction").found_in(value) or not _of_somebody(quote.sentence):
        return False
    if _owned("fiction", quote.sentence):
        return True
    earlier = [line.text for line in lines if line.role == "user" and line.seq < quote.line.seq]
    for text in reversed([*earlier, quote.line.text.partition(quote.sentence)[0]]):
        for sentence in reversed(sentences(text)):
            if _owned("relations", sentence):
                return False
            if _owned("fiction", sentence):
                return True
    return False


def _of_somebody(sentence: str) -> bool:
    said, spoken = tokens(sentence), languages(sentence)
    others = any(other_subject(said, at, sentence, spoken) for at in range(len(said)))
    others = others or any(token.word in table("other_owner", spoken) for token in said)
    others = others or any(word in sentence for word in table("other_subject").unspaced)
    return (others or ("de" in spoken and bool(_GERMAN_SHE.search(sentence)))) and not _own(said)


def _own(said: Sequence[Token]) -> bool:
    """Returns whether one of the tokens is the speaker."""
    return any(token.word in table(name) for token in said for name in ("first_subject", "first_other", "first_verbs"))


def _owned(name: str, text: str) -> bool:
    """Returns whether a text speaks of a word of a table as of the speaker's, as in "my short story"."""
    said, things = tokens(text), table(name)
    places = [at for at, token in enumerate(said) if token.word in things]
    return any(_own(said[max(0, at - OWNER_TOKENS) : at]) for at in places) or any(
        f"{mine}{link}{thing}" in text
        for mine in table("first_subject").unspaced
        for thing in things.unspaced
        for link in ("", "\u7684", "\u306e")
    )


# --- What states nothing ----------------------------------------------------------------------------------------------


def fragment(quote: Quote) -> bool:
    """Returns whether all sentences of a quote's message are of a few words that state nothing: without the speaker, a
    name, a number, a time, a negation or a request, and no answer to a question about the user. Beside a statement,
    such words may be a part of it, as in "We need tools. A saw, a file."
    """
    before = quote.before
    if before is not None and before.text.rstrip().endswith(("?", "\uff1f")):
        asked = sum(weight(token.word) for token in tokens(sentences(before.text)[-1]))
        if asked <= ASKED_TOKENS or table("second_person").found_in(before.text):
            return False
    return all(_states_nothing(part) for part in sentences(quote.line.text)) and not evidence.requested(quote)


def _states_nothing(sentence: str) -> bool:
    said = tokens(sentence)
    if sum(weight(token.word) for token in said) > FRAGMENT or _own(said) or _names(sentence):
        return False
    if evidence.negated(sentence) or names_time(sentence):
        return False
    return not any(table(name).found_in(sentence) for name in ("styles", "asking", "forms_of_address", "relations"))


def states_nothing(content: str, quote: Quote) -> str | None:
    """Returns `fragment` or `given_up` if a quote states nothing that still holds."""
    if fragment(quote):
        return "fragment"
    return "given_up" if given_up(quote, content) else None


def says_verbs(content: str, quote: Quote) -> str | None:
    """Returns `other_words` if a memory says that somebody is, likes or works as something and its sentence has no word
    for that: "The user is a baker" of "I train to be a baker"."""
    told, said, clause = tokens(content), evidence.all_terms(quote.sentence), evidence.clause_of(quote, content)
    for token in told:
        of = said_by(token.word)
        if of and not evidence.all_terms(token.word) <= said and not any(words.found_in(clause) for words in of):
            return "other_words"
    for words in said_by_unspaced(content):
        if not words.found_in(quote.sentence):
            return "other_words"
    short = len(evidence.content_terms(content)) < evidence.SHORT_MEMORY and any(
        token.word in table("copulas") for token in told
    )
    return "other_words" if short and not table("copulas").found_in(quote.sentence) else None


def without_withdrawn(content: str, quote: Quote, lines: Sequence[TranscriptLine]) -> str:
    """Returns a memory that the user said word for word without the sentences that state nothing, that the user quotes
    or does not stand for. One in other words, of a single sentence, or without any other sentence stays as it is. So
    does a sentence that is corrected by the ones that are kept behind it, as in "It takes six days. No, eight."
    """
    parts = sentences(content)
    if len(parts) < 2 or find(content, [quote.line]) is None:
        return content
    kept: list[str] = []
    for part in reversed(parts):
        found = find(part, [quote.line])
        if found is None or fragment(replace(found, before=quote.before)) or quotes.cited(found, part):
            continue
        before, _, behind = found.line.text.partition(found.sentence)
        for each in kept:
            behind = behind.replace(each, "", 1)
        alone = replace(found, line=replace(found.line, text=f"{before}{found.sentence}{behind}"))
        if withdrawn(alone, part, lines) is None:
            kept.insert(0, part)
    return " ".join(kept) or content
