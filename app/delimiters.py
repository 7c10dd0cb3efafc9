"""The tags around what we put into a prompt: text inside cannot close them, and text that we served is known again."""

import re
import unicodedata

CONTEXT = "recalld_context"

_OURS = (CONTEXT, "agent_experience", "user_specific_experience")
_BLOCKS = (*_OURS, "user_profile", "memories", "memory")
_TAG = re.compile(rf"<(?=[^\w<]*(?:{'|'.join(_BLOCKS)}))", re.IGNORECASE)
_INVISIBLE = frozenset({"Cf", "Cc", "Mn", "Me"})
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_ANGLE = re.compile("[<\uff1c\ufe64]")


def strip_served(text: str) -> str:
    """Without the blocks that we served ourselves: what comes back to us in a message is not learned again."""
    for name in _OURS:
        opening, closing = f"<{name}>\n", f"\n</{name}>"
        kept, at = [], 0
        while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
            kept.append(text[at:start])
            at = end + len(closing)
            at += text[at : at + 1] == "\n"
        if kept:
            text = "".join([*kept, text[at:]])
    return text


def escape(text: str) -> str:
    """No delimiter of ours can be read in it, nor one in wide letters or with invisible characters inside."""
    if not _ANGLE.search(text):
        return text
    read = [(char, at) for at, one in enumerate(text) for char in _read(one)]
    found = {read[tag.start()][1] for tag in _TAG.finditer("".join(char for char, _ in read))}
    return "".join("&lt;" if at in found else one for at, one in enumerate(text)) if found else text


def _read(char: str) -> str:
    """As it is seen: nothing of what is invisible, plain letters for wide ones."""
    if char.isascii():
        return char if char.isprintable() or char.isspace() else ""
    if char in _FILLERS or unicodedata.category(char) in _INVISIBLE:
        return ""
    return unicodedata.normalize("NFKC", char)
