"""Facts as they are stored, and as requests and responses show them."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator
from typing_extensions import TypeAliasType

from app.core.schemas import (
    Flag,
    Identifier,
    Json,
    JsonObject,
    Owned,
    Schema,
    Share,
    Text,
    Timestamp,
    TopK,
    example,
    shown_as,
)
from app.facts.conflict_resolution import Cardinality
from app.facts.keys import field_of, sentence
from app.facts.models import FactGroupRecord, FactRecord, FactStatus, ObjectType
from app.memories.schemas import ImportOrigin, Source, SourceIn
from app.retrieval.ranking import SearchMode
from app.retrieval.retriever import HowSearched
from app.storage.schema import Collection, SearchSchema

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
    searched=SearchSchema(
        facets=("subject_key", "predicate_key", "object_type", "standing"),
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

MAX_NAME = 256
ENTITY_CHARACTERS = 64
"""The length of the longest text that is taken for an entity unless the type is given."""

FactSearchStatus = TypeAliasType("FactSearchStatus", Literal["active", "disputed"])
FactListStatus = TypeAliasType("FactListStatus", Literal["active", "disputed", "superseded", "retracted", "any"])
FactConflictPolicy = TypeAliasType("FactConflictPolicy", Literal["temporal", "last_write_wins", "keep_both", "merge"])
FactName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"\S")]

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


class FactCreate(Owned):
    model_config = example(
        {
            "agent_id": "support",
            "user_id": "ada",
            "subject": "Ada",
            "predicate": "lives_in",
            "object": "Boston",
            "valid_from": "2026-05-01T00:00:00Z",
        }
    )

    agent_id: Identifier | None = Field(None, description="Whose fact it is; null: every agent of the user may know.")
    user_id: Identifier | None = Field(
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
    object: Text = Field(description="What it is: the name of another entity, or a literal.")
    object_type: ObjectType | None = Field(
        None, description="Default: entity for a short text that is no number or date, else literal."
    )
    confidence: Share = Field(1.0, description="Ranks, decides nothing.")
    trust: Share = Field(1.0, description="How far it is to be believed; less never takes anything from more.")
    valid_from: Timestamp | None = Field(
        None, description="From when it is true; null: always was. Left out: from now on, or as what it ends."
    )
    valid_until: Timestamp | None = Field(None, description="Until when, that moment excluded; null: no end is known.")
    origin: ImportOrigin | None = Field(
        None, description="`import`: it comes from another system, and its source says so. Nothing else can be said."
    )
    source: SourceIn | None = Field(None, description="Where it comes from. It stays as first given.")
    cardinality: Cardinality | None = Field(
        None,
        description="Whether there can be `one` object at a time (`lives_in`), or `many` (`likes`, `speaks`, "
        "`allergic_to`). Default: `many` if the predicate was ever stated so for this agent and user, else `one`.",
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
            raise ValueError("valid_from must lie before valid_until")
        if self.object_type == "entity" and len(self.object) > MAX_NAME:
            raise ValueError(f"an entity's name has at most {MAX_NAME} characters")
        return self


class FactBatch(Schema):
    model_config = example(
        {"items": [{"user_id": "ada", "subject": "Ada", "predicate": "knows", "object": "Ben", "cardinality": "many"}]}
    )

    items: Annotated[
        list[FactCreate], Field(min_length=1, description="At most 500, asserted in this order; all of them or none.")
    ]


class Fact(Schema):
    fact_id: str
    lineage_id: str = Field(description="The first id of this assertion, which was stated again for other spans since.")
    agent_id: str | None
    user_id: str | None
    subject: str
    predicate: str
    object: str
    object_type: ObjectType
    confidence: float
    trust: float
    cardinality: Cardinality
    status: FactStatus
    valid_from: str | None
    valid_until: str | None
    known_from: str = Field(description="Since when it stands in the books.")
    known_until: str | None = Field(description="Until when it stood there; null: it stands there now.")
    supersedes: list[str] = Field(description="Facts in whose place it stands.")
    superseded_by: list[str] = Field(description="Facts that stand in its place.")
    disputes: list[str] = Field(description="Of more trust, when it was asserted: why it is disputed.")
    source: Source
    version: int
    created_at: str
    updated_at: str


class EndedFact(Schema):
    fact_id: str
    object: str
    valid_from: str | None
    valid_until: str | None
    keep_both: JsonObject | None = Field(
        description="What to send to `POST /v1/facts` if both are true. From then on the predicate takes `many` "
        "objects. Null: the profile has one value at a time."
    )


class AssertedFact(Fact):
    superseded: list[EndedFact] = Field(
        description="Facts of other objects that gave way to it, in whole or from when it is true, as they were."
    )


class FactBatchAsserted(Schema):
    items: list[AssertedFact]


class Resolution(Schema):
    model_config = example({"keep": "fact_01a2003d395076f9a13acea58faaf745"})

    keep: Identifier = Field(
        description="The disputed fact, to let it take the place of those it contends with; one of these, to retract "
        "the disputed one; or `both`."
    )


class FactSearch(Owned):
    model_config = example({"query": "Where does she live?", "agent_id": "support", "user_id": "ada"})

    query: Text
    include_shared: Flag = True
    subject: FactName | None = None
    predicate: FactName | None = None
    object_type: ObjectType | None = None
    status: FactSearchStatus = "active"
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: Timestamp | None = Field(None, description="As it was known then; default: now.")
    min_trust: Share | None = None
    now: Timestamp | None = None
    top_k: TopK = 10
    mode: SearchMode = "hybrid"


class FoundFact(Schema):
    fact: Fact
    score: float = Field(
        description="`hybrid`: the probability, 0 to 1, that it helps to answer the query. `vector`: the cosine. "
        "`text`: BM25."
    )


class FactSearchResult(HowSearched):
    items: list[FoundFact]


def object_type(text: str) -> ObjectType:
    """Returns "entity" for a short text that is neither a number nor a date, and "literal" otherwise."""
    plain = text.strip()
    if len(plain) > ENTITY_CHARACTERS or _FIGURE.fullmatch(plain) or _DATE.fullmatch(plain):
        return "literal"
    return "entity"


def render_asserted(fact: FactRecord, ended: Iterable[FactRecord]) -> Json:
    """Returns the fields of `AssertedFact`."""
    return render(fact) | {"superseded": [shown_as(EndedFact, {**old, "keep_both": _again(old)}) for old in ended]}


def _again(fact: FactRecord) -> Json | None:
    """Returns the body that states a fact once more, beside others."""
    if field_of(fact) is not None:
        return None
    names = ("agent_id", "user_id", "subject", "predicate", "object", "object_type", "trust", "confidence")
    given: Json = {name: fact.get(name) for name in (*names, "valid_until") if fact.get(name) is not None}
    return given | {"valid_from": fact["valid_from"], "cardinality": "many"}


def render(fact: FactRecord) -> Json:
    """Returns the fields of `Fact`."""
    return shown_as(Fact, fact)
