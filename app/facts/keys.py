"""Keys by which the parts of facts are compared, as pure functions."""

import unicodedata
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from app.storage.text import normalise_content

MAX_KEY = 512
"""The maximum length of a key in characters."""
_BETWEEN_WORDS = ("Pd", "Pc")
"""Unicode's categories of dashes and of connectors such as `_`."""


def key_of(text: str) -> str:
    """Returns the text by which a subject or object is compared: case, width and spaces make no difference. A long text
    becomes a digest, to keep the indexes small."""
    return _bounded(normalise_content(text))


def predicate_key(text: str) -> str:
    """Returns the text by which a predicate is compared: `lives in`, `lives_in`, `livesIn` and `Lives-In` are one. A
    predicate that has nothing but such signs is compared as it is."""
    return _bounded(normalise_content(" ".join(_words(text)))) or key_of(text)


def spoken(predicate: str) -> str:
    """Returns a predicate as words: `lives in` for `lives_in` and `livesIn`."""
    words = _words(predicate)
    if any(character.isupper() for character in predicate) and len(words) > len(predicate.split()):
        words = [word if word.isupper() and len(word) > 1 else word.lower() for word in words]
    return " ".join(words) or predicate


def _words(predicate: str) -> list[str]:
    text = unicodedata.normalize("NFKC", predicate)
    spaced = [
        " " if unicodedata.category(here) in _BETWEEN_WORDS else f" {here}" if _begins_word(text, at) else here
        for at, here in enumerate(text)
    ]
    return "".join(spaced).split()


def _begins_word(text: str, at: int) -> bool:
    """Returns True at the hump of a camel: at `I` in `livesIn` and at `S` in `HTTPServer`, but not at `D` in `IDs`."""
    if at == 0 or not text[at].isupper():
        return False
    before, after = text[at - 1], text[at + 1 : at + 3]
    return before.islower() or before.isdigit() or (before.isupper() and len(after) == 2 and after.islower())


def _bounded(key: str) -> str:
    return key if len(key) <= MAX_KEY else blake2b(key.encode(), digest_size=16).hexdigest()


def group_of(agent: str | None, user: str | None, subject_key: str, predicate_key: str) -> str:
    """Returns the id of the group of an owner, subject and predicate."""
    return blake2b(orjson.dumps([agent, user, subject_key, predicate_key]), digest_size=16).hexdigest()


def sentence(fact: Mapping[str, Any]) -> str:
    """Returns a fact as a sentence, as it is embedded and indexed: `Ada lives in Boston`."""
    subject = "The user" if fact["subject"] == "@user" else fact["subject"]
    return f"{subject} {spoken(str(fact['predicate']))} {fact['object']}"
