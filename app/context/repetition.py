"""What says the same: the keys that equal entries share, and the sentences of a text as they are compared.

An entry has several keys: a memory of a message shares one with the turn of the session that it was made of, and a fact
one with a memory of the same words.
"""

from collections.abc import Sequence

from app.context.candidates import Candidate
from app.context.passages import LONG_TEXT
from app.core.caches import kept_by_digest
from app.core.language import sentences
from app.facts.keys import USER
from app.storage.text import content_hash, normalise_content

# --- Keys -------------------------------------------------------------------------------------------------------------


def same_text(text: str) -> str:
    """Returns the key of what has this text."""
    return same_content(content_hash(text))


def same_content(text_hash: int, day: str = "") -> str:
    """Returns the key of what has a text with this hash, on a day if it is an event: it may happen again."""
    return f"text:{text_hash}:{day}" if day else f"text:{text_hash}"


def same_memory(memory_id: str) -> str:
    """Returns the key of what stands for this memory."""
    return f"memory:{memory_id}"


def same_message(session_id: str, seq: int) -> str:
    """Returns the key of a message, which a turn and a memory share."""
    return f"message:{session_id}:{seq}"


def same_rule(text: str) -> str:
    """Returns the key of a rule: another entry with its words, such as a memory, does not stand for it."""
    return f"rule:{content_hash(text)}"


def same_profile_entry(text: str) -> str:
    """Returns the key of an entry of the profile."""
    return f"profile:{content_hash(text)}"


def same_procedure(name: str, steps: Sequence[str]) -> str:
    """Returns the key of a procedure with this name and these steps."""
    return f"procedure:{content_hash(' '.join([name, *steps]))}"


def same_words_as(memory_id: str) -> str:
    """Returns the key of a hit and of the memories with its text, of which one at most is packed."""
    return f"said:{memory_id}"


# --- Sentences --------------------------------------------------------------------------------------------------------

LEAST_SAID = 12
"""Bytes of the shortest sentence that may be a repetition. "Yes." and "I do." mean something else each time."""


@kept_by_digest(8 << 20, lambda hashes: 100 * (1 + len(hashes)))
def sentences_said(text: str) -> frozenset[int]:
    """Returns hashes of the sentences of a text as they are compared: without regard to case, width, white space and
    closing marks. Empty if all are too short to be compared. The rest of a long text is not read."""
    compared = {normalise_content(sentence).rstrip(".!\u2026\u3002") for sentence in sentences(text[:LONG_TEXT])}
    has_long_one = any(len(sentence.encode("utf-8", "surrogatepass")) >= LEAST_SAID for sentence in compared)
    return frozenset(map(hash, compared)) if has_long_one else frozenset()


def compared_sentences(item: Candidate) -> frozenset[int]:
    """Returns what is compared of a candidate: the sentences of its text or of each of its facts, which are those of
    the day for an event, and those of the speaker if another one than the user said them."""
    speaker = None if item.utterance is None or item.utterance.by == USER else item.utterance.by
    hashes = frozenset[int]().union(*map(sentences_said, item.comparison.statements or (item.as_compared,)))
    if item.comparison.of_its_day or speaker is not None:
        day = item.day if item.comparison.of_its_day else ""
        return frozenset(hash((sentence, day, speaker)) for sentence in hashes)
    return hashes
