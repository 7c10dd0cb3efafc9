"""The requests of searches of memories, and the answers as OpenAPI has them.

`app/memories/search.py` writes the answers as bytes. Facts, actions and procedures share `HowSearched`.
"""

from difflib import get_close_matches
from typing import Annotated, NotRequired, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator, with_config
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import (
    Flag,
    Identifier,
    Owned,
    Share,
    Timestamp,
    TimeZone,
    TopK,
    example,
    shown,
)
from app.memories.filters import TagAndMetadataFilters
from app.memories.schemas import Memory, MemoryStatus, MemoryText, MemoryType
from app.retrieval.ranking import SearchMode
from app.retrieval.repetition import Repetition
from app.retrieval.retriever import HowSearched, Replacement


def _known_field(name: str) -> str:
    if name in Memory.__annotations__:
        return name
    nearest = get_close_matches(name[:64], Memory.__annotations__, 1, 0)[0]
    raise ValueError(f"a memory has no such field: did you mean `{nearest}`?")


MemoryField = TypeAliasType(
    "MemoryField",
    Annotated[str, AfterValidator(_known_field), Field(json_schema_extra={"enum": [*Memory.__annotations__]})],
)


class SearchRequest(Owned, TagAndMetadataFilters):
    model_config = example({"query": "how do they like answers?", "agent_id": "support", "user_id": "user-456"})

    query: MemoryText
    everyone: Flag = Field(
        False,
        description="In place of both ids: over all agents and users, for a key with the verb admin and no bindings. "
        "Of equal texts the newest comes, and `repeated` counts the others.",
    )
    include_shared: Flag = Field(
        True, description="With both ids: also what the agent knows for all, and all agents of the user."
    )
    session_id: Identifier | None = None
    memory_types: Annotated[list[MemoryType], Field(min_length=1)] | None = None
    min_importance: Share | None = Field(
        None, description="Least importance at the moment; default: the agent's setting."
    )
    min_score: Share | None = Field(
        None,
        description="Least score. Only with `mode: hybrid`, whose score is a probability; with another mode 422. "
        "503 where the embedding model does not answer.",
    )
    min_trust: Share | None = None
    since: Timestamp | None = Field(None, description="By event_at, else created_at.")
    until: Timestamp | None = Field(None, description="That moment excluded.")
    status: MemoryStatus = "active"
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    now: Timestamp | None = Field(
        None,
        description="The time that fading and expiry are reckoned at, and that times in the query are relative to. "
        "What happened later (`event_at`, else `created_at`) is hidden.",
    )
    timezone: TimeZone | None = None
    top_k: TopK = 10
    mode: SearchMode = "hybrid"
    min_similarity: float | None = Field(None, strict=True, ge=-1, le=1, description="Least cosine.")
    explain: Flag = False
    record_access: Flag = True
    fields: Annotated[list[MemoryField], Field(min_length=1)] | None = Field(
        None, description="Only these fields of each memory come, beside `memory_id`. Default: all."
    )

    @model_validator(mode="after")
    def _of_somebody(self) -> Self:
        if (self.agent_id is None and self.user_id is None) != self.everyone:
            raise ValueError("agent_id, user_id or both are required, or everyone without them")
        return self

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.min_score is not None and self.mode != "hybrid":
            raise ValueError("min_score needs mode hybrid: the scores of other modes are no probabilities")
        return self


Scores = TypeAliasType("Scores", dict[str, float])


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_extra={"required": ["memory_id"]}))
class FoundMemory(Memory, total=False):
    """A memory. If the request names `fields`, it has these and its id."""


@shown
class Found(TypedDict):
    memory: FoundMemory
    score: Annotated[
        float,
        Field(
            description="`hybrid`: the probability, 0 to 1, that the memory helps to answer the query. `vector`: the "
            "cosine. `text`: BM25."
        ),
    ]
    replaced_by: Annotated[
        NotRequired[list[Replacement]],
        Field(
            default=[],
            description="The later statements that replace what the memory says. The memory is active, and stands "
            "behind those of them that were found. Absent where there are none.",
        ),
    ]
    repeated: Annotated[
        NotRequired[Repetition | None],
        Field(
            default=None,
            description="That it was said several times; absent where it was said once. The newest stands for all.",
        ),
    ]
    scores: Annotated[
        NotRequired[Scores | None], Field(default=None, description="With `explain`: what the score is made of.")
    ]
    contributions: Annotated[
        NotRequired[Scores | None],
        Field(
            default=None,
            description="With `explain`: the log-odds that each feature adds in a hybrid search, more is better. "
            "`kind`: what the kind of memory adds. Their sum orders the hits. Features that add nothing are left out.",
        ),
    ]


UnderstoodTime = TypedDict(
    "UnderstoodTime",
    {
        "from": str,
        "until": Annotated[str, Field(description="That moment excluded.")],
        "words": Annotated[str, Field(description="The part of the query that says so.", examples=["last month"])],
        "empty": Annotated[bool, Field(description="True if no memory that could be found is from then.")],
    },
)
UnderstoodTime.__doc__ = (
    "The interval of time that a query speaks of. Memories from then rank higher; none is left out."
)
shown(UnderstoodTime)


@shown
class Understood(TypedDict):
    time: Annotated[UnderstoodTime | None, Field(description="Null where the query speaks of no time.")]


@shown
class SearchResult(HowSearched):
    items: list[Found]
    understood: Annotated[
        NotRequired[Understood | None],
        Field(
            default=None,
            description="What was read out of the query: with `explain`, or where nothing is from the time that it "
            "names.",
        ),
    ]
