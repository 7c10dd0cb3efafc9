"""Ids that callers give: what is one, what is none, and how a path spells it."""

import unicodedata
from urllib.parse import quote

from hypothesis import strategies as st

KNOWN = (
    "auth0|5f7c0b1e",
    "a+b@x.com",
    "J\u00f6rg M\u00fcller",
    "google-oauth2|1047",
    "CN=Ada, OU=People; O=x",
    "urn:uuid:6e8b",
    "100% sure?#1",
    "%2F",
    "$ne",
    "{user_id}",
    "a\\b",
    'say "hi" & <b>go<b>',
    "\u674e\u96f7",
    "\U0001f600",
    "...",
    "~user'`*!()[]^",
)
"""Ids as identity providers, directories and people make them."""
WRONG = {
    "empty": "",
    "a space": " ",
    "a space before": " ada",
    "a space behind": "ada ",
    "a slash": "a/b",
    "a dot": ".",
    "two dots": "..",
    "a line feed": "a\nb",
    "a tab": "a\tb",
    "an escape": "a\x1b[2J",
    "a control of Latin-1": "a\x85b",
    "a line separator": "a\u2028b",
    "a no-break space": "\u00a0ada",
    "a zero-width space": "a\u200bb",
    "a direction mark": "a\u202eb",
    "a byte order mark": "\ufeffada",
    "a private character": "a\ue000b",
    "a noncharacter": "a\uffffb",
    "256 characters": "x" * 256,
    "256 characters when they are composed": "e\u0301" * 256,
}
"""Texts that are no id, by what is wrong with them."""

_SIGNS = "|+%@$&=#?\\'\"<>[]{};:,.~^*!() "
_characters = st.one_of(
    st.characters(exclude_categories=("C", "Z"), exclude_characters="/"),
    st.sampled_from(_SIGNS),
    st.sampled_from("\u0301\u0308\u0327\u00e9\u212b\u1e9b\ufb01"),
)


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _is_id(text: str) -> bool:
    made = composed(text)
    return made == made.strip() and made not in ("", ".", "..") and len(made) <= 255


valid_ids = st.sampled_from(KNOWN) | st.text(_characters, min_size=1, max_size=40).filter(_is_id)
invalid_ids = st.sampled_from([one for one in WRONG.values() if one]) | st.builds(
    lambda head, bad, tail: head + bad + tail,
    st.text("ab", min_size=1, max_size=3),
    st.characters(categories=("Cc", "Cf", "Co", "Zl", "Zp"), exclude_characters="\0") | st.just("/"),
    st.text("ab", min_size=1, max_size=3),
)


def segment(text: str) -> str:
    """The id as one part of a path."""
    return quote(text, safe="") if set(text) - {"."} else text.replace(".", "%2E")
