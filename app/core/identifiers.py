"""Ids that callers give to agents, users, sessions and tasks, and names of tenants.

An id is any printable text, since identity providers make it: `auth0|5f7c`, `a+b@x.com`, `Jörg Müller`. Two spellings
of the same characters are one id: each door normalises what it takes, and everything behind compares bytes.
"""

import re
import unicodedata

MAX = 255
"""The most characters of an id, once it is composed."""
RULE = (
    f"must be 1 to {MAX} printable characters, not . or .., with no / and no control or invisible characters, "
    "and without white space at the ends"
)
PATTERN = r"^[^\s/\x00-\x1f\x7f-\x9f](?:[^/\x00-\x1f\x7f-\x9f]*[^\s/\x00-\x1f\x7f-\x9f])?$"
"""What regular expressions of all languages can say of the rule. It refuses nothing that `identifier` takes."""
_MOST_MARKS = 4
"""No character is composed of more. A longer text is refused before the work of composing it."""

TENANT = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""Matches the names of tenants."""
TENANT_RULE = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : @ -"


def identifier(text: str) -> str:
    """Returns the id in Unicode's composed form (NFC). Raises ValueError if it is none."""
    composed = unicodedata.normalize("NFC", text) if len(text) <= _MOST_MARKS * MAX else text
    if not 1 <= len(composed) <= MAX or "/" in composed or not composed.isprintable():
        raise ValueError(RULE)
    if composed != composed.strip() or composed in (".", ".."):
        raise ValueError(RULE)
    return composed
