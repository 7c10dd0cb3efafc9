"""What says the same: the keys that equal entries share.

An entry has several keys: a memory of a message shares one with the turn of the session that it was made of, and a fact
one with a memory of the same words.
"""

from collections.abc import Sequence

from app.storage.text import content_hash


def same_text(text: str) -> str:
    """Returns the key of what has this text."""
    return same_content(content_hash(text))


def same_content(text_hash: int, of: str = "") -> str:
    """Returns the key of what has a text with this hash: on a day if it is an event, which may happen again, and of a
    speaker if it is not the user."""
    return f"text:{text_hash}:{of}" if of else f"text:{text_hash}"


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
