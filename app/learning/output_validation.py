"""Rules of what may be stored in the profile of a model's answer, and the change of the profile.

What a message must show before a sentence of a summary is kept.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from app.core.clock import parse_rfc3339
from app.learning import evidence
from app.learning.prompts import ProfileItem, TranscriptLine
from app.learning.quotes import Quote, cited, denied_at_once, find, other_language, sentences, taken_back
from app.learning.retractions import withdrawn
from app.learning.words import active, fold, no_value, table, tokens
from app.retrieval.time_expressions import read_interval
from app.storage.schema import Doc
from app.storage.text import terms

REQUESTED = ("preference", "conversation_preference")
"""Fields that a request to the agent may show."""
_FIELDS = {"name": "name", "age": "age", "home": "live", "occupation": "work", "interest": "like"}
"""The predicate of each field that has one."""


def profile_reason(one: ProfileItem, quote: Quote) -> str | None:
    """Returns why an item of the profile is dropped, or None."""
    if no_value(one.value):
        return "no_value"
    if cited(quote, one.value):
        return "cited"
    if not evidence.shown(one.value, quote.sentence):
        return "not_said"
    negated = one.field == "conversation_preference" or evidence.negated(one.value)
    requested = one.field in REQUESTED and evidence.requested(quote)
    if reason := evidence.asserted(quote, one.value, negated=negated, requested=requested):
        return reason
    about = evidence.about_user(quote, one.value)
    if about == "not_about_user" and (one.field == "conversation_preference" or requested):
        return None if _fits(one, quote) else "field_not_said"  # a request to the agent has no subject
    if about is not None:
        return about
    return None if _fits(one, quote) else "field_not_said"


def time_shown(time: str, quote: Quote) -> bool:
    """Returns whether a time stands in a quote's sentence, reckoned from the time of the message."""
    at = parse_rfc3339(time)
    interval = read_interval(quote.sentence, parse_rfc3339(quote.line.at))
    if interval is None:
        return at.date() == parse_rfc3339(quote.line.at).date()
    day = timedelta(days=1)
    start, end = (datetime.fromtimestamp(ms / 1000, at.tzinfo) for ms in (interval.start, interval.end))
    return start - day <= at <= end + day


def _fits(one: ProfileItem, quote: Quote) -> bool:
    """Returns whether a sentence says that a value is one of its field."""
    if one.field == "age" and not evidence.number(one.value):
        return False
    if one.field == "name" and not evidence.name(one.value):
        return False
    predicate = _FIELDS.get(one.field)
    if one.field == "conversation_preference":
        return _about_answers(quote)
    return (
        predicate is None
        or evidence.says_predicate(predicate, quote, one.value)
        or (one.field == "interest" and active(quote.sentence))
    )


def _about_answers(quote: Quote) -> bool:
    """Returns whether a sentence is about how the agent answers: it has a word of style or address, asks for something,
    or names the agent."""
    names = ("styles", "asking", "forms_of_address", "second_person")
    return any(table(name).found_in(quote.sentence) for name in names) or evidence.requested(quote)


def profile_patch(items: Sequence[ProfileItem], profile: Doc) -> Doc:
    """Returns the fields to add and replace in `profile`. The last item of a field counts."""
    patch: dict[str, Any] = {}
    for one in items:
        if one.field in ("interest", "conversation_preference"):
            name = {"interest": "interests", "conversation_preference": "conversation_preferences"}[one.field]
            patch.setdefault(name, []).append(one.value)
        elif one.field == "preference":
            patch.setdefault("preferences", {})[one.about or one.value] = one.value
        elif one.field == "age":
            digits = "".join(character for character in one.value if character.isdecimal())
            if digits and int(digits) <= 150:
                patch["age"] = int(digits)
        else:
            patch[one.field] = one.value
    return {name: value for name, value in patch.items() if value != profile.get(name)}


USER = "user"
LEAST_SHARED = 2
"""The number of terms that a sentence has in common with the message that bears it out."""
SUBJECT_WORDS = 3
"""The number of words from the beginning of a sentence that have its subject."""
SHORT, SHORT_SHARE = 4, 2 / 3
"""A sentence of so few terms of its own has this share of them from one message and the one before it."""
TWO_WORDS = 2
"""A sentence of so few terms of its own has all of them from one sentence."""
SHARE = 0.6
"""The share of the terms of a longer sentence that were said, by whomever."""


def borne_out(sentence: str, lines: Sequence[TranscriptLine], earlier: str | None = None) -> bool:
    """Returns whether what was said, or the earlier summary, bears out a sentence of a summary.

    Its names and numbers were said, and most of its other words: those of a short sentence in one message. Nearest is
    the sentence of the conversation with most of its names and numbers, then most of its other words. A summary's
    sentence is not borne out if it says of the user what the assistant alone said, what the user asked, denied, wished,
    quoted or corrected, or what is true of somebody else. A sentence that repeats the conversation word for word is
    borne out, unless the user quotes it.
    """
    if (found := find(sentence, lines, USER)) is not None:
        return not cited(found, sentence)
    if earlier and _repeats(sentence, earlier):
        return True
    nearest = _nearest(sentence, lines)
    if (
        nearest is None
        or other_language(sentence, nearest.line.text)
        or not _said(sentence, nearest, lines, earlier or "")
    ):
        return False
    if nearest.line.role != "user":
        return not _of_user(sentence) or table("reported").found_in(sentence)
    if cited(nearest, sentence) and _of_user(sentence):
        return False
    if _contradicted(sentence, nearest):
        return False
    if evidence.negated(sentence):
        return True
    values = evidence.hard_values(sentence)
    return (
        not any(taken_back(nearest, value, lines) for value in values) and withdrawn(nearest, sentence, lines) is None
    )


def _repeats(sentence: str, earlier: str) -> bool:
    """Returns whether the earlier summary says a sentence: all of its names and numbers, and most of its terms."""
    own, there = _own(sentence), evidence.all_terms(earlier)
    return evidence.hard_terms(sentence) <= there and _among(own, there) >= SHORT_SHARE * len(own)


def _said(sentence: str, nearest: Quote, lines: Sequence[TranscriptLine], earlier: str) -> bool:
    """Returns whether the words of a sentence were said: its names and numbers, and enough of the others."""
    at, own = lines.index(nearest.line), _own(sentence)
    there = _told(lines[max(0, at - 1) : at + 1], earlier)
    everything = there | _told(lines, earlier)
    if not evidence.hard_terms(sentence) <= everything:
        return False
    said = [token.word for token in tokens(sentence) if (found := evidence.all_terms(token.word)) and found <= there]
    if sum(map(_weight, said)) < LEAST_SHARED and not table("reported").found_in(sentence):
        return False
    reason = _reason(sentence)
    if reason and _among(reason, there) < SHORT_SHARE * len(reason):
        return False
    if len(own) <= TWO_WORDS and not table("reported").found_in(sentence.partition("that")[2] or sentence):
        return _among(own, _told([replace(nearest.line, text=nearest.sentence)], earlier)) == len(own)
    if len(own) <= SHORT:
        return _among(own, there) >= SHORT_SHARE * len(own)
    return _among(own, everything) >= SHARE * len(own)


def _reason(sentence: str) -> list[str]:
    """Returns the words behind "because" or the like. A model joins there what nobody has joined."""
    for token in tokens(sentence):
        if token.word in table("causes"):
            return _own(sentence[token.end :])
    return next((_own(sentence.partition(word)[2]) for word in table("causes").unspaced if word in sentence), [])


def _among(words: Sequence[str], there: set[str]) -> int:
    return sum(evidence.all_terms(word) <= there for word in words)


def _weight(word: str) -> float:
    """Returns how much a word counts: a character of a script without spaces is half a word."""
    return 0.5 if len(word) == 1 and not word.isascii() else 1


