"""When two texts claim the same: word for word, but for wording that carries no claim. Pure.

Cosines cannot tell: those of "tea over coffee" and "coffee over tea" are 0.995 near, left and right 0.991, before and
after 0.976, and those of one sentence with and without its full stop 0.916 (`scripts/evaluate_merging.py`). So every
word counts, in its order; numbers, names, negation, dates, conditions and tenses are words like all others. Nor is
another word for the same thing the same: what is merged is found from then on by the words of the one that is kept.
"""

import re
import unicodedata
from typing import TypeAlias

Claim: TypeAlias = tuple[str, ...]

SILENT = frozenset("a an the really truly indeed also please".split())
"""They add nothing to a claim wherever they stand."""
SUBJECT = ("user",)
"""A memory of a user is about the user, whether it begins by saying so or not; then its verb is in the third person."""
_CONTRACTED = (
    (re.compile(r"\bcan't\b|\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"\bi'm\b"), "i am"),
)
_SPELLED = str.maketrans({**dict.fromkeys("\u2018\u2019\u02bc`", "'"), **dict.fromkeys("\u2010\u2011", "-")})
_END = re.compile(r"[.!\u2026\u3002\uff01]+(?=\s|$)")
_TOKEN = re.compile(r"\w+(?:[.,:/'-]\w+)*|[^\w\s]")
_THIRD_PERSON = {"has": "have", "does": "do", "goes": "go"}


def claim(text: str) -> Claim:
    """The words that a text claims something by, in their order."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_SPELLED)
    for contracted, whole in _CONTRACTED:
        plain = contracted.sub(whole, plain)
    plain = _END.sub(" ", plain)
    said = [token for token in _TOKEN.findall(plain) if token not in SILENT]
    if tuple(said[:1]) == SUBJECT and len(said) > 1:
        said = said[1:]
    if said:
        said[0] = _plural(said[0])
    return tuple(said) or (text,)


def _plural(verb: str) -> str:
    """Of a first word, which is a verb where the subject is left out: `prefers` and `prefer`."""
    if verb in _THIRD_PERSON:
        return _THIRD_PERSON[verb]
    return verb[:-1] if len(verb) > 3 and verb.isalpha() and verb.endswith("s") and verb[-2] not in "sui" else verb
