"""Rules of what may be stored in the profile of a model's answer, and the change of the profile."""

from collections.abc import Sequence
from typing import Any

from app.learning import evidence
from app.learning.prompts import ProfileItem
from app.learning.quotes import Quote
from app.learning.spoken_for import cited
from app.storage.schema import Doc

REQUESTED = ("preference", "conversation_preference")
"""Fields that a request to the agent may show."""
_FIELDS = {"name": "name", "age": "age", "home": "live", "occupation": "work", "interest": "like"}
"""The predicate of each field that has one."""


def profile_reason(one: ProfileItem, quote: Quote) -> str | None:
    """Returns why an item of the profile is dropped, or None."""
    if evidence.no_value(one.value):
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
        return None  # a request to the agent has no subject
    if about is not None:
        return about
    return None if _fits(one, quote) else "field_not_said"


def _fits(one: ProfileItem, quote: Quote) -> bool:
    """Returns whether a sentence says that a value is one of its field."""
    if one.field == "age" and not evidence.number(one.value):
        return False
    if one.field == "name" and not evidence.name(one.value):
        return False
    predicate = _FIELDS.get(one.field)
    return (
        predicate is None
        or evidence.says_predicate(predicate, quote, one.value)
        or (one.field == "interest" and evidence.active(quote))
    )


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
