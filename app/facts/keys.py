"""Keys by which the parts of facts are compared, and facts about the user. Pure functions.

A fact about the user has the subject `@user`. If its predicate is that of a field of the profile, it belongs to the
user and to no agent, has cardinality `one`, and is the only place where the field is stored (docs/concepts/facts.md).
"""

import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias

import orjson
from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from app.core.schemas import WHOLE, Object, shown
from app.errors import invalid
from app.facts.models import FactRecord
from app.storage.changes import Insert, Update
from app.storage.schema import BaseRecord, Collection
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


def sentence(fact: FactRecord) -> str:
    """Returns a fact as a sentence, as it is embedded and indexed: `Ada lives in Boston`."""
    subject = "The user" if fact["subject"] == USER else fact["subject"]
    return f"{subject} {spoken(fact['predicate'])} {fact['object']}"


USER = "@user"
"""The subject of facts about the user. Texts show it as "The user"."""


MAX_AGE = 150
MAX_LINE = 2000
"""The maximum length of a text in the profile."""
ProfileLine = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE, pattern=r"\S")]
ProfileLines = Annotated[list[ProfileLine], Field(max_length=200)]
Age = Annotated[int, Field(strict=True, ge=0, le=MAX_AGE), WHOLE]


class UserProfile(TypedDict, total=False):
    """A profile: its whole, what a record stores of it, or the fields that change."""

    name: Annotated[ProfileLine | None, Field(default=None)]
    age: Annotated[Age | None, Field(default=None)]
    home: Annotated[ProfileLine | None, Field(default=None, description="Town, neighbourhood.")]
    occupation: Annotated[ProfileLine | None, Field(default=None)]
    interests: Annotated[ProfileLines, Field(default=[])]
    conversation_preferences: Annotated[
        ProfileLines, Field(default=[], description="How they like to be talked to, what to leave out.")
    ]
    preferences: Annotated[Object, Field(default={})]
    custom: Annotated[Object, Field(default={})]


@shown
class Interaction(TypedDict, total=False):
    timestamp: str
    summary: str
    outcome: str | None
    agent_id: Annotated[
        str | None, Field(default=None, description="With whom; null where every agent of the user may know.")
    ]


class UserRecord(BaseRecord, total=False):
    """A document of the collection `users`. `USERS` explains its internal fields. It is of no agent."""

    agent_id: None
    user_id: str
    profile: UserProfile
    interactions: list[Interaction]
    interacted: int | None


USERS: Collection[UserRecord] = Collection(
    name="users",
    kind="profile",
    counted=True,
    id_field="user_id",
    fields={"user_id": "text", "agent_id": "text", "created_at": "time"},
    indexes=(("user_id",),),
    opaque=("profile", "interactions"),
    internal=frozenset({"interacted"}),
)
"""The records of users. It is declared here since a change of a fact about the user raises the version of the record.
The fields of `PREDICATES` are null in it: facts state them.

`interacted` counts the interactions.
"""

ProfileField: TypeAlias = Literal["name", "age", "home", "occupation"]
"""A field of the profile that is a fact."""

EMPTY_PROFILE: UserProfile = {
    "name": None,
    "age": None,
    "home": None,
    "occupation": None,
    "interests": [],
    "conversation_preferences": [],
    "preferences": {},
    "custom": {},
}

PREDICATES: Mapping[str, str] = {"name": "has_name", "age": "has_age", "home": "lives_in", "occupation": "works_as"}
"""The predicate of each field of the profile that is a fact."""
_SPELLINGS: Mapping[ProfileField, str] = {
    "name": "has_name name is_named is_called goes_by",
    "age": "has_age age is_aged is_years_old",
    "home": "lives_in home has_home resides_in residence",
    "occupation": "works_as occupation has_occupation job has_job profession has_profession is_employed_as job_title",
}
_FIELDS: Mapping[str, ProfileField] = {
    predicate_key(spelling): field for field, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
PROFILE_KEYS = tuple(predicate_key(predicate) for predicate in PREDICATES.values())


def is_user(subject: str) -> bool:
    """Returns whether a subject is the reserved one."""
    return key_of(subject) == USER


def field_of(fact: FactRecord) -> ProfileField | None:
    """Returns the field of the profile that a fact states, or None."""
    if fact["user_id"] is None or not is_user(fact["subject"]):
        return None
    return _FIELDS.get(predicate_key(fact["predicate"]))


def settled(fact: FactRecord) -> FactRecord:
    """Returns the fields of an assertion as they are stored: a fact of the profile belongs to no agent, and its
    predicate has one spelling. Raises Invalid if the profile cannot have the value."""
    field = field_of(fact)
    if field is None:
        return {**fact, "subject": USER} if is_user(fact["subject"]) else fact
    if value_of(field, fact["object"]) is None:
        most = f"a whole number from 0 to {MAX_AGE}" if field == "age" else f"at most {MAX_LINE} characters long"
        raise invalid("/object", f"must be {most}: it is the user's {field}")
    return {**fact, "subject": USER, "predicate": PREDICATES[field], "agent_id": None}


def value_of(field: str, text: str) -> str | int | None:
    """Returns the value of a field that a fact's object states, or None if the profile cannot have it."""
    return age_of(text) if field == "age" else line_of(text)


def age_of(text: str) -> int | None:
    """Returns the age that a text states, or None if it is no whole number from 0 to `MAX_AGE`."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) <= 3 and int(plain) <= MAX_AGE else None


def line_of(text: str) -> str | None:
    """Returns a text of the profile, or None if it is longer than `MAX_LINE`."""
    return text if len(text) <= MAX_LINE else None


def group_of_field(user_id: str, field: str) -> str:
    """Returns the id of the group of facts that state a field."""
    return group_of(None, user_id, USER, predicate_key(PREDICATES[field]))


def states(facts: Iterable[FactRecord]) -> dict[str, FactRecord]:
    """Returns the fact that states each field, of facts that hold at one moment. Of several the one that began last
    counts, then the one that became known last."""
    stating: dict[str, FactRecord] = {}
    for fact in sorted(facts, key=lambda fact: (fact["valid_from"] or "", fact["known_from"])):
        field = field_of(fact)
        if field is not None and value_of(field, fact["object"]) is not None:
            stating[field] = fact
    return stating


def profile_of(stored: UserProfile, facts: Mapping[str, FactRecord]) -> UserProfile:
    """Returns a whole profile: the stored fields, and those that facts state."""
    profile: UserProfile = {**EMPTY_PROFILE, **stored}
    if "age" in facts:
        profile["age"] = age_of(facts["age"]["object"])
    lines: tuple[Literal["name", "home", "occupation"], ...] = ("name", "home", "occupation")
    for field in lines:
        if field in facts:
            profile[field] = line_of(facts[field]["object"])
    return profile


def is_raised_only(change: Insert | Update) -> bool:
    """Returns whether a change of a user's record is made for facts alone: it stores nothing of its own."""
    if change.collection is not USERS:
        return False
    if isinstance(change, Update):
        return set(change.set) <= {"updated_at"}
    return not change.doc["interactions"] and bool(change.doc["profile"] == EMPTY_PROFILE)


def new_user(user_id: str, now: str) -> UserRecord:
    """Returns a new user. A user is created with the first record about them."""
    return {
        "user_id": user_id,
        "agent_id": None,
        "profile": {**EMPTY_PROFILE},
        "interactions": [],
        "interacted": 0,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }
