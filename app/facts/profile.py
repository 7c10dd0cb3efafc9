"""A user's profile as facts.

A fact about the user has the subject `@user`. If its predicate is that of a field of the profile, it belongs to the
user and to no agent, has cardinality `one`, and is the only place where the field is stored (docs/concepts/facts.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from app.core.schemas import WHOLE, Object, shown
from app.errors import invalid
from app.facts.schemas import USER, FactCreate, FactRecord, group_of, key_of, predicate_key
from app.storage.changes import Change, Insert, Update
from app.storage.repository import Repository
from app.storage.schema import BaseRecord, Collection

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


def _is_reserved(subject: str) -> bool:
    return key_of(subject) == USER


def field_of(fact: FactRecord) -> ProfileField | None:
    if fact["user_id"] is None or not _is_reserved(fact["subject"]):
        return None
    return _FIELDS.get(predicate_key(fact["predicate"]))


def settled(fact: FactRecord) -> FactRecord:
    """Returns the fields of an assertion as they are stored: a fact of the profile belongs to no agent, and its
    predicate has one spelling. Raises Invalid if the profile cannot have the value."""
    field = field_of(fact)
    if field is None:
        return {**fact, "subject": USER} if _is_reserved(fact["subject"]) else fact
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
    for line in lines:
        if line in facts:
            profile[line] = line_of(facts[line]["object"])
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


# --- Profiles that requests state -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatedProfile:
    """Fields of a profile that a request states as facts, with full trust and from now on; null clears a field."""

    values: Mapping[str, object]

    def assertions(self, user_id: str) -> list[FactCreate]:
        return [_fact(user_id, name, value) for name, value in self.values.items() if value is not None]

    def cleared(self, user_id: str) -> list[FactCreate]:
        """Returns facts of the fields that the request clears, of any value."""
        return [_fact(user_id, name, 0) for name, value in self.values.items() if value is None]


def _fact(user_id: str, field: str, value: object) -> FactCreate:
    return FactCreate(user_id=user_id, subject=USER, predicate=PREDICATES[field], object=str(value), cardinality="one")


async def touched(users: Repository[UserRecord], facts: Iterable[FactRecord], now: str) -> list[Change]:
    """Returns the changes of the users' records whose profiles the facts state: the version rises."""
    ids = sorted({user for fact in facts if (user := fact["user_id"]) is not None and field_of(fact) is not None})
    known = await users.get_many(ids) if ids else {}
    return [
        Update(USERS, users.scope.tenant, user_id, {"updated_at": now}, {"version": 1}, user=user_id)
        if user_id in known
        else users.insert(new_user(user_id, now))
        for user_id in ids
    ]