def _told(lines: Sequence[TranscriptLine], earlier: str) -> set[str]:
    return evidence.all_terms(" ".join([earlier, *(f"{line.name or ''} {line.at} {line.text}" for line in lines)]))


def _own(sentence: str) -> list[str]:
    """Returns the words of a sentence that have to be said: those that do not tell of the conversation itself."""
    skipped = {
        term for name in ("generic", "reported", "telling") for word in table(name).words for term in terms(word)
    }
    return [
        token.word for token in tokens(sentence) if (found := evidence.all_terms(token.word)) and not found <= skipped
    ]


def _contradicted(sentence: str, nearest: Quote) -> bool:
    negated = evidence.negated(sentence)
    reason = evidence.asserted(nearest, sentence, negated=negated)
    if reason in ("question", "unsure"):
        return not (table("reported").found_in(sentence) or table("unsure").found_in(sentence))
    if reason is not None:
        return True
    if evidence.about_user(nearest, sentence) != "of_another_person" or not _of_user(sentence):
        return False
    return not any(word in sentence.casefold() for word in evidence.other_person(nearest, sentence))


def _nearest(sentence: str, lines: Sequence[TranscriptLine]) -> Quote | None:
    told = set(terms(sentence)) - {term for word in table("generic").words for term in terms(word)}
    hard = {term for value in evidence.hard_values(sentence) for term in terms(value)}
    best: tuple[int, int, bool] = (0, 0, False)
    found: Quote | None = None
    for line in lines:
        for said in sentences(line.text):
            there = set(terms(said))
            score = (len(hard & there), len(told & there), line.role == "user")
            if score[1] and score > best:
                best, found = score, Quote(line, said, said, None)
    return found


def _of_user(sentence: str) -> bool:
    """Returns whether a sentence is about the user, whom it names so or lets speak in the first person."""
    first = [token.word for token in tokens(sentence)[:SUBJECT_WORDS]]
    words = table("user_words")
    return any(word in words or word in table("first_subject") for word in first) or sentence.startswith(words.unspaced)


# --- Lessons ----------------------------------------------------------------------------------------------------------


BEFORE = 2
"""The number of messages before its own that a lesson may be about."""


def hard_said(text: str, said: str) -> bool:
    """Returns whether the names and numbers of a text occur in what was said. Abbreviations such as "IATA" need not."""
    words = {token.word for token in tokens(said)} | table("generic").words
    return all(
        fold(value) in words or evidence.all_terms(value) <= evidence.all_terms(said)
        for value in evidence.hard_values(text)
        if not value.isupper()
    )


def lesson_reason(text: str, quote: Quote, lines: Sequence[TranscriptLine]) -> str | None:
    """Returns why a lesson is none: it is what the assistant said itself, it is about one user, as in "The user goes to
    Lisbon.", it has a name or a number that nobody said, or no outcome shows it."""
    if quote.line.role == "assistant":
        return "said_by_assistant"
    words = [token.word for token in tokens(text)]
    first = any(word in table(name) for word in words for name in ("first_subject", "first_other"))
    if words[:2] == ["the", "user"] or first or text.startswith(table("first_subject").unspaced):
        return "of_one_user"
    if not hard_said(text, "\n".join(line.text for line in lines)):
        return "name_not_said"
    return None if _lesson_shown(text, quote, lines) else "not_shown"


def _lesson_shown(text: str, quote: Quote, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether there is evidence of a lesson: what a tool gave back, or a message of the user that says an
    outcome, a correction or a rule ("failed", "sorry", "always") and, with the two before it, a word of the lesson."""
    if any(line.role not in ("user", "assistant") for line in lines):
        return True
    at = lines.index(quote.line) if quote.line in lines else 0
    near = " ".join(line.text for line in lines[max(0, at - BEFORE) : at + 1])
    if not evidence.share_terms(text, near):
        return False
    told = quote.line.text
    shows = any(table(name).found_in(told) for name in ("outcomes", "corrections", "replacements"))
    return shows or any(denied_at_once(token.word, told) for token in tokens(told))
