"""Facts as they are stored, and as requests and answers show them, and the keys by which their parts are compared."""

import re
import unicodedata
from hashlib import blake2b
from typing import Annotated, Literal, Self

import orjson
from pydantic import Field, StringConstraints, model_validator
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.memories.schemas import AlwaysKind, ImportOrigin, Source, SourceIn
from app.retrieval.ranking import SearchMode
from app.retrieval.retriever import HowSearched
from app.storage.record_filters import fields_of
from app.storage.schema import Collection, OwnedRecord, SearchSchema
from app.storage.text import normalise_content

ObjectType = TypeAliasType("ObjectType", Literal["entity", "literal"])
FactStatus = TypeAliasType("FactStatus", Literal["active", "superseded", "retracted", "disputed"])
Cardinality = TypeAliasType("Cardinality", Literal["one", "many"])
ConflictPolicy = TypeAliasType("ConflictPolicy", Literal["temporal", "last_write_wins", "keep_both"])
FactSearchStatus = TypeAliasType("FactSearchStatus", Literal["active", "disputed"])
FactListStatus = TypeAliasType("FactListStatus", Literal["active", "disputed", "superseded", "retracted", "any"])
FactConflictPolicy = TypeAliasType("FactConflictPolicy", Literal["temporal", "last_write_wins", "keep_both", "merge"])
MAX_NAME = 256
FactName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"\S")]


@core.shown
class Fact(TypedDict, total=False):
    fact_id: str
    lineage_id: Annotated[
        str, Field(description="The first id of this assertion, which was stated again for other spans since.")
    ]
    agent_id: str | None
    user_id: str | None
    subject: str
    predicate: str
    object: str
    object_type: ObjectType
    confidence: float
    trust: float
    cardinality: Cardinality
    always: AlwaysKind | None
    status: FactStatus
    valid_from: str | None
    valid_until: str | None
    known_from: Annotated[str, Field(description="Since when it stands in the books.")]
    known_until: Annotated[str | None, Field(description="Until when it stood there; null: it stands there now.")]
    supersedes: Annotated[list[str], Field(description="Facts in whose place it stands.")]
    superseded_by: Annotated[list[str], Field(description="Facts that stand in its place.")]
    disputes: Annotated[list[str], Field(description="Of more trust, when it was asserted: why it is disputed.")]
    metadata: core.Object
    source: Source
    version: int
    created_at: str
    updated_at: str


class FactRecord(Fact, OwnedRecord, total=False):
    """A document of the collection `facts`. `FACTS` explains its internal fields.

    A draft of a fact has the same fields, without those that a span of time and the conflict rules give it.
    """

    group_id: str
    subject_key: str
    predicate_key: str
    object_key: str
    content_hash: int
    standing: Literal["held", "disputed"]
    start_assumed: bool
    pending: bool


class FactGroupRecord(OwnedRecord, total=False):
    """A document of the collection `fact_groups`. `FACT_GROUPS` explains its fields."""

    group_id: str
    predicate: str
    predicate_key: str
    known: str
    usual: Cardinality


# --- Keys by which texts are compared ---------------------------------------------------------------------------------

USER = "@user"
"""The subject of facts about the user. Texts show it as "The user"."""
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
    return blake2b(orjson.dumps([agent, user, subject_key, predicate_key]), digest_size=16).hexdigest()


def sentence(fact: FactRecord) -> str:
    """Returns a fact as a sentence, as it is embedded and indexed: `Ada lives in Boston`."""
    subject = "The user" if fact["subject"] == USER else fact["subject"]
    return f"{subject} {spoken(fact['predicate'])} {fact['object']}"


# --- Collections ------------------------------------------------------------------------------------------------------

FACTS: Collection[FactRecord] = Collection(
    name="facts",
    kind="fact",
    counted=True,
    id_field="fact_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "group_id": "text",
        "lineage_id": "text",
        "subject_key": "text",
        "predicate_key": "text",
        "object_key": "text",
        "object_type": "text",
        "cardinality": "text",
        "status": "text",
        "standing": "text",
        "trust": "number",
        "valid_from": "time",
        "valid_until": "time",
        "known_from": "time",
        "known_until": "time",
        "created_at": "time",
        "source.session_id": "text",
        "source.message_seq": "number",
    },
    indexes=(
        ("group_id", "known_until"),
        ("lineage_id",),
        ("subject_key", "user_id", "agent_id"),
        ("object_key", "user_id", "agent_id"),
        ("user_id", "agent_id"),
        ("user_id",),
        ("agent_id",),
        ("source.session_id",),
    ),
    selective=("group_id", "subject_key", "object_key"),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("subject_key", "predicate_key", "object_type", "standing", "always"),
        ranges=("valid_from", "valid_until", "known_from", "known_until", "trust"),
        time=("known_from",),
        anchor=("known_from",),
        importance="confidence",
        pinned="known_from",
        text=sentence,
        placed="source.speaker",
    ),
    internal=frozenset({"content_hash", "group_id", "subject_key", "predicate_key", "object_key", "start_assumed"}),
)
"""`group_id` names the scope, subject and predicate; `lineage_id` is the first id of an assertion that may be stated
again for another span. `*_key` fields are compared, the texts beside them are shown. `standing` (held or disputed)
never changes; `status` does. For the ranking, confidence is the importance; since `known_from` is always set, a fact
counts as pinned and never decays."""


FACT_FIELDS = fields_of(
    FACTS,
    Fact,
    *("object_type", "cardinality", "trust", "valid_from", "valid_until", "known_from", "created_at"),
    session_id="source.session_id",
    run_id="source.session_id",
    keys={
        "subject": ("subject_key", key_of),
        "predicate": ("predicate_key", predicate_key),
        "object": ("object_key", key_of),
    },
)


FACT_GROUPS: Collection[FactGroupRecord] = Collection(
    name="fact_groups",
    id_field="group_id",
    fields={"agent_id": "text", "user_id": "text", "predicate_key": "text", "usual": "text"},
    indexes=(("user_id",), ("predicate_key", "user_id", "agent_id")),
    selective=("predicate_key",),
    audited=False,
)
"""One document for each scope, subject and predicate. Every change of its facts expects the version that it read, so
that one of two concurrent changes fails. `known` is the time of the last change, `predicate` the spelling that is
shown; `usual` is `many` once a fact of the group was stated so."""


# --- Requests and answers ---------------------------------------------------------------------------------------------


class FactCreate(core.Owned):
    model_config = core.example(
        {
            "agent_id": "support",
            "user_id": "ada",
            "subject": "Ada",
            "predicate": "lives_in",
            "object": "Boston",
            "valid_from": "2026-05-01T00:00:00Z",
        }
    )

    agent_id: core.Identifier | None = Field(
        None, description="Whose fact it is; null: every agent of the user may know."
    )
    user_id: core.Identifier | None = Field(
        None, description="Whom it belongs to; null: the agent knows it for all its users."
    )
    subject: FactName = Field(
        description="What it is about. Compared without regard to case, width and spaces. `@user` is the user: name, "
        "age, home and occupation of the profile are facts about it, which belong to no agent."
    )
    predicate: FactName = Field(
        description="What is said of it. `lives in`, `lives_in`, `livesIn` and `Lives-In` are one; the spelling that "
        "the scope had first is shown."
    )
    object: core.Text = Field(description="What it is: the name of another entity, or a literal.")
    object_type: ObjectType | None = Field(
        None, description="Default: entity for a short text that is no number or date, else literal."
    )
    confidence: core.Share = Field(1.0, description="Ranks, decides nothing.")
    trust: core.Share = Field(1.0, description="How far it is to be believed; less never takes anything from more.")
    valid_from: core.Timestamp | None = Field(
        None, description="From when it is true; null: always was. Left out: from now on, or as what it ends."
    )
    valid_until: core.Timestamp | None = Field(
        None, description="Until when, that moment excluded; null: no end is known."
    )
    origin: ImportOrigin | None = Field(
        None, description="`import`: it comes from another system, and its source says so. Nothing else can be said."
    )
    metadata: core.Object = Field({}, description="What you wish to find it by. It stays as first given.")
    source: SourceIn | None = Field(None, description="Where it comes from. It stays as first given.")
    cardinality: Cardinality | None = Field(
        None,
        description="Whether there can be `one` object at a time (`lives_in`), or `many` (`likes`, `speaks`, "
        "`allergic_to`). Default: `many` if the predicate was ever stated so for this agent and user, else `one`.",
    )
    always: AlwaysKind | None = Field(
        None, description="Stands in every prompt about the user: health, who they are, how they wish to be treated."
    )
    on_conflict: FactConflictPolicy = Field(
        "temporal",
        description="What becomes of another object that is known for the same time. `merge`: a language model is "
        "asked for one object that says both; `POST /v1/facts` answers 202 with an operation then, and a "
        "batch does not take it.",
    )

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise core.fault_in("valid_until", "must lie after valid_from")
        if self.object_type == "entity" and len(self.object) > MAX_NAME:
            raise core.fault_in("object", f"an entity's name has at most {MAX_NAME} characters")
        return self


class FactBatch(core.Schema):
    model_config = core.example(
        {"items": [{"user_id": "ada", "subject": "Ada", "predicate": "knows", "object": "Ben", "cardinality": "many"}]}
    )

    items: Annotated[
        list[FactCreate], Field(min_length=1, description="At most 500, asserted in this order; all of them or none.")
    ]


@core.shown
class EndedFact(TypedDict):
    fact_id: str
    object: str
    valid_from: str | None
    valid_until: str | None
    keep_both: Annotated[
        core.JsonObject | None,
        Field(
            description="What to send to `POST /v1/facts` if both are true. From then on the predicate takes `many` "
            "objects. Null: the profile has one value at a time."
        ),
    ]


@core.shown
class AssertedFact(Fact, total=False):
    superseded: Annotated[
        list[EndedFact],
        Field(
            description="Facts of other objects that gave way to it, in whole or from when it is true, as they were."
        ),
    ]


@core.shown
class FactBatchAsserted(TypedDict):
    items: list[AssertedFact]


class Resolution(core.Schema):
    model_config = core.example({"keep": "fact_01a2003d395076f9a13acea58faaf745"})

    keep: core.Identifier = Field(
        description="The disputed fact, to let it take the place of those it contends with; one of these, to retract "
        "the disputed one; or `both`."
    )


class FactSearch(core.FilteredSearch):
    record_fields = FACT_FIELDS
    model_config = core.example({"query": "Where does she live?", "agent_id": "support", "user_id": "ada"})

    query: core.Text
    include_shared: core.Flag = True
    subject: FactName | None = None
    predicate: FactName | None = None
    object_type: ObjectType | None = None
    status: FactSearchStatus = "active"
    as_of: core.Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: core.Timestamp | None = Field(None, description="As it was known then; default: now.")
    min_trust: core.Share | None = None
    now: core.Timestamp | None = None
    top_k: core.TopK = 10
    mode: SearchMode = "hybrid"


@core.shown
class FoundFact(TypedDict):
    fact: Fact
    score: Annotated[
        float,
        Field(
            description="`hybrid`: the probability, 0 to 1, that it helps to answer the query. `vector`: the cosine. "
            "`text`: BM25."
        ),
    ]


@core.shown
class FactSearchResult(HowSearched):
    items: list[FoundFact]


def render(fact: FactRecord) -> Fact:
    return core.shown_as(Fact, fact)


# --- The type of an object --------------------------------------------------------------------------------------------

ENTITY_CHARACTERS = 64
"""The length of the longest text that is taken for an entity unless the type is given."""


_FIGURE = re.compile(
    r"[\s+\-\u2212~<>=$€£¥]*\d[\d\s.,:/\-]*(?:e[+-]?\d+)?\s*(?:[%€$£¥]|°[CF]?|\s[^\W\d]{1,3})?", re.IGNORECASE
)


_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"


_DATE = re.compile(
    rf"(?:{_DAY}\s+)?{_MONTH}\.?\s+(?:{_DAY}|\d{{4}})(?:,?\s+\d{{4}})?|{_DAY}\s+{_MONTH}\.?"
    r"|\d{4}-\d\d-\d\d[T ]\S+|true|false|yes|no|null|none",
    re.IGNORECASE,
)


def object_type(text: str) -> ObjectType:
    """Returns "entity" for a short text that is neither a number nor a date, and "literal" otherwise."""
    plain = text.strip()
    if len(plain) > ENTITY_CHARACTERS or _FIGURE.fullmatch(plain) or _DATE.fullmatch(plain):
        return "literal"
    return "entity"
