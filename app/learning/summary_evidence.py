"""What a message must show before a sentence of a summary is kept."""

from collections.abc import Sequence

from app.learning import evidence
from app.learning.prompts import TranscriptLine
from app.learning.quotes import Quote, find, sentences
from app.learning.spoken_for import cited, taken_back
from app.learning.words import table, tokens
from app.storage.text import terms

USER = "user"


def borne_out(sentence: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether the sentence of the conversation that is nearest to a summary's sentence bears it out.

    Nearest is the one with most of its names and numbers, then most of its other words. A sentence is not borne out if
    it says of the user what the assistant alone said, what the user asked, denied, wished or quoted, or what is true of
    somebody else. A sentence that repeats the conversation word for word is borne out.
    """
    if find(sentence, lines) is not None:
        return True
    nearest = _nearest(sentence, lines)
    if nearest is None:
        return True
    if nearest.line.role != "user":
        return not _of_user(sentence) or table("reported").found_in(sentence)
    if cited(nearest, sentence) and _of_user(sentence):
        return False
    if _contradicted(sentence, nearest):
        return False
    return not any(taken_back(nearest, value, lines) for value in evidence.hard_values(sentence)) or evidence.negated(
        sentence
    )


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
    return any(token.word == USER for token in tokens(sentence)[:3])
