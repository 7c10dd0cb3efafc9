"""The tags around what we put into a prompt: text inside cannot close them, and text that we served is known again."""

import re
import unicodedata

CONTEXT = "recalld_context"

_OURS = (CONTEXT, "agent_experience", "user_specific_experience")
_BLOCKS = (*_OURS, "user_profile", "memories", "memory")
_TAG = re.compile(rf"<(?=[^\w<]*(?:{'|'.join(_BLOCKS)}))", re.IGNORECASE)
_ANGLE = re.compile("[<\uff1c\ufe64]")
_SERVED = re.compile(rf"<({'|'.join(_OURS)})>.*?</\1>\s?|</?(?:{'|'.join(_OURS)})>", re.DOTALL)


def strip_served(text: str) -> str:
    """Without the blocks that we served ourselves: what comes back to us in a message is not learned again."""
    return _SERVED.sub("", text) if "<" in text else text


def escape(text: str) -> str:
    """No delimiter of ours can be read in it, nor one in wide letters or with invisible characters inside."""
    if not _ANGLE.search(text):
        return text
    read = [(char, at) for at, one in enumerate(text) for char in _read(one)]
    found = {read[tag.start()][1] for tag in _TAG.finditer("".join(char for char, _ in read))}
    return "".join("&lt;" if at in found else one for at, one in enumerate(text)) if found else text


def _read(char: str) -> str:
    if char.isascii():
        return char
    return "" if unicodedata.category(char) == "Cf" else unicodedata.normalize("NFKC", char)
