"""Made by scripts/generate_clients.py; do not edit. Contract 651f5079535195c266c2e4c152740750."""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from recalld_client._async.transport import AsyncTransport
from recalld_client._requests import path
from recalld_client._sync.transport import Transport

Json: TypeAlias = dict[str, Any]


class Acceptance(TypedDict):
    keep: NotRequired[str | None]


class Action(TypedDict):
    action_id: str
    agent_id: str
    user_id: str | None
    session_id: str | None
    task_id: str | None
    event_type: str
    action_type: str
    actor: str
    action: "Call"
    content: str
    context: "JsonObject"
    outcome: "Outcome | None"
    entities: list[str]
    tags: list[str]
    feedback: "Feedback"
    timestamp: str
    metadata: "JsonObject"
    source: "Source"
    rolled_up_into: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


ActionActor: TypeAlias = Literal["user", "agent", "system"]


class ActionBatch(TypedDict):
    items: "list[ActionCreate]"


class ActionBatchCreated(TypedDict):
    items: "list[Action]"
    warnings: NotRequired["list[TextWarning]"]


class ActionCreate(TypedDict):
    agent_id: str
    user_id: NotRequired[str | None]
    session_id: NotRequired[str | None]
    task_id: NotRequired[str | None]
    event_type: NotRequired["ActionWord"]
    action_type: "ActionWord"
    actor: NotRequired["ActionActor"]
    action: NotRequired["Call"]
    content: NotRequired[str | None]
    context: NotRequired["JsonObject"]
    outcome: NotRequired["Outcome | None"]
    entities: NotRequired["list[ActionWord]"]
    tags: NotRequired["list[ActionWord]"]
    feedback: NotRequired["Feedback"]
    timestamp: NotRequired[str | None]
    metadata: NotRequired["JsonObject"]
    source: NotRequired["SourceIn | None"]


class ActionPage(TypedDict):
    items: "list[Action]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class ActionSearch(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    metadata: NotRequired["JsonObject | None"]
    filters: NotRequired["JsonObject | None"]
    query: str
    include_shared: NotRequired[bool]
    action_type: NotRequired["ActionWord | None"]
    event_type: NotRequired["ActionWord | None"]
    outcome: NotRequired["Outcome | None"]
    only_successful: NotRequired[bool]
    entity: NotRequired["ActionWord | None"]
    tag: NotRequired["ActionWord | None"]
    session_id: NotRequired[str | None]
    task_id: NotRequired[str | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]
    now: NotRequired[str | None]
    top_k: NotRequired[int]


class ActionSearchResult(TypedDict):
    mode_used: "SearchMode"
    warnings: "list[SearchWarning]"
    asks: float | None
    took_ms: "TookMs"
    items: "list[FoundAction]"


ActionWord: TypeAlias = str


class Agent(TypedDict):
    agent_id: str
    name: str
    description: str
    model: str
    system_prompt: str | None
    settings: "AgentSettings"
    experience: "Experience | None"
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class AgentCreate(TypedDict):
    agent_id: NotRequired[str | None]
    name: str
    description: NotRequired[str]
    model: NotRequired[str]
    system_prompt: NotRequired[str]
    settings: NotRequired["AgentSettings"]


class AgentPatch(TypedDict):
    name: NotRequired[str]
    description: NotRequired[str | None]
    model: NotRequired[str | None]
    system_prompt: NotRequired[str | None]
    settings: NotRequired["AgentSettings | None"]


class AgentSettings(TypedDict):
    max_context_tokens: NotRequired[int]
    min_importance: NotRequired[float]
    decay: NotRequired["Decay"]
    extraction_instructions: NotRequired[str | None]


class AliasList(TypedDict):
    entity: str
    names: list[str]
    items: "list[EntityAlias]"
    next_cursor: NotRequired[str | None]
    truncated: NotRequired["Bound | None"]


AliasListStatus: TypeAlias = Literal["active", "proposed", "dismissed", "any"]


AliasRule: TypeAlias = Literal["stated", "title", "contains"]


AliasStatus: TypeAlias = Literal["active", "proposed", "dismissed"]


class AliasesChanged(TypedDict):
    entity: str
    names: list[str]
    items: "list[EntityAlias]"
    next_cursor: NotRequired[str | None]
    truncated: NotRequired["Bound | None"]
    operation_id: str | None
    contends: "list[Contending]"
    warnings: NotRequired["list[TextWarning]"]


class AliasesCreate(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    aliases: list[str]


class Alive(TypedDict):
    status: Literal["alive"]


AlwaysKind: TypeAlias = Literal["health", "identity", "wish"]


class ApiKey(TypedDict):
    """A key without its secret."""

    id: str
    tenant: str
    name: str
    verbs: "list[Verb]"
    agents: list[str]
    users: list[str]
    requests_per_second: float | None
    expires_at: str | None
    revoked_at: str | None
    replaces: str | None
    replaced_by: str | None
    version: int
    created_at: str
    updated_at: str


class ApiKeyPage(TypedDict):
    items: "list[ApiKey]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class Appended(TypedDict):
    session_id: str
    items: "list[Message]"
    memory_ids: list[str]
    warnings: NotRequired["list[TextWarning]"]


class AssertedFact(TypedDict):
    fact_id: str
    lineage_id: str
    agent_id: str | None
    user_id: str | None
    subject: str
    predicate: str
    object: str
    object_type: "ObjectType"
    confidence: float
    trust: float
    cardinality: "Cardinality"
    always: "AlwaysKind | None"
    status: "FactStatus"
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None
    supersedes: list[str]
    superseded_by: list[str]
    disputes: list[str]
    metadata: "JsonObject"
    source: "Source"
    version: int
    created_at: str
    updated_at: str
    superseded: "list[EndedFact]"
    warnings: NotRequired["list[TextWarning]"]


class AuditEntry(TypedDict):
    """Who did what to which records of whom, when; never what is in them."""

    audit_id: str
    key_id: str
    action: str
    user_id: str | None
    user_hash: str | None
    records: list[str]
    changes: dict[str, Json]
    fields: dict[str, list[str]]
    created_at: str


class AuditEntryPage(TypedDict):
    items: "list[AuditEntry]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


Bound: TypeAlias = Literal["nodes", "edges", "time"]


class Call(TypedDict):
    """What was called:"""

    tool: NotRequired["ActionWord | None"]
    input: NotRequired[Any]
    output: NotRequired[Any]
    duration_ms: NotRequired[float | None]


CallArguments: TypeAlias = "str | JsonObject"


class Caller(TypedDict):
    """What the calling key may do."""

    tenant: str
    key_id: str
    verbs: "list[Verb]"
    agents: list[str] | None
    users: list[str] | None
    language_model: bool


Cardinality: TypeAlias = Literal["one", "many"]


ChangeFormat: TypeAlias = Literal["json", "events"]


ChangeInclude: TypeAlias = Literal["record"]


class ChangePage(TypedDict):
    items: "list[RecordChange]"
    next_cursor: NotRequired[str | None]
    cursor: str


ChangedKind: TypeAlias = Literal["memory", "document", "session", "message", "task", "checkpoint", "action", "fact", "alias", "procedure", "profile", "agent", "finding"]


ChangedRecord: TypeAlias = Json


class ChatMessage(TypedDict):
    role: str
    content: str | None


class Checkpoint(TypedDict):
    task_id: str
    seq: int
    label: str | None
    reason: "CheckpointReason"
    restored_seq: int | None
    state: "JsonObject"
    created_at: str
    warnings: NotRequired["list[TextWarning]"]


class CheckpointIn(TypedDict):
    label: NotRequired[str | None]


class CheckpointPage(TypedDict):
    items: "list[Checkpoint]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


CheckpointReason: TypeAlias = Literal["asked", "steps", "before_restore", "restore"]


CitationStyle: TypeAlias = Literal["numbers", "ids", "none"]


class Contending(TypedDict):
    predicate: str
    fact_ids: list[str]


class ContentPart(TypedDict):
    """A part of any vendor, kept as it is:"""

    type: NotRequired[str | None]
    text: NotRequired[str | None]


class Context(TypedDict):
    intent: "Intent"
    messages: "list[ChatMessage]"
    text: str
    tokens: int
    budget: int
    query_tokens: int
    system_prompt_tokens: int
    sections: "list[PackedSection]"
    dropped: "list[Dropped]"
    errors: "list[SectionError]"
    warnings: "list[SearchWarning]"
    took_ms: Json


ContextFormat: TypeAlias = Literal["markdown", "messages"]


class ContextMessage(TypedDict):
    seq: int
    role: "MessageRole"
    name: str | None
    content: str


class ContextRequest(TypedDict):
    tags: NotRequired["list[Tag] | None"]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    query: str
    agent_id: str
    user_id: NotRequired[str | None]
    filters: NotRequired["JsonObject | None"]
    session_id: NotRequired[str | None]
    task_id: NotRequired[str | None]
    intent: NotRequired["IntentChoice"]
    token_budget: NotRequired[int | None]
    fill: NotRequired[bool]
    sections: NotRequired["dict[str, SectionAsked]"]
    format: NotRequired["ContextFormat"]
    citations: NotRequired["CitationStyle"]
    system_prompt: NotRequired[str | None]
    explain: NotRequired[bool]
    memory_role: NotRequired["MemoryRole"]
    include: NotRequired["list[SectionName]"]
    exclude: NotRequired["list[SectionName]"]
    min_trust: NotRequired[float | None]
    min_importance: NotRequired[float | None]
    min_score: NotRequired[float | None]
    as_of: NotRequired[str | None]
    known_at: NotRequired[str | None]
    now: NotRequired[str | None]
    timezone: NotRequired[str | None]


class CreatedKey(TypedDict):
    """A new key."""

    id: str
    tenant: str
    name: str
    verbs: "list[Verb]"
    agents: list[str]
    users: list[str]
    requests_per_second: float | None
    expires_at: str | None
    revoked_at: str | None
    replaces: str | None
    replaced_by: str | None
    version: int
    created_at: str
    updated_at: str
    key: str | None


class DayCounts(TypedDict):
    """Records that were created on a UTC day and are still there."""

    day: str
    memories: int
    sessions: int
    facts: int
    actions: int


class Decay(TypedDict):
    """How what this agent remembers fades (docs/contributing/ranking.md)."""

    factor: NotRequired[float]
    grace_days: NotRequired[float]
    floor: NotRequired[float]


class Deleted(TypedDict):
    deleted: int


class DisputeResolution(TypedDict):
    keep: str


class Document(TypedDict):
    document_id: str
    agent_id: str | None
    user_id: str | None
    name: str
    media_type: str
    bytes: int
    metadata: "JsonObject"
    status: "DocumentStatus"
    error: str | None
    passages: int
    pages: int | None
    empty_pages: int | None
    secrets: int | None
    operation_id: str
    version: int
    created_at: str
    updated_at: str


class DocumentAccepted(TypedDict):
    operation_id: str
    agent_id: str | None
    user_id: str | None
    session_id: NotRequired[str | None]
    kind: str
    status: "OperationStatus"
    progress: "Progress"
    result: "OperationResult | None"
    error: str | None
    can_undo: bool
    created_at: str
    updated_at: str
    document_id: str
    warnings: NotRequired["list[TextWarning]"]


class DocumentPage(TypedDict):
    items: "list[Document]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


DocumentStatus: TypeAlias = Literal["processing", "ready", "failed"]


DropReason: TypeAlias = Literal["budget", "section_budget", "limit", "duplicate", "score", "importance", "enough"]


class Dropped(TypedDict):
    id: str
    reason: "DropReason"
    links: NotRequired[list[str]]
    repeats: NotRequired[list[str]]
    entry: NotRequired["DroppedEntry | None"]


class DroppedEntry(TypedDict):
    """What an entry is that was left out."""

    type: str
    section: str
    text: str
    score: float | None
    tokens: int
    needed: int | None
    left: int | None


class Edge(TypedDict):
    fact_id: str
    subject: str
    subject_key: str
    predicate: str
    object: str
    object_key: str
    depth: int
    cardinality: "Cardinality"
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None


class EmbeddingInfo(TypedDict):
    model: str
    dim: int
    status: "EmbeddingStatus"


EmbeddingStatus: TypeAlias = Literal["ready", "pending"]


class EndedFact(TypedDict):
    fact_id: str
    object: str
    valid_from: str | None
    valid_until: str | None
    keep_both: "JsonObject | None"


class Entity(TypedDict):
    name: str
    key: str
    degree: int


class EntityActions(TypedDict):
    items: "list[Action]"
    truncated: bool


class EntityAlias(TypedDict):
    agent_id: str | None
    user_id: str | None
    name: str
    alias: str
    status: "AliasStatus"
    rule: "AliasRule"
    created_at: str | None


class EntityList(TypedDict):
    """Those with the most facts first."""

    items: "list[Entity]"
    next_cursor: NotRequired[str | None]
    total: int
    truncated: "Bound | None"


class EntityPage(TypedDict):
    name: str
    key: str
    names: list[str]
    aliases: "list[EntityAlias]"
    facts: "KnownFacts"
    earlier: "KnownFacts"
    neighbors: "NeighborCount"
    memories: "Mentions"
    actions: "EntityActions"
    first_seen: str | None
    last_seen: str | None


EventPrecision: TypeAlias = Literal["instant", "day", "month", "year"]


class Evidence(TypedDict):
    source: str
    content: str
    tokens: int


class EvidenceAdded(TypedDict):
    task_id: str
    agent_id: str
    user_id: str | None
    session_id: str | None
    goal: str
    status: "TaskStatus"
    plan: "list[Step]"
    context: "JsonObject"
    scratchpad: "list[Note]"
    evidence: "list[Evidence]"
    open_questions: list[str]
    max_tokens: int
    checkpoint_every: int
    metadata: "JsonObject"
    due_at: str | None
    surface_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str
    evicted: "list[Evidence]"
    warnings: NotRequired["list[TextWarning]"]


class EvidenceIn(TypedDict):
    source: str
    content: str


EvidenceKind: TypeAlias = Literal["memory", "fact", "procedure", "action"]


class Experience(TypedDict):
    procedural_knowledge: str
    common_scenarios: "list[Lesson]"
    effective_strategies: "list[Lesson]"
    known_pitfalls: "list[Lesson]"
    tool_patterns: "list[Lesson]"
    heuristics: "list[Lesson]"
    user_feedback: "list[Lesson]"
    improvement_areas: "list[Lesson]"
    warnings: NotRequired["list[TextWarning]"]


class ExperienceCopy(TypedDict):
    from_agent_id: str


class ExperiencePatch(TypedDict):
    """Lessons are added; one that is known is seen once more."""

    procedural_knowledge: NotRequired[str | None]
    common_scenarios: NotRequired[list[str] | None]
    effective_strategies: NotRequired[list[str] | None]
    known_pitfalls: NotRequired[list[str] | None]
    tool_patterns: NotRequired[list[str] | None]
    heuristics: NotRequired[list[str] | None]
    user_feedback: NotRequired[list[str] | None]
    improvement_areas: NotRequired[list[str] | None]


class ExtractRequest(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    messages: "list[MessageIn]"
    metadata: NotRequired["JsonObject"]


class Extracted(TypedDict):
    items: "list[MemoryCreated]"
    created: int
    superseded: int
    disputed: int
    dropped: dict[str, int]
    llm: "Spent"
    warnings: NotRequired["list[TextWarning]"]


class Fact(TypedDict):
    fact_id: str
    lineage_id: str
    agent_id: str | None
    user_id: str | None
    subject: str
    predicate: str
    object: str
    object_type: "ObjectType"
    confidence: float
    trust: float
    cardinality: "Cardinality"
    always: "AlwaysKind | None"
    status: "FactStatus"
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None
    supersedes: list[str]
    superseded_by: list[str]
    disputes: list[str]
    metadata: "JsonObject"
    source: "Source"
    version: int
    created_at: str
    updated_at: str


class FactBatch(TypedDict):
    items: "list[FactCreate]"


class FactBatchAsserted(TypedDict):
    items: "list[AssertedFact]"
    warnings: NotRequired["list[TextWarning]"]


FactConflictPolicy: TypeAlias = Literal["temporal", "last_write_wins", "keep_both", "merge"]


class FactCreate(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    subject: str
    predicate: str
    object: str
    object_type: NotRequired["ObjectType | None"]
    confidence: NotRequired[float]
    trust: NotRequired[float]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    origin: NotRequired["ImportOrigin | None"]
    metadata: NotRequired["JsonObject"]
    source: NotRequired["SourceIn | None"]
    cardinality: NotRequired["Cardinality | None"]
    always: NotRequired["AlwaysKind | None"]
    on_conflict: NotRequired["FactConflictPolicy"]


FactListStatus: TypeAlias = Literal["active", "disputed", "superseded", "retracted", "any"]


class FactPage(TypedDict):
    items: "list[Fact]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class FactSearch(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    metadata: NotRequired["JsonObject | None"]
    filters: NotRequired["JsonObject | None"]
    query: str
    include_shared: NotRequired[bool]
    subject: NotRequired[str | None]
    predicate: NotRequired[str | None]
    object_type: NotRequired["ObjectType | None"]
    status: NotRequired["FactSearchStatus"]
    as_of: NotRequired[str | None]
    known_at: NotRequired[str | None]
    min_trust: NotRequired[float | None]
    now: NotRequired[str | None]
    top_k: NotRequired[int]
    mode: NotRequired["SearchMode"]


class FactSearchResult(TypedDict):
    mode_used: "SearchMode"
    warnings: "list[SearchWarning]"
    asks: float | None
    took_ms: "TookMs"
    items: "list[FoundFact]"


FactSearchStatus: TypeAlias = Literal["active", "disputed"]


FactStatus: TypeAlias = Literal["active", "superseded", "retracted", "disputed"]


class Feedback(TypedDict):
    user_rating: NotRequired[int | None]
    was_helpful: NotRequired[bool | None]
    correction: NotRequired[str | None]


class FeedbackApplied(TypedDict):
    memory_id: str
    applied: bool
    reason: "FeedbackReason | None"
    replaced: bool
    importance: float | None
    base_importance: float | None
    helpful_count: int | None
    misleading_count: int | None


class FeedbackItem(TypedDict):
    memory_id: str
    helpful: bool
    query: NotRequired[str | None]


FeedbackReason: TypeAlias = Literal["already_today", "not_found", "forbidden"]


class FeedbackRequest(TypedDict):
    items: "list[FeedbackItem]"


class FeedbackResult(TypedDict):
    items: "list[FeedbackApplied]"
    warnings: NotRequired["list[TextWarning]"]


class FindingEvidence(TypedDict):
    kind: "EvidenceKind"
    id: str
    text: str | None
    said_at: str | None
    trust: NotRequired[float | None]
    source: NotRequired["Source | None"]
    quote: NotRequired[str | None]
    shortened: NotRequired[str | None]


FindingKind: TypeAlias = Literal["contradiction", "stale", "insight", "failing_procedure", "merge", "alias"]


FindingListStatus: TypeAlias = Literal["open", "accepted", "dismissed", "settled", "any"]


FindingStatus: TypeAlias = Literal["open", "accepted", "dismissed", "settled"]


class ForgetPlan(TypedDict):
    """What would be forgotten."""

    dry_run: bool
    total: int
    items: "list[Forgettable]"
    warnings: NotRequired["list[TextWarning]"]


ForgetReason: TypeAlias = Literal["recency", "type", "access"]


class ForgetRequest(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    policy: "PolicyIn"
    dry_run: NotRequired[bool]


class Forgettable(TypedDict):
    memory_id: str
    content: str
    memory_type: "MemoryType"
    importance: float
    score: float
    reasons: "list[Reason]"


class Found(TypedDict):
    memory: "FoundMemory"
    score: float
    replaced_by: NotRequired["list[Replacement]"]
    repeated: NotRequired["Repetition | None"]
    scores: NotRequired["Scores | None"]
    contributions: NotRequired["Scores | None"]


class FoundAction(TypedDict):
    action: "Action"
    score: float


class FoundFact(TypedDict):
    fact: "Fact"
    score: float


class FoundMemory(TypedDict):
    """A memory."""

    memory_id: str
    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    key: NotRequired[str | None]
    memory_type: NotRequired["MemoryType"]
    content: NotRequired[str]
    context: NotRequired[str | None]
    importance: NotRequired[float]
    base_importance: NotRequired[float]
    trust: NotRequired[float]
    tags: NotRequired[list[str]]
    metadata: NotRequired["JsonObject"]
    pinned: NotRequired[bool]
    always: NotRequired["AlwaysKind | None"]
    status: NotRequired["MemoryStatus"]
    supersedes: NotRequired[list[str]]
    superseded_by: NotRequired[str | None]
    contradicts: NotRequired[list[str]]
    source: NotRequired["Source"]
    event_at: NotRequired[str | None]
    event_at_precision: NotRequired["EventPrecision | None"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    done_at: NotRequired[str | None]
    rrule: NotRequired[str | None]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    last_accessed: NotRequired[str | None]
    access_count: NotRequired[int]
    helpful_count: NotRequired[int]
    misleading_count: NotRequired[int]
    embedding: NotRequired["EmbeddingInfo"]
    version: NotRequired[int]
    created_at: NotRequired[str]
    updated_at: NotRequired[str]


class FoundProcedure(TypedDict):
    procedure: "Procedure"
    variant: NotRequired["ProcedureVariant"]
    score: float
    recent: "RecentRecord"
    track_record: str
    warnings: "list[ProcedureWarning]"
    scores: NotRequired["Scores | None"]


class FunctionCall(TypedDict):
    name: str
    arguments: NotRequired["CallArguments | None"]


class GraphAnswer(TypedDict):
    nodes: "list[ReachedNode]"
    paths: "list[GraphPath]"
    truncated: "PathBound | None"
    took_ms: float


class GraphPath(TypedDict):
    node: str
    facts: "list[PathFact]"


class GraphQuery(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    start: str
    path: "list[PathStep]"
    include_shared: NotRequired[bool]
    as_of: NotRequired[str | None]
    known_at: NotRequired[str | None]
    limit: NotRequired[int]


class GraphStep(TypedDict):
    predicate: str
    direction: NotRequired["StepDirection"]


class Group(TypedDict):
    total_actions: int
    counts: dict[str, int]
    success_rate: "Rate | None"
    failure_rate: "Rate | None"
    partial_rate: "Rate | None"
    mean_duration_ms: float | None
    p95_duration_ms: float | None
    mean_rating: float | None
    key: str


GroupBy: TypeAlias = Literal["action_type", "tool", "day"]


class HistoryEntry(TypedDict):
    version: int
    changed_at: str
    changed_by: str | None
    record: Json


class HistoryEntryPage(TypedDict):
    items: "list[HistoryEntry]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


ImportOrigin: TypeAlias = Literal["import"]


Intent: TypeAlias = Literal["general", "recall", "execute"]


IntentChoice: TypeAlias = Literal["auto", "general", "recall", "execute"]


class Interaction(TypedDict):
    timestamp: str
    summary: str
    outcome: str | None
    agent_id: NotRequired[str | None]
    warnings: NotRequired["list[TextWarning]"]


class InteractionIn(TypedDict):
    summary: str
    outcome: NotRequired[str | None]
    agent_id: NotRequired[str | None]
    timestamp: NotRequired[str | None]


class Interactions(TypedDict):
    items: "list[Interaction]"
    next_cursor: NotRequired[str | None]


class Issue(TypedDict):
    issue_id: str
    user_id: str
    agent_id: str | None
    description: str
    status: "IssueStatus"
    timestamp: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class IssueIn(TypedDict):
    description: str
    status: NotRequired["IssueStatus"]
    agent_id: NotRequired[str | None]
    timestamp: NotRequired[str | None]


class IssuePage(TypedDict):
    items: "list[Issue]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class IssuePatch(TypedDict):
    status: "IssueStatus"


IssueStatus: TypeAlias = Literal["open", "in_progress", "resolved", "closed"]


class JobInfo(TypedDict):
    name: str
    schedule: str
    last_run: str | None
    next_run: str | None
    outcome: str | None


class JobRun(TypedDict):
    dry_run: NotRequired[bool]
    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]


class Jobs(TypedDict):
    items: "list[JobInfo]"
    next_cursor: NotRequired[str | None]


class Jotted(TypedDict):
    note: "Note | None"
    evicted: "list[Note]"
    scratchpad: "list[Note]"
    warnings: NotRequired["list[TextWarning]"]


JsonObject: TypeAlias = Json


class KeyCreate(TypedDict):
    name: str
    verbs: "list[Verb]"
    agents: NotRequired[list[str]]
    users: NotRequired[list[str]]
    expires_in: NotRequired[int | None]
    requests_per_second: NotRequired[float | None]
    no_admin: NotRequired[bool]


class KeyRevoke(TypedDict):
    force: NotRequired[bool]


class KeyRotate(TypedDict):
    overlap_seconds: NotRequired[int]
    expires_in: NotRequired[int | None]


class KnownFacts(TypedDict):
    items: "list[Fact]"
    truncated: bool


class Lesson(TypedDict):
    text: str
    seen: int
    learned_at: str
    first_learned_at: str
    source: "Source"
    copied_from: NotRequired[str | None]


ListOrder: TypeAlias = Literal["asc", "desc"]


class ListedAgent(TypedDict):
    """An agent."""

    agent_id: str
    name: str | None
    description: str | None
    model: str | None
    system_prompt: str | None
    settings: "AgentSettings"
    experience: "Experience | None"
    version: int | None
    created_at: str | None
    updated_at: str | None
    records: "OwnedRecords"
    last_active: str | None


class ListedAgentPage(TypedDict):
    items: "list[ListedAgent]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class ListedUser(TypedDict):
    """A user and the profile, which is empty if nobody has written one."""

    name: NotRequired[str | None]
    age: NotRequired[int | None]
    home: NotRequired[str | None]
    occupation: NotRequired[str | None]
    interests: NotRequired[list[str]]
    conversation_preferences: NotRequired[list[str]]
    preferences: NotRequired["JsonObject"]
    custom: NotRequired["JsonObject"]
    user_id: str
    records: "OwnedRecords"
    last_active: str | None
    version: int | None
    created_at: str | None
    updated_at: str | None


class ListedUserPage(TypedDict):
    items: "list[ListedUser]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


Memorize: TypeAlias = Literal["none", "messages", "extract"]


class Memory(TypedDict):
    memory_id: str
    agent_id: str | None
    user_id: str | None
    key: str | None
    memory_type: "MemoryType"
    content: str
    context: str | None
    importance: float
    base_importance: float
    trust: float
    tags: list[str]
    metadata: "JsonObject"
    pinned: bool
    always: "AlwaysKind | None"
    status: "MemoryStatus"
    supersedes: list[str]
    superseded_by: str | None
    contradicts: list[str]
    source: "Source"
    event_at: str | None
    event_at_precision: "EventPrecision | None"
    due_at: str | None
    surface_at: str | None
    done_at: str | None
    rrule: str | None
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: int
    helpful_count: int
    misleading_count: int
    embedding: "EmbeddingInfo"
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class MemoryBatch(TypedDict):
    items: "list[MemoryCreate]"


class MemoryBatchCreated(TypedDict):
    items: "list[MemoryCreated]"
    warnings: NotRequired["list[TextWarning]"]


class MemoryCreate(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    event_at: NotRequired[str | None]
    event_at_precision: NotRequired["EventPrecision | None"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    done_at: NotRequired[str | None]
    rrule: NotRequired[str | None]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    memory_type: NotRequired["MemoryTypeIn"]
    content: str
    key: NotRequired[str | None]
    context: NotRequired[str | None]
    importance: NotRequired[float]
    trust: NotRequired[float]
    tags: NotRequired["list[Tag]"]
    metadata: NotRequired["JsonObject"]
    pinned: NotRequired[bool]
    always: NotRequired["AlwaysKind | None"]
    supersedes: NotRequired[list[str]]
    origin: NotRequired["ImportOrigin | None"]
    source: NotRequired["SourceIn | None"]
    deduplicate: NotRequired[bool]
    on_similar: NotRequired["OnSimilar"]


class MemoryCreated(TypedDict):
    memory_id: str
    agent_id: str | None
    user_id: str | None
    key: str | None
    memory_type: "MemoryType"
    content: str
    context: str | None
    importance: float
    base_importance: float
    trust: float
    tags: list[str]
    metadata: "JsonObject"
    pinned: bool
    always: "AlwaysKind | None"
    status: "MemoryStatus"
    supersedes: list[str]
    superseded_by: str | None
    contradicts: list[str]
    source: "Source"
    event_at: str | None
    event_at_precision: "EventPrecision | None"
    due_at: str | None
    surface_at: str | None
    done_at: str | None
    rrule: str | None
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: int
    helpful_count: int
    misleading_count: int
    embedding: "EmbeddingInfo"
    version: int
    created_at: str
    updated_at: str
    similar: "list[Similar]"
    warnings: NotRequired["list[TextWarning]"]


MemoryField: TypeAlias = Literal["memory_id", "agent_id", "user_id", "key", "memory_type", "content", "context", "importance", "base_importance", "trust", "tags", "metadata", "pinned", "always", "status", "supersedes", "superseded_by", "contradicts", "source", "event_at", "event_at_precision", "due_at", "surface_at", "done_at", "rrule", "valid_from", "valid_until", "expires_at", "last_accessed", "access_count", "helpful_count", "misleading_count", "embedding", "version", "created_at", "updated_at"]


MemoryListStatus: TypeAlias = Literal["active", "superseded", "archived", "disputed", "any"]


class MemoryPage(TypedDict):
    items: "list[Memory]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class MemoryPatch(TypedDict):
    """What is absent stays; null clears what can be empty."""

    event_at: NotRequired[str | None]
    event_at_precision: NotRequired["EventPrecision | None"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    done_at: NotRequired[str | None]
    rrule: NotRequired[str | None]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    content: NotRequired[str]
    context: NotRequired[str | None]
    key: NotRequired[str | None]
    memory_type: NotRequired["MemoryTypeIn"]
    importance: NotRequired[float]
    trust: NotRequired[float]
    tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    pinned: NotRequired[bool]
    always: NotRequired["AlwaysKind | None"]
    status: NotRequired["SettableStatus"]


MemoryRole: TypeAlias = Literal["user", "developer", "system"]


MemoryStatus: TypeAlias = Literal["active", "superseded", "archived", "disputed"]


MemoryType: TypeAlias = Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary", "document", "file"]


MemoryTypeIn: TypeAlias = Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary", "file"]


class Mention(TypedDict):
    memory: "Memory"
    names: list[str]


class Mentions(TypedDict):
    items: "list[Mention]"
    truncated: bool


class Message(TypedDict):
    """A message, with the fields of its vendor as they were sent, such as `reasoning_content`."""

    message_id: str
    session_id: str
    seq: int
    role: "MessageRole"
    content: "MessageContent | None"
    name: str | None
    tool_calls: list[Json] | None
    tool_call_id: str | None
    result: Any
    metadata: "JsonObject"
    refusal: str | None
    annotations: list[Any] | None
    audio: Any
    function_call: Any
    timestamp: str
    tokens: int
    edited_at: str | None
    deleted_at: str | None
    created_at: str
    warnings: NotRequired["list[TextWarning]"]


MessageContent: TypeAlias = "str | list[ContentPart]"


class MessageIn(TypedDict):
    """A message as OpenAI's clients hold it, `model_dump()` included."""

    content: NotRequired["MessageContent | None"]
    name: NotRequired[str | None]
    tool_calls: NotRequired["list[ToolCall] | None"]
    tool_call_id: NotRequired[str | None]
    result: NotRequired[Any]
    metadata: NotRequired["JsonObject | None"]
    timestamp: NotRequired[str | None]
    refusal: NotRequired[str | None]
    annotations: NotRequired[list[Any] | None]
    audio: NotRequired[Any]
    function_call: NotRequired[Any]
    role: "MessageRole"


class MessagePage(TypedDict):
    items: "list[Message]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class MessagePatch(TypedDict):
    """What is absent stays; null clears."""

    content: NotRequired["MessageContent | None"]
    name: NotRequired[str | None]
    tool_calls: NotRequired["list[ToolCall] | None"]
    tool_call_id: NotRequired[str | None]
    result: NotRequired[Any]
    metadata: NotRequired["JsonObject | None"]
    timestamp: NotRequired[str]
    refusal: NotRequired[str | None]
    annotations: NotRequired[list[Any] | None]
    audio: NotRequired[Any]
    function_call: NotRequired[Any]


MessageRole: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


class MessagesAppend(TypedDict):
    messages: "list[MessageIn]"
    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    memorize: NotRequired["Memorize | None"]
    metadata: NotRequired["JsonObject | None"]


class NeighborCount(TypedDict):
    count: int
    truncated: "Bound | None"


class Neighbors(TypedDict):
    entity: str
    key: str
    nodes: "list[Node]"
    edges: "list[Edge]"
    truncated: "Bound | None"
    took_ms: float


NewTaskStatus: TypeAlias = Literal["pending", "in_progress"]


class Node(TypedDict):
    name: str
    key: str
    depth: int


class Note(TypedDict):
    id: str
    content: str
    priority: float
    tokens: int


class NoteIn(TypedDict):
    content: str
    priority: NotRequired[float]


ObjectType: TypeAlias = Literal["entity", "literal"]


OnSimilar: TypeAlias = Literal["keep", "supersede"]


class Operation(TypedDict):
    operation_id: str
    agent_id: str | None
    user_id: str | None
    session_id: NotRequired[str | None]
    kind: str
    status: "OperationStatus"
    progress: "Progress"
    result: "OperationResult | None"
    error: str | None
    can_undo: bool
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class OperationPage(TypedDict):
    items: "list[Operation]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


OperationResult: TypeAlias = Json


OperationStatus: TypeAlias = Literal["queued", "running", "succeeded", "partial", "failed", "undone"]


Origin: TypeAlias = Literal["api", "message", "extraction", "consolidation", "import", "document"]


Outcome: TypeAlias = Literal["success", "failure", "partial"]


class OutcomeIn(TypedDict):
    success: bool
    note: NotRequired["ProcedureNote | None"]
    action_id: NotRequired[str | None]
    task_id: NotRequired[str | None]
    variant: NotRequired["ProcedureVariant | None"]


class OutcomeRecorded(TypedDict):
    procedure: "Procedure"
    dropped_notes: list[str]
    warnings: NotRequired["list[TextWarning]"]


class OwnedRecords(TypedDict):
    """How many records there are of an owner, those included that have expired and are not purged yet."""

    memories: int
    sessions: int
    facts: int
    actions: int
    tasks: int
    procedures: int


class PackedItem(TypedDict):
    id: str
    type: str
    citation: str | None
    score: float | None
    links: list[str]
    tokens: int


class PackedSection(TypedDict):
    name: str
    tokens: int
    items: "list[PackedItem]"


class PageWarning(TypedDict):
    code: str
    detail: str


class PassagePlace(TypedDict):
    """Where a passage stands in a document."""

    document_id: str
    name: str
    headings: list[str]
    page: int | None
    start: int
    end: int


PathBound: TypeAlias = Literal["nodes", "edges", "time", "paths"]


class PathFact(TypedDict):
    fact_id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None


PathStep: TypeAlias = "str | GraphStep"


class Plan(TypedDict):
    plan: "list[StepIn]"


class PolicyIn(TypedDict):
    tags: NotRequired["list[Tag] | None"]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    older_than_days: NotRequired[float]
    max_importance: NotRequired[float | None]
    max_score: NotRequired[float | None]
    types: NotRequired["list[MemoryTypeIn] | None"]


Predecessors: TypeAlias = Literal["restore", "delete"]


class Problem(TypedDict):
    """RFC 9457 problem details, the body of every error."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    trace_id: NotRequired[str | None]
    errors: NotRequired["list[ProblemError]"]


class ProblemError(TypedDict):
    pointer: str
    detail: str


class Procedure(TypedDict):
    procedure_id: str
    agent_id: str | None
    user_id: str | None
    name: str
    trigger: str
    preconditions: list[str]
    steps: list[str]
    notes: list[str]
    success_count: int
    failure_count: int
    success_rate: float
    recent_outcomes: "list[ProcedureOutcome]"
    last_used: str | None
    status: "ProcedureStatus"
    trust: float
    tags: list[str]
    metadata: "JsonObject"
    source: "Source"
    trial: NotRequired["ProcedureTrial | None"]
    embedding: "EmbeddingInfo"
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class ProcedureCreate(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    name: str
    trigger: "ProcedureLine"
    steps: "list[ProcedureLine]"
    preconditions: NotRequired["list[ProcedureLine]"]
    notes: NotRequired["list[ProcedureNote]"]
    trust: NotRequired[float]
    tags: NotRequired["list[Tag]"]
    metadata: NotRequired["JsonObject"]


ProcedureLine: TypeAlias = str


ProcedureListStatus: TypeAlias = Literal["active", "archived", "any"]


ProcedureNote: TypeAlias = str


class ProcedureOutcome(TypedDict):
    success: bool
    note: str | None
    action_id: str | None
    task_id: str | None
    at: str
    version: int
    variant: NotRequired["ProcedureVariant"]


class ProcedurePage(TypedDict):
    items: "list[Procedure]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class ProcedurePatch(TypedDict):
    """What is absent stays; a list replaces the one that is there."""

    name: NotRequired[str]
    trigger: NotRequired["ProcedureLine"]
    steps: NotRequired["list[ProcedureLine]"]
    preconditions: NotRequired["list[ProcedureLine] | None"]
    notes: NotRequired["list[ProcedureNote] | None"]
    trust: NotRequired[float]
    tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    status: NotRequired["ProcedureStatus"]


class ProcedureSearch(TypedDict):
    """agent_id, user_id or both are required."""

    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    situation: str
    include_shared: NotRequired[bool]
    tags: NotRequired["list[Tag] | None"]
    min_success_rate: NotRequired[float | None]
    min_trust: NotRequired[float | None]
    status: NotRequired["ProcedureStatus"]
    now: NotRequired[str | None]
    top_k: NotRequired[int]
    explain: NotRequired[bool]


class ProcedureSearchResult(TypedDict):
    mode_used: "SearchMode"
    warnings: "list[SearchWarning]"
    asks: float | None
    took_ms: "TookMs"
    items: "list[FoundProcedure]"


ProcedureStatus: TypeAlias = Literal["active", "archived"]


class ProcedureTrial(TypedDict):
    """Revised steps that are tried beside the current ones."""

    trial_id: str
    steps: list[str]
    current: "TrialCounts"
    revised: "TrialCounts"
    action_ids: list[str]
    model: str
    prompt_version: str
    started_at: str


ProcedureVariant: TypeAlias = Literal["current", "revised"]


class ProcedureVersion(TypedDict):
    version: int
    changed_at: str
    changed_by: str | None
    record: Json


class ProcedureVersionPage(TypedDict):
    items: "list[ProcedureVersion]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class ProcedureWarning(TypedDict):
    code: "ProcedureWarningCode"
    detail: str


ProcedureWarningCode: TypeAlias = Literal["failing_lately", "stale"]


class Profile(TypedDict):
    name: NotRequired[str | None]
    age: NotRequired[int | None]
    home: NotRequired[str | None]
    occupation: NotRequired[str | None]
    interests: NotRequired[list[str]]
    conversation_preferences: NotRequired[list[str]]
    preferences: NotRequired["JsonObject"]
    custom: NotRequired["JsonObject"]


class ProfilePatch(TypedDict):
    """Lists are added to, objects merged (null takes a key away), scalars overwritten (null clears)."""

    name: NotRequired[str | None]
    age: NotRequired[int | None]
    home: NotRequired[str | None]
    occupation: NotRequired[str | None]
    interests: NotRequired[list[str] | None]
    conversation_preferences: NotRequired[list[str] | None]
    preferences: NotRequired["JsonObject | None"]
    custom: NotRequired["JsonObject | None"]


class Progress(TypedDict):
    done: int
    total: int | None


class Prompt(TypedDict):
    text: str
    tokens: int


class Proposal(TypedDict):
    """What accepting the finding does."""

    action: "ProposedAction"
    keep: NotRequired["RecordName | None"]
    retire: NotRequired["list[RecordName]"]
    details: NotRequired["JsonObject"]


ProposedAction: TypeAlias = Literal["supersede", "end", "store", "revise", "none"]


class Rate(TypedDict):
    value: float
    low: float
    high: float


class ReachedNode(TypedDict):
    name: str
    key: str


class Ready(TypedDict):
    status: Literal["ready"]
    store: str
    model: str
    checks: dict[str, str]


class Reason(TypedDict):
    reason: "ForgetReason"
    points: float
    detail: str


class RecalledMemory(TypedDict):
    """A memory that a search or a context returned lately."""

    memory_id: str
    memory_type: "MemoryType"
    content: str
    agent_id: str | None
    user_id: str | None
    recalled_at: str


class Receipt(TypedDict):
    """What an erasure took away."""

    user_id: str
    tombstone: str
    erased_at: str
    erased: dict[str, int]
    verification: "Verification"
    skipped_records: NotRequired["SkippedRecords | None"]


class RecentRecord(TypedDict):
    """Of the last outcomes, the latest counting most."""

    rate: float
    failed_in_a_row: int


class RecordChange(TypedDict):
    """A change of one record."""

    cursor: str
    kind: "ChangedKind"
    id: str | None
    type: "RecordChangeType"
    agent_id: str | None
    user_id: str | None
    version: int | None
    at: str
    record: NotRequired["ChangedRecord | None"]


RecordChangeType: TypeAlias = Literal["created", "updated", "deleted", "erased"]


class RecordCounts(TypedDict):
    """How many records there are that the key sees, those included that have expired and are not purged yet."""

    memories: int
    messages: int
    sessions: int
    facts: int
    actions: int
    tasks: int
    procedures: int
    users: int
    agents: int


class RecordName(TypedDict):
    """The name of a record:"""

    kind: "EvidenceKind"
    id: str


class ReflectRequest(TypedDict):
    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    focus: NotRequired[str | None]
    dry_run: NotRequired[bool]


class ReflectionFinding(TypedDict):
    finding_id: str
    agent_id: str | None
    user_id: str | None
    kind: "FindingKind"
    status: "FindingStatus"
    reason: str
    evidence: "list[FindingEvidence]"
    proposal: "Proposal"
    confidence: float
    trust: float
    operation_id: str | None
    settled_by: str | None
    settled_at: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class ReflectionFindingPage(TypedDict):
    items: "list[ReflectionFinding]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class RelatedBecause(TypedDict):
    reason: "RelatedReason"
    score: float | None
    names: list[str]


class RelatedMemories(TypedDict):
    items: "list[RelatedMemory]"
    next_cursor: NotRequired[str | None]
    warnings: "list[SearchWarning]"


class RelatedMemory(TypedDict):
    memory: "Memory"
    reasons: "list[RelatedBecause]"


RelatedReason: TypeAlias = Literal["supersedes", "superseded_by", "contradicts", "made_from", "shared_entity", "similar", "same_session"]


class Repetition(TypedDict):
    """How often a memory was said:"""

    count: int
    since: str
    ids: NotRequired[list[str]]


class Replacement(TypedDict):
    """A later statement that replaces a memory, as a language model has judged."""

    kind: "ReplacementKind"
    id: str
    quote: str
    replaced: str
    said_at: str


ReplacementKind: TypeAlias = Literal["memory", "fact"]


class Resolution(TypedDict):
    keep: str


class ResolvedFact(TypedDict):
    fact_id: str
    lineage_id: str
    agent_id: str | None
    user_id: str | None
    subject: str
    predicate: str
    object: str
    object_type: "ObjectType"
    confidence: float
    trust: float
    cardinality: "Cardinality"
    always: "AlwaysKind | None"
    status: "FactStatus"
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None
    supersedes: list[str]
    superseded_by: list[str]
    disputes: list[str]
    metadata: "JsonObject"
    source: "Source"
    version: int
    created_at: str
    updated_at: str
    operation_id: str
    warnings: NotRequired["list[TextWarning]"]


class ResolvedMemory(TypedDict):
    memory_id: str
    agent_id: str | None
    user_id: str | None
    key: str | None
    memory_type: "MemoryType"
    content: str
    context: str | None
    importance: float
    base_importance: float
    trust: float
    tags: list[str]
    metadata: "JsonObject"
    pinned: bool
    always: "AlwaysKind | None"
    status: "MemoryStatus"
    supersedes: list[str]
    superseded_by: str | None
    contradicts: list[str]
    source: "Source"
    event_at: str | None
    event_at_precision: "EventPrecision | None"
    due_at: str | None
    surface_at: str | None
    done_at: str | None
    rrule: str | None
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: int
    helpful_count: int
    misleading_count: int
    embedding: "EmbeddingInfo"
    version: int
    created_at: str
    updated_at: str
    operation_id: str
    warnings: NotRequired["list[TextWarning]"]


class Restore(TypedDict):
    seq: NotRequired[int]
    reopen: NotRequired[bool]


class RouteLatency(TypedDict):
    """How fast a route answers, since the process started."""

    method: str
    route: str
    requests: int
    p50_ms: float
    p95_ms: float


Scores: TypeAlias = dict[str, float]


SearchMode: TypeAlias = Literal["hybrid", "vector", "text"]


class SearchRequest(TypedDict):
    """agent_id, user_id or both are required."""

    tags: NotRequired["list[Tag] | None"]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    agent_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    filters: NotRequired["JsonObject | None"]
    query: str
    everyone: NotRequired[bool]
    include_shared: NotRequired[bool]
    session_id: NotRequired[str | None]
    memory_types: NotRequired["list[MemoryType] | None"]
    min_importance: NotRequired[float | None]
    min_score: NotRequired[float | None]
    min_trust: NotRequired[float | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]
    status: NotRequired["MemoryStatus"]
    as_of: NotRequired[str | None]
    now: NotRequired[str | None]
    timezone: NotRequired[str | None]
    top_k: NotRequired[int]
    mode: NotRequired["SearchMode"]
    min_similarity: NotRequired[float | None]
    explain: NotRequired[bool]
    record_access: NotRequired[bool]
    fields: NotRequired["list[MemoryField] | None"]


class SearchResult(TypedDict):
    mode_used: "SearchMode"
    warnings: "list[SearchWarning]"
    asks: float | None
    took_ms: "TookMs"
    items: "list[Found]"
    understood: NotRequired["Understood | None"]


class SearchWarning(TypedDict):
    """What an answer goes without."""

    code: str
    detail: str


class SectionAsked(TypedDict):
    """At most so much of the budget, by share or in tokens, and at most so many items."""

    share: NotRequired[float | None]
    tokens: NotRequired[int | None]
    limit: NotRequired[int | None]


class SectionError(TypedDict):
    section: str
    code: str
    detail: str


SectionName: TypeAlias = Literal["instructions", "always", "profile", "uncertain", "working", "summary", "messages", "memories", "facts", "procedures", "experience", "episodes"]


class Session(TypedDict):
    session_id: str
    agent_id: str
    user_id: str
    status: "SessionStatus"
    summary: str | None
    metadata: "JsonObject"
    memorize: "Memorize"
    message_count: int
    token_count: int
    last_message_at: str | None
    ended_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class SessionContext(TypedDict):
    text: str
    messages: "list[ContextMessage]"
    summary: str | None
    tokens: int
    truncated: bool


class SessionCreate(TypedDict):
    session_id: NotRequired[str | None]
    agent_id: str
    user_id: str
    memorize: NotRequired["Memorize"]
    metadata: NotRequired["JsonObject"]
    expires_at: NotRequired[str | None]


class SessionPage(TypedDict):
    items: "list[Session]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class SessionPatch(TypedDict):
    metadata: NotRequired["JsonObject | None"]
    memorize: NotRequired["Memorize"]
    summary: NotRequired[str | None]
    expires_at: NotRequired[str | None]


class SessionStats(TypedDict):
    session_id: str
    message_count: int
    by_role: dict[str, int]
    token_count: int
    first_message_at: str | None
    last_message_at: str | None
    memories: int


SessionStatus: TypeAlias = Literal["active", "ended"]


SettableStatus: TypeAlias = Literal["active", "archived"]


class SettingInForce(TypedDict):
    """A setting of the process that answers."""

    name: str
    value: str
    default: str
    changed: bool
    secret: bool
    description: str


class SettingsInForce(TypedDict):
    items: "list[SettingInForce]"
    next_cursor: NotRequired[str | None]


class Similar(TypedDict):
    memory_id: str
    content: str
    score: float
    superseded: bool


class SkippedRecord(TypedDict):
    kind: str
    id: str
    error: str


class SkippedRecords(TypedDict):
    """Records that a job left as they are, because their content cannot be handled."""

    count: int
    items: "list[SkippedRecord]"


class Solution(TypedDict):
    solution_id: str
    user_id: str
    agent_id: str | None
    problem: str
    fix: str
    timestamp: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class SolutionIn(TypedDict):
    problem: str
    fix: str
    agent_id: NotRequired[str | None]
    timestamp: NotRequired[str | None]


class SolutionPage(TypedDict):
    items: "list[Solution]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class Source(TypedDict):
    """Where a record comes from:"""

    origin: "Origin"
    session_id: NotRequired[str | None]
    message_seq: NotRequired[int | None]
    said_at: NotRequired[str | None]
    speaker: NotRequired[str | None]
    role: NotRequired[str | None]
    action_ids: NotRequired[list[str]]
    memory_ids: NotRequired[list[str]]
    url: NotRequired[str | None]
    note: NotRequired[str | None]
    model: NotRequired[str | None]
    prompt_version: NotRequired[str | None]
    quote: NotRequired[str | None]
    api_key_id: NotRequired[str | None]
    document: NotRequired["PassagePlace | None"]


class SourceIn(TypedDict):
    """Where a record comes from, as the caller says."""

    session_id: NotRequired[str | None]
    message_seq: NotRequired[int | None]
    said_at: NotRequired[str | None]
    action_ids: NotRequired[list[str]]
    url: NotRequired[str | None]
    note: NotRequired[str | None]


class Spent(TypedDict):
    calls: int
    tokens: int
    cached_tokens: int


class Stats(TypedDict):
    total_actions: int
    counts: dict[str, int]
    success_rate: "Rate | None"
    failure_rate: "Rate | None"
    partial_rate: "Rate | None"
    mean_duration_ms: float | None
    p95_duration_ms: float | None
    mean_rating: float | None
    window_days: int
    groups: NotRequired["list[Group] | None"]


class Step(TypedDict):
    step: int
    action: str
    params: "JsonObject"
    status: "StepStatus"
    result: Any


StepDirection: TypeAlias = Literal["out", "in"]


class StepIn(TypedDict):
    action: str
    step: NotRequired[int | None]
    params: NotRequired["JsonObject"]
    status: NotRequired["StepStatus"]
    result: NotRequired[Any]


class StepPatch(TypedDict):
    status: NotRequired["StepStatus"]
    result: NotRequired[Any]


StepStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "skipped"]


class StoreStats(TypedDict):
    """What a tenant holds and how the service does."""

    counts: "RecordCounts"
    memories_by_type: dict[str, int]
    memories_by_status: dict[str, int]
    operations_by_status: dict[str, int]
    growth: "list[DayCounts]"
    recalled: "list[RecalledMemory]"
    latency: "list[RouteLatency] | None"
    counted_at: str


class StoredProfile(TypedDict):
    name: NotRequired[str | None]
    age: NotRequired[int | None]
    home: NotRequired[str | None]
    occupation: NotRequired[str | None]
    interests: NotRequired[list[str]]
    conversation_preferences: NotRequired[list[str]]
    preferences: NotRequired["JsonObject"]
    custom: NotRequired["JsonObject"]
    user_id: str
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


Tag: TypeAlias = str


TagsMatch: TypeAlias = Literal["any", "all"]


class Task(TypedDict):
    task_id: str
    agent_id: str
    user_id: str | None
    session_id: str | None
    goal: str
    status: "TaskStatus"
    plan: "list[Step]"
    context: "JsonObject"
    scratchpad: "list[Note]"
    evidence: "list[Evidence]"
    open_questions: list[str]
    max_tokens: int
    checkpoint_every: int
    metadata: "JsonObject"
    due_at: str | None
    surface_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str
    warnings: NotRequired["list[TextWarning]"]


class TaskCreate(TypedDict):
    task_id: NotRequired[str | None]
    agent_id: str
    user_id: NotRequired[str | None]
    session_id: NotRequired[str | None]
    goal: str
    status: NotRequired["NewTaskStatus"]
    plan: NotRequired["list[StepIn]"]
    context: NotRequired["JsonObject"]
    open_questions: NotRequired[list[str]]
    max_tokens: NotRequired[int]
    checkpoint_every: NotRequired[int]
    metadata: NotRequired["JsonObject"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    expires_at: NotRequired[str | None]


class TaskPage(TypedDict):
    items: "list[Task]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


class TaskPatch(TypedDict):
    goal: NotRequired[str]
    status: NotRequired["TaskStatus"]
    session_id: NotRequired[str | None]
    open_questions: NotRequired[list[str] | None]
    max_tokens: NotRequired[int]
    checkpoint_every: NotRequired[int]
    metadata: NotRequired["JsonObject | None"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    expires_at: NotRequired[str | None]


class TaskPatched(TypedDict):
    task_id: str
    agent_id: str
    user_id: str | None
    session_id: str | None
    goal: str
    status: "TaskStatus"
    plan: "list[Step]"
    context: "JsonObject"
    scratchpad: "list[Note]"
    evidence: "list[Evidence]"
    open_questions: list[str]
    max_tokens: int
    checkpoint_every: int
    metadata: "JsonObject"
    due_at: str | None
    surface_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str
    operation_id: str | None
    warnings: NotRequired["list[TextWarning]"]


TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "cancelled"]


class TextWarning(TypedDict):
    """What of a text that was sent was not kept, or holds something that nobody should keep."""

    code: str
    pointer: str
    detail: str
    kind: NotRequired[str | None]
    start: NotRequired[int | None]
    end: NotRequired[int | None]


class TookMs(TypedDict):
    embed: float
    search: float
    rerank: NotRequired[float | None]
    total: float


class ToolCall(TypedDict):
    """As the model gave it; fields that we do not know stay."""

    id: NotRequired[str | None]
    type: NotRequired[str]
    function: NotRequired["FunctionCall | None"]


class TrialCounts(TypedDict):
    success_count: int
    failure_count: int


class Understood(TypedDict):
    time: "UnderstoodTime | None"


UnderstoodTime = TypedDict("UnderstoodTime", {
    "from": str,
    "until": str,
    "words": str,
    "empty": bool,
})


class UpcomingItem(TypedDict):
    at: str
    kind: "UpcomingKind"
    memory: "Memory | None"
    task: "Task | None"
    fact: "Fact | None"


class UpcomingItemPage(TypedDict):
    items: "list[UpcomingItem]"
    next_cursor: NotRequired[str | None]
    warnings: NotRequired["list[PageWarning]"]


UpcomingKind: TypeAlias = Literal["plan", "due", "ends"]


Verb: TypeAlias = Literal["read", "write", "admin"]


class Verification(TypedDict):
    """What was looked for after all was gone."""

    records_found: int
    search_found: int


class WorkingMemory(TypedDict):
    text: str
    tokens: int


class MemoryOptions(TypedDict):
    """Optional fields of MemoryCreate."""

    event_at: NotRequired[str | None]
    event_at_precision: NotRequired["EventPrecision | None"]
    due_at: NotRequired[str | None]
    surface_at: NotRequired[str | None]
    done_at: NotRequired[str | None]
    rrule: NotRequired[str | None]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    memory_type: NotRequired["MemoryTypeIn"]
    key: NotRequired[str | None]
    context: NotRequired[str | None]
    importance: NotRequired[float]
    trust: NotRequired[float]
    tags: NotRequired["list[Tag]"]
    metadata: NotRequired["JsonObject"]
    pinned: NotRequired[bool]
    always: NotRequired["AlwaysKind | None"]
    supersedes: NotRequired[list[str]]
    origin: NotRequired["ImportOrigin | None"]
    source: NotRequired["SourceIn | None"]
    deduplicate: NotRequired[bool]
    on_similar: NotRequired["OnSimilar"]


class SearchOptions(TypedDict):
    """Optional fields of SearchRequest."""

    tags: NotRequired["list[Tag] | None"]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    filters: NotRequired["JsonObject | None"]
    everyone: NotRequired[bool]
    include_shared: NotRequired[bool]
    session_id: NotRequired[str | None]
    memory_types: NotRequired["list[MemoryType] | None"]
    min_importance: NotRequired[float | None]
    min_score: NotRequired[float | None]
    min_trust: NotRequired[float | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]
    status: NotRequired["MemoryStatus"]
    as_of: NotRequired[str | None]
    now: NotRequired[str | None]
    timezone: NotRequired[str | None]
    mode: NotRequired["SearchMode"]
    min_similarity: NotRequired[float | None]
    explain: NotRequired[bool]
    record_access: NotRequired[bool]


class ContextOptions(TypedDict):
    """Optional fields of ContextRequest."""

    tags: NotRequired["list[Tag] | None"]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired["list[Tag] | None"]
    metadata: NotRequired["JsonObject | None"]
    filters: NotRequired["JsonObject | None"]
    task_id: NotRequired[str | None]
    intent: NotRequired["IntentChoice"]
    fill: NotRequired[bool]
    sections: NotRequired["dict[str, SectionAsked]"]
    format: NotRequired["ContextFormat"]
    citations: NotRequired["CitationStyle"]
    system_prompt: NotRequired[str | None]
    explain: NotRequired[bool]
    memory_role: NotRequired["MemoryRole"]
    include: NotRequired["list[SectionName]"]
    exclude: NotRequired["list[SectionName]"]
    min_trust: NotRequired[float | None]
    min_importance: NotRequired[float | None]
    min_score: NotRequired[float | None]
    as_of: NotRequired[str | None]
    known_at: NotRequired[str | None]
    now: NotRequired[str | None]
    timezone: NotRequired[str | None]


class FactOptions(TypedDict):
    """Optional fields of FactCreate."""

    object_type: NotRequired["ObjectType | None"]
    confidence: NotRequired[float]
    trust: NotRequired[float]
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    origin: NotRequired["ImportOrigin | None"]
    metadata: NotRequired["JsonObject"]
    source: NotRequired["SourceIn | None"]
    cardinality: NotRequired["Cardinality | None"]
    always: NotRequired["AlwaysKind | None"]
    on_conflict: NotRequired["FactConflictPolicy"]


class FactSearchOptions(TypedDict):
    """Optional fields of FactSearch."""

    metadata: NotRequired["JsonObject | None"]
    filters: NotRequired["JsonObject | None"]
    include_shared: NotRequired[bool]
    subject: NotRequired[str | None]
    predicate: NotRequired[str | None]
    object_type: NotRequired["ObjectType | None"]
    status: NotRequired["FactSearchStatus"]
    as_of: NotRequired[str | None]
    known_at: NotRequired[str | None]
    min_trust: NotRequired[float | None]
    now: NotRequired[str | None]
    mode: NotRequired["SearchMode"]


class MemoryFilter(TypedDict):
    """Filters of list_memories; limit:"""

    metadata: NotRequired[Json | str]
    filters: NotRequired[Json | str]
    memory_type: NotRequired["MemoryType"]
    session_id: NotRequired[str]
    after_seq: NotRequired[int]
    before_seq: NotRequired[int]
    origin: NotRequired["Origin"]
    key: NotRequired[str]
    key_prefix: NotRequired[str]
    tag: NotRequired[str]
    pinned: NotRequired[bool]
    since: NotRequired[str]
    until: NotRequired[str]
    tags: NotRequired[list[str] | str]
    tags_match: NotRequired["TagsMatch"]
    exclude_tags: NotRequired[list[str] | str]
    limit: NotRequired[int]
    order: NotRequired["ListOrder"]
    status: NotRequired["MemoryListStatus"]


class FactFilter(TypedDict):
    """Filters of list_facts; limit:"""

    metadata: NotRequired[Json | str]
    filters: NotRequired[Json | str]
    subject: NotRequired[str]
    predicate: NotRequired[str]
    object: NotRequired[str]
    object_type: NotRequired["ObjectType"]
    session_id: NotRequired[str]
    after_seq: NotRequired[int]
    before_seq: NotRequired[int]
    as_of: NotRequired[str]
    known_at: NotRequired[str]
    timeline: NotRequired[bool]
    status: NotRequired["FactListStatus"]
    limit: NotRequired[int]
    order: NotRequired["ListOrder"]


class SessionFilter(TypedDict):
    """Filters of list_sessions; limit:"""

    limit: NotRequired[int]
    order: NotRequired["ListOrder"]
    metadata: NotRequired[Json | str]
    filters: NotRequired[Json | str]
    status: NotRequired["SessionStatus"]


class Operations(Transport):
    def search_memories(self, body: "SearchRequest") -> "SearchResult":
        """Find what matters for a query, best first."""
        found: "SearchResult" = self._call("POST", "/v1/memories/search", body=body)
        return found

    def create_memory(self, body: "MemoryCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None, if_none_match: str | None = None) -> "MemoryCreated":
        """Remember one thing."""
        found: "MemoryCreated" = self._call("POST", "/v1/memories", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match, "If-None-Match": if_none_match})
        return found

    def list_memories(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, memory_type: "MemoryType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, origin: "Origin | None" = None, key: str | None = None, key_prefix: str | None = None, tag: str | None = None, pinned: bool | None = None, since: str | None = None, until: str | None = None, tags: str | None = None, tags_match: "TagsMatch | None" = None, exclude_tags: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, status: "MemoryListStatus | None" = None) -> "MemoryPage":
        """List the memories that have exactly the owner fields named; shared ones are not added."""
        found: "MemoryPage" = self._call("GET", "/v1/memories", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "memory_type": memory_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "origin": origin, "key": key, "key_prefix": key_prefix, "tag": tag, "pinned": pinned, "since": since, "until": until, "tags": tags, "tags_match": tags_match, "exclude_tags": exclude_tags, "limit": limit, "cursor": cursor, "order": order, "status": status})
        return found

    def delete_memories(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, memory_type: "MemoryType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, origin: "Origin | None" = None, key: str | None = None, key_prefix: str | None = None, tag: str | None = None, pinned: bool | None = None, since: str | None = None, until: str | None = None, tags: str | None = None, tags_match: "TagsMatch | None" = None, exclude_tags: str | None = None, status: "MemoryListStatus | None" = None) -> "Deleted":
        """Delete all memories that match, with their history."""
        found: "Deleted" = self._call("DELETE", "/v1/memories", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "memory_type": memory_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "origin": origin, "key": key, "key_prefix": key_prefix, "tag": tag, "pinned": pinned, "since": since, "until": until, "tags": tags, "tags_match": tags_match, "exclude_tags": exclude_tags, "status": status})
        return found

    def create_memories(self, body: "MemoryBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "MemoryBatchCreated":
        """Remember up to 500 things:"""
        found: "MemoryBatchCreated" = self._call("POST", "/v1/memories/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def give_memory_feedback(self, body: "FeedbackRequest", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "FeedbackResult":
        """Say which memories helped to answer and which misled."""
        found: "FeedbackResult" = self._call("POST", "/v1/memories/feedback", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def get_memory(self, memory_id: str) -> "Memory":
        """Get one memory."""
        found: "Memory" = self._call("GET", path("/v1/memories/{}", memory_id))
        return found

    def update_memory(self, memory_id: str, body: "MemoryPatch", *, if_match: int | str | None = None) -> "Memory":
        """Change a memory:"""
        found: "Memory" = self._call("PATCH", path("/v1/memories/{}", memory_id), body=body, headers={"If-Match": if_match})
        return found

    def delete_memory(self, memory_id: str, *, predecessors: "Predecessors | None" = None, if_match: int | str | None = None) -> None:
        """Delete a memory, its vector and its history."""
        self._call("DELETE", path("/v1/memories/{}", memory_id), query={"predecessors": predecessors}, headers={"If-Match": if_match})

    def get_memory_history(self, memory_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "HistoryEntryPage":
        """List the earlier versions of a memory, each as it was when it left."""
        found: "HistoryEntryPage" = self._call("GET", path("/v1/memories/{}/history", memory_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def assemble_context(self, body: "ContextRequest") -> "Context":
        """Get the right few things for the next prompt, inside a token budget."""
        found: "Context" = self._call("POST", "/v1/context", body=body)
        return found

    def create_document(self, content: bytes, media_type: str = "application/octet-stream", *, name: str | None = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, idempotency_key: str | None = None) -> "DocumentAccepted":
        """Remember a file:"""
        found: "DocumentAccepted" = self._call("POST", "/v1/documents", query={"name": name, "agent_id": agent_id, "user_id": user_id, "metadata": metadata}, body=content, headers={"Content-Type": media_type, "Idempotency-Key": idempotency_key})
        return found

    def list_documents(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, name: str | None = None) -> "DocumentPage":
        """List the documents, newest first."""
        found: "DocumentPage" = self._call("GET", "/v1/documents", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "name": name})
        return found

    def get_document(self, document_id: str) -> "Document":
        """Get a document:"""
        found: "Document" = self._call("GET", path("/v1/documents/{}", document_id))
        return found

    def delete_document(self, document_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a document and its passages."""
        self._call("DELETE", path("/v1/documents/{}", document_id), headers={"If-Match": if_match})

    def create_session(self, body: "SessionCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Session":
        """Begin a conversation."""
        found: "Session" = self._call("POST", "/v1/sessions", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_sessions(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, status: "SessionStatus | None" = None) -> "SessionPage":
        """List the sessions, newest first."""
        found: "SessionPage" = self._call("GET", "/v1/sessions", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "status": status})
        return found

    def get_session(self, session_id: str) -> "Session":
        """Get one session, without its messages."""
        found: "Session" = self._call("GET", path("/v1/sessions/{}", session_id))
        return found

    def update_session(self, session_id: str, body: "SessionPatch", *, if_match: int | str | None = None) -> "Session":
        """Change a session:"""
        found: "Session" = self._call("PATCH", path("/v1/sessions/{}", session_id), body=body, headers={"If-Match": if_match})
        return found

    def delete_session(self, session_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a session and its messages."""
        self._call("DELETE", path("/v1/sessions/{}", session_id), headers={"If-Match": if_match})

    def append_messages(self, session_id: str, body: "MessagesAppend", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Appended":
        """Append messages in order, all or none."""
        found: "Appended" = self._call("POST", path("/v1/sessions/{}/messages", session_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_messages(self, session_id: str, *, limit: int | None = None, cursor: str | None = None, last: int | None = None, max_tokens: int | None = None, before_seq: int | None = None, after_seq: int | None = None) -> "MessagePage":
        """List the messages, oldest first:"""
        found: "MessagePage" = self._call("GET", path("/v1/sessions/{}/messages", session_id), query={"limit": limit, "cursor": cursor, "last": last, "max_tokens": max_tokens, "before_seq": before_seq, "after_seq": after_seq})
        return found

    def clear_messages(self, session_id: str, *, if_match: int | str | None = None) -> "Deleted":
        """Delete the messages of a session:"""
        found: "Deleted" = self._call("DELETE", path("/v1/sessions/{}/messages", session_id), headers={"If-Match": if_match})
        return found

    def update_message(self, session_id: str, seq: int, body: "MessagePatch", *, if_match: int | str | None = None) -> "Message":
        """Edit a message:"""
        found: "Message" = self._call("PATCH", path("/v1/sessions/{}/messages/{}", session_id, seq), body=body, headers={"If-Match": if_match})
        return found

    def delete_message(self, session_id: str, seq: int, *, if_match: int | str | None = None) -> None:
        """Delete a message."""
        self._call("DELETE", path("/v1/sessions/{}/messages/{}", session_id, seq), headers={"If-Match": if_match})

    def get_session_context(self, session_id: str, *, max_messages: int | None = None, max_tokens: int | None = None) -> "SessionContext":
        """Get the last messages as text for a prompt, within a token budget."""
        found: "SessionContext" = self._call("GET", path("/v1/sessions/{}/context", session_id), query={"max_messages": max_messages, "max_tokens": max_tokens})
        return found

    def end_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Operation":
        """End the conversation:"""
        found: "Operation" = self._call("POST", path("/v1/sessions/{}/end", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def reopen_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Session":
        """Make an ended session take messages again."""
        found: "Session" = self._call("POST", path("/v1/sessions/{}/reopen", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def get_session_stats(self, session_id: str) -> "SessionStats":
        """Count the messages by role, their tokens and the memories formed, with first and last message."""
        found: "SessionStats" = self._call("GET", path("/v1/sessions/{}/stats", session_id))
        return found

    def search_facts(self, body: "FactSearch") -> "FactSearchResult":
        """Find facts by meaning and words, true at `as_of` as far as it was known at `known_at`."""
        found: "FactSearchResult" = self._call("POST", "/v1/facts/search", body=body)
        return found

    def assert_fact(self, body: "FactCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> AssertedFact | Operation:
        """Say that something is true."""
        found: AssertedFact | Operation = self._call("POST", "/v1/facts", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_facts(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, subject: str | None = None, predicate: str | None = None, object: str | None = None, object_type: "ObjectType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, as_of: str | None = None, known_at: str | None = None, timeline: bool | None = None, status: "FactListStatus | None" = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "FactPage":
        """List the facts that have exactly the owner fields named:"""
        found: "FactPage" = self._call("GET", "/v1/facts", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "subject": subject, "predicate": predicate, "object": object, "object_type": object_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "as_of": as_of, "known_at": known_at, "timeline": timeline, "status": status, "limit": limit, "cursor": cursor, "order": order})
        return found

    def assert_facts(self, body: "FactBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "FactBatchAsserted":
        """Assert up to 500 facts, in their order:"""
        found: "FactBatchAsserted" = self._call("POST", "/v1/facts/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def get_fact(self, fact_id: str) -> "Fact":
        """Get one fact, whatever became of it."""
        found: "Fact" = self._call("GET", path("/v1/facts/{}", fact_id))
        return found

    def delete_fact(self, fact_id: str, *, if_match: int | str | None = None) -> None:
        """Remove an assertion and its history as if it had never been made."""
        self._call("DELETE", path("/v1/facts/{}", fact_id), headers={"If-Match": if_match})

    def get_fact_history(self, fact_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "FactPage":
        """List all that was ever stated of the same assertion, today's facts included."""
        found: "FactPage" = self._call("GET", path("/v1/facts/{}/history", fact_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def retract_fact(self, fact_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Fact":
        """Take back what should not have been said:"""
        found: "Fact" = self._call("POST", path("/v1/facts/{}/retract", fact_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_entities(self, *, prefix: str | None = None, limit: int | None = None, cursor: str | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "EntityList":
        """List whom and what the facts are about."""
        found: "EntityList" = self._call("GET", "/v1/graph/entities", query={"prefix": prefix, "limit": limit, "cursor": cursor, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    def get_neighbors(self, name: str, *, depth: int | None = None, predicate: str | None = None, max_nodes: int | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "Neighbors":
        """Get what an entity is linked with, in up to three hops, both ways, by facts true at that time."""
        found: "Neighbors" = self._call("GET", path("/v1/graph/entities/{}/neighbors", name), query={"depth": depth, "predicate": predicate, "max_nodes": max_nodes, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    def list_aliases(self, name: str, *, status: "AliasListStatus | None" = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "AliasList":
        """List the other names of an entity, and those that may be."""
        found: "AliasList" = self._call("GET", path("/v1/graph/entities/{}/aliases", name), query={"status": status, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    def declare_aliases(self, name: str, body: "AliasesCreate", *, idempotency_key: str | None = None) -> "AliasesChanged":
        """Say that names mean the same entity."""
        found: "AliasesChanged" = self._call("POST", path("/v1/graph/entities/{}/aliases", name), body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def dismiss_alias(self, name: str, *, alias: str | None = None, agent_id: str | None = None, user_id: str | None = None) -> "AliasesChanged":
        """Say that two names are not the same entity."""
        found: "AliasesChanged" = self._call("DELETE", path("/v1/graph/entities/{}/aliases", name), query={"alias": alias, "agent_id": agent_id, "user_id": user_id})
        return found

    def query_graph(self, body: "GraphQuery") -> "GraphAnswer":
        """Where a chain of predicates leads from an entity:"""
        found: "GraphAnswer" = self._call("POST", "/v1/graph/query", body=body)
        return found

    def list_upcoming(self, *, agent_id: str | None = None, user_id: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None) -> "UpcomingItemPage":
        """List what is coming, the soonest first:"""
        found: "UpcomingItemPage" = self._call("GET", "/v1/upcoming", query={"agent_id": agent_id, "user_id": user_id, "until": until, "limit": limit, "cursor": cursor})
        return found

    def get_entity(self, name: str, *, limit: int | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "EntityPage":
        """Get what is known of an entity:"""
        found: "EntityPage" = self._call("GET", path("/v1/graph/entities/{}", name), query={"limit": limit, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    def get_related_memories(self, memory_id: str, *, limit: int | None = None) -> "RelatedMemories":
        """List memories related to one, each with the reasons."""
        found: "RelatedMemories" = self._call("GET", path("/v1/memories/{}/related", memory_id), query={"limit": limit})
        return found

    def forget_memories(self, body: "ForgetRequest", *, idempotency_key: str | None = None) -> ForgetPlan | Operation:
        """Forget memories by policy."""
        found: ForgetPlan | Operation = self._call("POST", "/v1/memories/forget", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def extract_memories(self, body: "ExtractRequest", *, idempotency_key: str | None = None) -> Extracted | Operation:
        """Extract memories from messages:"""
        found: Extracted | Operation = self._call("POST", "/v1/memories/extract", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def summarize_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Operation":
        """Write the session's summary anew from all its messages."""
        found: "Operation" = self._call("POST", path("/v1/sessions/{}/summarize", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def create_task(self, body: "TaskCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Task":
        """Begin a task."""
        found: "Task" = self._call("POST", "/v1/tasks", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_tasks(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, session_id: str | None = None, status: "TaskStatus | None" = None) -> "TaskPage":
        """List the tasks, newest first."""
        found: "TaskPage" = self._call("GET", "/v1/tasks", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "session_id": session_id, "status": status})
        return found

    def get_task(self, task_id: str) -> "Task":
        """Get a task with all its state."""
        found: "Task" = self._call("GET", path("/v1/tasks/{}", task_id))
        return found

    def update_task(self, task_id: str, body: "TaskPatch", *, if_match: int | str | None = None) -> "TaskPatched":
        """Change a task."""
        found: "TaskPatched" = self._call("PATCH", path("/v1/tasks/{}", task_id), body=body, headers={"If-Match": if_match})
        return found

    def delete_task(self, task_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a task and its checkpoints."""
        self._call("DELETE", path("/v1/tasks/{}", task_id), headers={"If-Match": if_match})

    def update_task_context(self, task_id: str, body: "JsonObject", *, if_match: int | str | None = None) -> "Task":
        """Merge into the context (JSON merge patch, RFC 7396):"""
        found: "Task" = self._call("PATCH", path("/v1/tasks/{}/context", task_id), body=body, headers={"If-Match": if_match})
        return found

    def put_task_plan(self, task_id: str, body: "Plan", *, if_match: int | str | None = None) -> "Task":
        """Replace a task's plan."""
        found: "Task" = self._call("PUT", path("/v1/tasks/{}/plan", task_id), body=body, headers={"If-Match": if_match})
        return found

    def update_task_step(self, task_id: str, index: int, body: "StepPatch", *, if_match: int | str | None = None) -> "Task":
        """Set a step's status and result."""
        found: "Task" = self._call("PATCH", path("/v1/tasks/{}/plan/{}", task_id, index), body=body, headers={"If-Match": if_match})
        return found

    def add_task_note(self, task_id: str, body: "NoteIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Jotted":
        """Jot down a note."""
        found: "Jotted" = self._call("POST", path("/v1/tasks/{}/scratchpad", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def add_task_evidence(self, task_id: str, body: "EvidenceIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "EvidenceAdded":
        """Add a piece of evidence."""
        found: "EvidenceAdded" = self._call("POST", path("/v1/tasks/{}/evidence", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def get_working_memory(self, task_id: str, *, max_tokens: int | None = None) -> "WorkingMemory":
        """Get the task as text for a prompt, within a token budget."""
        found: "WorkingMemory" = self._call("GET", path("/v1/tasks/{}/working-memory", task_id), query={"max_tokens": max_tokens})
        return found

    def create_checkpoint(self, task_id: str, body: "CheckpointIn | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Checkpoint":
        """Keep the task's state as it is now."""
        found: "Checkpoint" = self._call("POST", path("/v1/tasks/{}/checkpoints", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_checkpoints(self, task_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "CheckpointPage":
        """List the checkpoints of a task, newest first."""
        found: "CheckpointPage" = self._call("GET", path("/v1/tasks/{}/checkpoints", task_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def get_checkpoint(self, task_id: str, seq: int) -> "Checkpoint":
        """Get one checkpoint."""
        found: "Checkpoint" = self._call("GET", path("/v1/tasks/{}/checkpoints/{}", task_id, seq))
        return found

    def restore_task(self, task_id: str, body: "Restore | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Task":
        """Bring a checkpoint's state back, in one write; the restore and what was there before are kept as checkpoints."""
        found: "Task" = self._call("POST", path("/v1/tasks/{}/restore", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def log_action(self, body: "ActionCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Action":
        """Log what an agent did:"""
        found: "Action" = self._call("POST", "/v1/actions", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_actions(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, session_id: str | None = None, task_id: str | None = None, event_type: str | None = None, action_type: str | None = None, outcome: "Outcome | None" = None, entity: str | None = None, tag: str | None = None, since: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ActionPage":
        """List the actions by the time they happened, newest first."""
        found: "ActionPage" = self._call("GET", "/v1/actions", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "session_id": session_id, "task_id": task_id, "event_type": event_type, "action_type": action_type, "outcome": outcome, "entity": entity, "tag": tag, "since": since, "until": until, "limit": limit, "cursor": cursor, "order": order})
        return found

    def log_actions(self, body: "ActionBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ActionBatchCreated":
        """Log up to 500 actions:"""
        found: "ActionBatchCreated" = self._call("POST", "/v1/actions/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def search_actions(self, body: "ActionSearch") -> "ActionSearchResult":
        """Find similar past actions, by meaning and words."""
        found: "ActionSearchResult" = self._call("POST", "/v1/actions/search", body=body)
        return found

    def get_action_stats(self, *, agent_id: str | None = None, user_id: str | None = None, action_type: str | None = None, window_days: int | None = None, group_by: "GroupBy | None" = None, tz: str | None = None) -> "Stats":
        """Count how often an agent succeeds and how long it takes, with 95 % Wilson intervals."""
        found: "Stats" = self._call("GET", "/v1/actions/stats", query={"agent_id": agent_id, "user_id": user_id, "action_type": action_type, "window_days": window_days, "group_by": group_by, "tz": tz})
        return found

    def get_action(self, action_id: str) -> "Action":
        """Get one action."""
        found: "Action" = self._call("GET", path("/v1/actions/{}", action_id))
        return found

    def give_feedback(self, action_id: str, body: "Feedback", *, if_match: int | str | None = None) -> "Action":
        """Say how an action was:"""
        found: "Action" = self._call("PATCH", path("/v1/actions/{}/feedback", action_id), body=body, headers={"If-Match": if_match})
        return found

    def create_procedure(self, body: "ProcedureCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Procedure":
        """Keep how something is done."""
        found: "Procedure" = self._call("POST", "/v1/procedures", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_procedures(self, *, agent_id: str | None = None, user_id: str | None = None, name: str | None = None, tag: str | None = None, status: "ProcedureListStatus | None" = None, since: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ProcedurePage":
        """List the procedures that have exactly the owner fields named, newest first; shared ones are not added."""
        found: "ProcedurePage" = self._call("GET", "/v1/procedures", query={"agent_id": agent_id, "user_id": user_id, "name": name, "tag": tag, "status": status, "since": since, "until": until, "limit": limit, "cursor": cursor, "order": order})
        return found

    def search_procedures(self, body: "ProcedureSearch") -> "ProcedureSearchResult":
        """Find procedures for a situation, best first:"""
        found: "ProcedureSearchResult" = self._call("POST", "/v1/procedures/search", body=body)
        return found

    def get_procedure(self, procedure_id: str) -> "Procedure":
        """Get one procedure."""
        found: "Procedure" = self._call("GET", path("/v1/procedures/{}", procedure_id))
        return found

    def update_procedure(self, procedure_id: str, body: "ProcedurePatch", *, if_match: int | str | None = None) -> "Procedure":
        """Refine a procedure:"""
        found: "Procedure" = self._call("PATCH", path("/v1/procedures/{}", procedure_id), body=body, headers={"If-Match": if_match})
        return found

    def delete_procedure(self, procedure_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a procedure, its vector and its history."""
        self._call("DELETE", path("/v1/procedures/{}", procedure_id), headers={"If-Match": if_match})

    def get_procedure_history(self, procedure_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ProcedureVersionPage":
        """List the earlier versions of a procedure, each as it was when it left."""
        found: "ProcedureVersionPage" = self._call("GET", path("/v1/procedures/{}/history", procedure_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def record_outcome(self, procedure_id: str, body: "OutcomeIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "OutcomeRecorded":
        """Say whether a procedure worked this time."""
        found: "OutcomeRecorded" = self._call("POST", path("/v1/procedures/{}/outcomes", procedure_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_users(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ListedUserPage":
        """List everyone of whom anything is stored, by user id."""
        found: "ListedUserPage" = self._call("GET", "/v1/users", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def get_user(self, user_id: str) -> "ListedUser":
        """Get a user of whom anything is stored, with the profile, which is empty if nobody has written one."""
        found: "ListedUser" = self._call("GET", path("/v1/users/{}", user_id))
        return found

    def erase_user(self, user_id: str) -> Receipt | Operation:
        """Erase a user."""
        found: Receipt | Operation = self._call("DELETE", path("/v1/users/{}", user_id))
        return found

    def get_profile(self, user_id: str, *, as_of: str | None = None, known_at: str | None = None) -> "StoredProfile":
        """Get what is known of a user for good."""
        found: "StoredProfile" = self._call("GET", path("/v1/users/{}/profile", user_id), query={"as_of": as_of, "known_at": known_at})
        return found

    def put_profile(self, user_id: str, body: "Profile", *, if_match: int | str | None = None) -> "StoredProfile":
        """Replace a user's profile."""
        found: "StoredProfile" = self._call("PUT", path("/v1/users/{}/profile", user_id), body=body, headers={"If-Match": if_match})
        return found

    def update_profile(self, user_id: str, body: "ProfilePatch", *, if_match: int | str | None = None) -> "StoredProfile":
        """Add to a profile:"""
        found: "StoredProfile" = self._call("PATCH", path("/v1/users/{}/profile", user_id), body=body, headers={"If-Match": if_match})
        return found

    def add_interaction(self, user_id: str, body: "InteractionIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Interaction":
        """Note a conversation in a line; the last 50 are kept."""
        found: "Interaction" = self._call("POST", path("/v1/users/{}/interactions", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_interactions(self, user_id: str) -> "Interactions":
        """List the last 50 interactions of a user, newest first."""
        found: "Interactions" = self._call("GET", path("/v1/users/{}/interactions", user_id))
        return found

    def add_issue(self, user_id: str, body: "IssueIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Issue":
        """Note a problem that the user has."""
        found: "Issue" = self._call("POST", path("/v1/users/{}/issues", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_issues(self, user_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "IssuePage":
        """List the user's problems, newest first."""
        found: "IssuePage" = self._call("GET", path("/v1/users/{}/issues", user_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def update_issue(self, user_id: str, issue_id: str, body: "IssuePatch", *, if_match: int | str | None = None) -> "Issue":
        """Set a problem's status."""
        found: "Issue" = self._call("PATCH", path("/v1/users/{}/issues/{}", user_id, issue_id), body=body, headers={"If-Match": if_match})
        return found

    def add_solution(self, user_id: str, body: "SolutionIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Solution":
        """Note what fixed a problem."""
        found: "Solution" = self._call("POST", path("/v1/users/{}/solutions", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_solutions(self, user_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "SolutionPage":
        """List what has helped this user, newest first."""
        found: "SolutionPage" = self._call("GET", path("/v1/users/{}/solutions", user_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def export_user(self, user_id: str) -> str:
        """Export everything whose owner is this user, as newline-delimited JSON, as far as the key sees it."""
        found: str = self._call("GET", path("/v1/users/{}/export", user_id))
        return found

    def create_agent(self, body: "AgentCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Agent":
        """Register an agent."""
        found: "Agent" = self._call("POST", "/v1/agents", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_agents(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ListedAgentPage":
        """List every agent that is registered or has a record, by agent id."""
        found: "ListedAgentPage" = self._call("GET", "/v1/agents", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def get_agent(self, agent_id: str) -> "Agent":
        """Get an agent with its settings and experience."""
        found: "Agent" = self._call("GET", path("/v1/agents/{}", agent_id))
        return found

    def update_agent(self, agent_id: str, body: "AgentPatch", *, if_match: int | str | None = None) -> "Agent":
        """Change an agent; its memories fade by its own settings."""
        found: "Agent" = self._call("PATCH", path("/v1/agents/{}", agent_id), body=body, headers={"If-Match": if_match})
        return found

    def delete_agent(self, agent_id: str, *, if_match: int | str | None = None) -> None:
        """Delete an agent's settings and experience."""
        self._call("DELETE", path("/v1/agents/{}", agent_id), headers={"If-Match": if_match})

    def get_experience(self, agent_id: str) -> "Experience":
        """Get what the agent has learned from all its users."""
        found: "Experience" = self._call("GET", path("/v1/agents/{}/experience", agent_id))
        return found

    def update_experience(self, agent_id: str, body: "ExperiencePatch", *, if_match: int | str | None = None) -> "Experience":
        """Add lessons; one that is known is seen once more."""
        found: "Experience" = self._call("PATCH", path("/v1/agents/{}/experience", agent_id), body=body, headers={"If-Match": if_match})
        return found

    def copy_experience(self, agent_id: str, body: "ExperienceCopy", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Experience":
        """Copy what another agent has learned:"""
        found: "Experience" = self._call("POST", path("/v1/agents/{}/experience/copy", agent_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def get_experience_prompt(self, agent_id: str, *, user_id: str | None = None, max_tokens: int | None = None, timezone: str | None = None) -> "Prompt":
        """Get experience, profile and memories as delimited blocks for a system prompt, within a token budget."""
        found: "Prompt" = self._call("GET", path("/v1/agents/{}/experience-prompt", agent_id), query={"user_id": user_id, "max_tokens": max_tokens, "timezone": timezone})
        return found

    def list_findings(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, kind: "FindingKind | None" = None, status: "FindingListStatus | None" = None) -> "ReflectionFindingPage":
        """List the findings that have exactly the owner fields named, newest first, each with its evidence."""
        found: "ReflectionFindingPage" = self._call("GET", "/v1/findings", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "kind": kind, "status": status})
        return found

    def get_finding(self, finding_id: str) -> "ReflectionFinding":
        """Get one finding with its evidence."""
        found: "ReflectionFinding" = self._call("GET", path("/v1/findings/{}", finding_id))
        return found

    def reflect(self, body: "ReflectRequest", *, idempotency_key: str | None = None) -> "Operation":
        """Look for contradictions between memories, facts and the profile, and for what is past."""
        found: "Operation" = self._call("POST", "/v1/reflect", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def accept_finding(self, finding_id: str, body: "Acceptance | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ReflectionFinding":
        """Do what a finding proposes, or keep the other one of its two records."""
        found: "ReflectionFinding" = self._call("POST", path("/v1/findings/{}/accept", finding_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def dismiss_finding(self, finding_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ReflectionFinding":
        """Settle a finding."""
        found: "ReflectionFinding" = self._call("POST", path("/v1/findings/{}/dismiss", finding_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def resolve_fact(self, fact_id: str, body: "Resolution", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ResolvedFact":
        """Settle a dispute between facts."""
        found: "ResolvedFact" = self._call("POST", path("/v1/facts/{}/resolve", fact_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def resolve_memory(self, memory_id: str, body: "DisputeResolution", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ResolvedMemory":
        """Settle a dispute between memories."""
        found: "ResolvedMemory" = self._call("POST", path("/v1/memories/{}/resolve", memory_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def list_changes(self, *, after: str | None = None, limit: int | None = None, format: "ChangeFormat | None" = None, agent_id: str | None = None, user_id: str | None = None, kind: str | None = None, type: str | None = None, include: "ChangeInclude | None" = None, last_event_id: str | None = None) -> "ChangePage":
        """List changes of records, the oldest first, as a page or, with `Accept:"""
        found: "ChangePage" = self._call("GET", "/v1/changes", query={"after": after, "limit": limit, "format": format, "agent_id": agent_id, "user_id": user_id, "kind": kind, "type": type, "include": include}, headers={"last-event-id": last_event_id})
        return found

    def list_jobs(self) -> "Jobs":
        """List what runs by the clock, when it last ran and what came of it."""
        found: "Jobs" = self._call("GET", "/v1/jobs")
        return found

    def run_job(self, name: str, body: "JobRun | None" = None, *, idempotency_key: str | None = None) -> "Operation":
        """Run a job now, on this tenant's data, or one user's."""
        found: "Operation" = self._call("POST", path("/v1/jobs/{}/run", name), body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def list_operations(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, session_id: str | None = None, user_id: str | None = None, kind: str | None = None) -> "OperationPage":
        """List the operations, newest first."""
        found: "OperationPage" = self._call("GET", "/v1/operations", query={"limit": limit, "cursor": cursor, "order": order, "session_id": session_id, "user_id": user_id, "kind": kind})
        return found

    def get_operation(self, operation_id: str) -> "Operation":
        """Get how far an operation is, and what came of it."""
        found: "Operation" = self._call("GET", path("/v1/operations/{}", operation_id))
        return found

    def undo_operation(self, operation_id: str, *, idempotency_key: str | None = None) -> "Operation":
        """Undo what an operation did; the answer is the operation that does so."""
        found: "Operation" = self._call("POST", path("/v1/operations/{}/undo", operation_id), headers={"Idempotency-Key": idempotency_key})
        return found

    def get_stats(self) -> "StoreStats":
        """Get the number of records of each kind, their growth, what was recalled lately, and latency."""
        found: "StoreStats" = self._call("GET", "/v1/stats")
        return found

    def create_key(self, body: "KeyCreate", *, idempotency_key: str | None = None) -> "CreatedKey":
        """Make a key for this tenant, with verbs that the calling key has itself."""
        found: "CreatedKey" = self._call("POST", "/v1/keys", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ApiKeyPage":
        """List every key that was ever made for this tenant, newest first."""
        found: "ApiKeyPage" = self._call("GET", "/v1/keys", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    def get_key(self, key_id: str) -> "ApiKey":
        """Get a key without its secret."""
        found: "ApiKey" = self._call("GET", path("/v1/keys/{}", key_id))
        return found

    def rotate_key(self, key_id: str, body: "KeyRotate | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "CreatedKey":
        """Make a key of the same rights in place of this one, which goes on for the overlap."""
        found: "CreatedKey" = self._call("POST", path("/v1/keys/{}/rotate", key_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def revoke_key(self, key_id: str, body: "KeyRevoke | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ApiKey":
        """Take a key back:"""
        found: "ApiKey" = self._call("POST", path("/v1/keys/{}/revoke", key_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    def whoami(self) -> "Caller":
        """Get what the calling key may do:"""
        found: "Caller" = self._call("GET", "/v1/whoami")
        return found

    def list_settings(self) -> "SettingsInForce":
        """List the settings of the process that answers."""
        found: "SettingsInForce" = self._call("GET", "/v1/settings")
        return found

    def list_audit(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, key_id: str | None = None, action: str | None = None, user_id: str | None = None, record_id: str | None = None, since: str | None = None, until: str | None = None) -> "AuditEntryPage":
        """List who did what to which records, newest first."""
        found: "AuditEntryPage" = self._call("GET", "/v1/audit", query={"limit": limit, "cursor": cursor, "order": order, "key_id": key_id, "action": action, "user_id": user_id, "record_id": record_id, "since": since, "until": until})
        return found

    def livez(self) -> "Alive":
        """Tell whether the process answers."""
        found: "Alive" = self._call("GET", "/livez")
        return found

    def readyz(self) -> "Ready":
        """Tell whether requests can be served:"""
        found: "Ready" = self._call("GET", "/readyz")
        return found


class AsyncOperations(AsyncTransport):
    async def search_memories(self, body: "SearchRequest") -> "SearchResult":
        """Find what matters for a query, best first."""
        found: "SearchResult" = await self._call("POST", "/v1/memories/search", body=body)
        return found

    async def create_memory(self, body: "MemoryCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None, if_none_match: str | None = None) -> "MemoryCreated":
        """Remember one thing."""
        found: "MemoryCreated" = await self._call("POST", "/v1/memories", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match, "If-None-Match": if_none_match})
        return found

    async def list_memories(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, memory_type: "MemoryType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, origin: "Origin | None" = None, key: str | None = None, key_prefix: str | None = None, tag: str | None = None, pinned: bool | None = None, since: str | None = None, until: str | None = None, tags: str | None = None, tags_match: "TagsMatch | None" = None, exclude_tags: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, status: "MemoryListStatus | None" = None) -> "MemoryPage":
        """List the memories that have exactly the owner fields named; shared ones are not added."""
        found: "MemoryPage" = await self._call("GET", "/v1/memories", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "memory_type": memory_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "origin": origin, "key": key, "key_prefix": key_prefix, "tag": tag, "pinned": pinned, "since": since, "until": until, "tags": tags, "tags_match": tags_match, "exclude_tags": exclude_tags, "limit": limit, "cursor": cursor, "order": order, "status": status})
        return found

    async def delete_memories(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, memory_type: "MemoryType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, origin: "Origin | None" = None, key: str | None = None, key_prefix: str | None = None, tag: str | None = None, pinned: bool | None = None, since: str | None = None, until: str | None = None, tags: str | None = None, tags_match: "TagsMatch | None" = None, exclude_tags: str | None = None, status: "MemoryListStatus | None" = None) -> "Deleted":
        """Delete all memories that match, with their history."""
        found: "Deleted" = await self._call("DELETE", "/v1/memories", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "memory_type": memory_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "origin": origin, "key": key, "key_prefix": key_prefix, "tag": tag, "pinned": pinned, "since": since, "until": until, "tags": tags, "tags_match": tags_match, "exclude_tags": exclude_tags, "status": status})
        return found

    async def create_memories(self, body: "MemoryBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "MemoryBatchCreated":
        """Remember up to 500 things:"""
        found: "MemoryBatchCreated" = await self._call("POST", "/v1/memories/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def give_memory_feedback(self, body: "FeedbackRequest", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "FeedbackResult":
        """Say which memories helped to answer and which misled."""
        found: "FeedbackResult" = await self._call("POST", "/v1/memories/feedback", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def get_memory(self, memory_id: str) -> "Memory":
        """Get one memory."""
        found: "Memory" = await self._call("GET", path("/v1/memories/{}", memory_id))
        return found

    async def update_memory(self, memory_id: str, body: "MemoryPatch", *, if_match: int | str | None = None) -> "Memory":
        """Change a memory:"""
        found: "Memory" = await self._call("PATCH", path("/v1/memories/{}", memory_id), body=body, headers={"If-Match": if_match})
        return found

    async def delete_memory(self, memory_id: str, *, predecessors: "Predecessors | None" = None, if_match: int | str | None = None) -> None:
        """Delete a memory, its vector and its history."""
        await self._call("DELETE", path("/v1/memories/{}", memory_id), query={"predecessors": predecessors}, headers={"If-Match": if_match})

    async def get_memory_history(self, memory_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "HistoryEntryPage":
        """List the earlier versions of a memory, each as it was when it left."""
        found: "HistoryEntryPage" = await self._call("GET", path("/v1/memories/{}/history", memory_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def assemble_context(self, body: "ContextRequest") -> "Context":
        """Get the right few things for the next prompt, inside a token budget."""
        found: "Context" = await self._call("POST", "/v1/context", body=body)
        return found

    async def create_document(self, content: bytes, media_type: str = "application/octet-stream", *, name: str | None = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, idempotency_key: str | None = None) -> "DocumentAccepted":
        """Remember a file:"""
        found: "DocumentAccepted" = await self._call("POST", "/v1/documents", query={"name": name, "agent_id": agent_id, "user_id": user_id, "metadata": metadata}, body=content, headers={"Content-Type": media_type, "Idempotency-Key": idempotency_key})
        return found

    async def list_documents(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, name: str | None = None) -> "DocumentPage":
        """List the documents, newest first."""
        found: "DocumentPage" = await self._call("GET", "/v1/documents", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "name": name})
        return found

    async def get_document(self, document_id: str) -> "Document":
        """Get a document:"""
        found: "Document" = await self._call("GET", path("/v1/documents/{}", document_id))
        return found

    async def delete_document(self, document_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a document and its passages."""
        await self._call("DELETE", path("/v1/documents/{}", document_id), headers={"If-Match": if_match})

    async def create_session(self, body: "SessionCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Session":
        """Begin a conversation."""
        found: "Session" = await self._call("POST", "/v1/sessions", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_sessions(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, status: "SessionStatus | None" = None) -> "SessionPage":
        """List the sessions, newest first."""
        found: "SessionPage" = await self._call("GET", "/v1/sessions", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "status": status})
        return found

    async def get_session(self, session_id: str) -> "Session":
        """Get one session, without its messages."""
        found: "Session" = await self._call("GET", path("/v1/sessions/{}", session_id))
        return found

    async def update_session(self, session_id: str, body: "SessionPatch", *, if_match: int | str | None = None) -> "Session":
        """Change a session:"""
        found: "Session" = await self._call("PATCH", path("/v1/sessions/{}", session_id), body=body, headers={"If-Match": if_match})
        return found

    async def delete_session(self, session_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a session and its messages."""
        await self._call("DELETE", path("/v1/sessions/{}", session_id), headers={"If-Match": if_match})

    async def append_messages(self, session_id: str, body: "MessagesAppend", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Appended":
        """Append messages in order, all or none."""
        found: "Appended" = await self._call("POST", path("/v1/sessions/{}/messages", session_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_messages(self, session_id: str, *, limit: int | None = None, cursor: str | None = None, last: int | None = None, max_tokens: int | None = None, before_seq: int | None = None, after_seq: int | None = None) -> "MessagePage":
        """List the messages, oldest first:"""
        found: "MessagePage" = await self._call("GET", path("/v1/sessions/{}/messages", session_id), query={"limit": limit, "cursor": cursor, "last": last, "max_tokens": max_tokens, "before_seq": before_seq, "after_seq": after_seq})
        return found

    async def clear_messages(self, session_id: str, *, if_match: int | str | None = None) -> "Deleted":
        """Delete the messages of a session:"""
        found: "Deleted" = await self._call("DELETE", path("/v1/sessions/{}/messages", session_id), headers={"If-Match": if_match})
        return found

    async def update_message(self, session_id: str, seq: int, body: "MessagePatch", *, if_match: int | str | None = None) -> "Message":
        """Edit a message:"""
        found: "Message" = await self._call("PATCH", path("/v1/sessions/{}/messages/{}", session_id, seq), body=body, headers={"If-Match": if_match})
        return found

    async def delete_message(self, session_id: str, seq: int, *, if_match: int | str | None = None) -> None:
        """Delete a message."""
        await self._call("DELETE", path("/v1/sessions/{}/messages/{}", session_id, seq), headers={"If-Match": if_match})

    async def get_session_context(self, session_id: str, *, max_messages: int | None = None, max_tokens: int | None = None) -> "SessionContext":
        """Get the last messages as text for a prompt, within a token budget."""
        found: "SessionContext" = await self._call("GET", path("/v1/sessions/{}/context", session_id), query={"max_messages": max_messages, "max_tokens": max_tokens})
        return found

    async def end_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Operation":
        """End the conversation:"""
        found: "Operation" = await self._call("POST", path("/v1/sessions/{}/end", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def reopen_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Session":
        """Make an ended session take messages again."""
        found: "Session" = await self._call("POST", path("/v1/sessions/{}/reopen", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def get_session_stats(self, session_id: str) -> "SessionStats":
        """Count the messages by role, their tokens and the memories formed, with first and last message."""
        found: "SessionStats" = await self._call("GET", path("/v1/sessions/{}/stats", session_id))
        return found

    async def search_facts(self, body: "FactSearch") -> "FactSearchResult":
        """Find facts by meaning and words, true at `as_of` as far as it was known at `known_at`."""
        found: "FactSearchResult" = await self._call("POST", "/v1/facts/search", body=body)
        return found

    async def assert_fact(self, body: "FactCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> AssertedFact | Operation:
        """Say that something is true."""
        found: AssertedFact | Operation = await self._call("POST", "/v1/facts", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_facts(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, subject: str | None = None, predicate: str | None = None, object: str | None = None, object_type: "ObjectType | None" = None, session_id: str | None = None, after_seq: int | None = None, before_seq: int | None = None, as_of: str | None = None, known_at: str | None = None, timeline: bool | None = None, status: "FactListStatus | None" = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "FactPage":
        """List the facts that have exactly the owner fields named:"""
        found: "FactPage" = await self._call("GET", "/v1/facts", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "subject": subject, "predicate": predicate, "object": object, "object_type": object_type, "session_id": session_id, "after_seq": after_seq, "before_seq": before_seq, "as_of": as_of, "known_at": known_at, "timeline": timeline, "status": status, "limit": limit, "cursor": cursor, "order": order})
        return found

    async def assert_facts(self, body: "FactBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "FactBatchAsserted":
        """Assert up to 500 facts, in their order:"""
        found: "FactBatchAsserted" = await self._call("POST", "/v1/facts/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def get_fact(self, fact_id: str) -> "Fact":
        """Get one fact, whatever became of it."""
        found: "Fact" = await self._call("GET", path("/v1/facts/{}", fact_id))
        return found

    async def delete_fact(self, fact_id: str, *, if_match: int | str | None = None) -> None:
        """Remove an assertion and its history as if it had never been made."""
        await self._call("DELETE", path("/v1/facts/{}", fact_id), headers={"If-Match": if_match})

    async def get_fact_history(self, fact_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "FactPage":
        """List all that was ever stated of the same assertion, today's facts included."""
        found: "FactPage" = await self._call("GET", path("/v1/facts/{}/history", fact_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def retract_fact(self, fact_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Fact":
        """Take back what should not have been said:"""
        found: "Fact" = await self._call("POST", path("/v1/facts/{}/retract", fact_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_entities(self, *, prefix: str | None = None, limit: int | None = None, cursor: str | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "EntityList":
        """List whom and what the facts are about."""
        found: "EntityList" = await self._call("GET", "/v1/graph/entities", query={"prefix": prefix, "limit": limit, "cursor": cursor, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    async def get_neighbors(self, name: str, *, depth: int | None = None, predicate: str | None = None, max_nodes: int | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "Neighbors":
        """Get what an entity is linked with, in up to three hops, both ways, by facts true at that time."""
        found: "Neighbors" = await self._call("GET", path("/v1/graph/entities/{}/neighbors", name), query={"depth": depth, "predicate": predicate, "max_nodes": max_nodes, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    async def list_aliases(self, name: str, *, status: "AliasListStatus | None" = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "AliasList":
        """List the other names of an entity, and those that may be."""
        found: "AliasList" = await self._call("GET", path("/v1/graph/entities/{}/aliases", name), query={"status": status, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    async def declare_aliases(self, name: str, body: "AliasesCreate", *, idempotency_key: str | None = None) -> "AliasesChanged":
        """Say that names mean the same entity."""
        found: "AliasesChanged" = await self._call("POST", path("/v1/graph/entities/{}/aliases", name), body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def dismiss_alias(self, name: str, *, alias: str | None = None, agent_id: str | None = None, user_id: str | None = None) -> "AliasesChanged":
        """Say that two names are not the same entity."""
        found: "AliasesChanged" = await self._call("DELETE", path("/v1/graph/entities/{}/aliases", name), query={"alias": alias, "agent_id": agent_id, "user_id": user_id})
        return found

    async def query_graph(self, body: "GraphQuery") -> "GraphAnswer":
        """Where a chain of predicates leads from an entity:"""
        found: "GraphAnswer" = await self._call("POST", "/v1/graph/query", body=body)
        return found

    async def list_upcoming(self, *, agent_id: str | None = None, user_id: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None) -> "UpcomingItemPage":
        """List what is coming, the soonest first:"""
        found: "UpcomingItemPage" = await self._call("GET", "/v1/upcoming", query={"agent_id": agent_id, "user_id": user_id, "until": until, "limit": limit, "cursor": cursor})
        return found

    async def get_entity(self, name: str, *, limit: int | None = None, agent_id: str | None = None, user_id: str | None = None, include_shared: bool | None = None, as_of: str | None = None, known_at: str | None = None) -> "EntityPage":
        """Get what is known of an entity:"""
        found: "EntityPage" = await self._call("GET", path("/v1/graph/entities/{}", name), query={"limit": limit, "agent_id": agent_id, "user_id": user_id, "include_shared": include_shared, "as_of": as_of, "known_at": known_at})
        return found

    async def get_related_memories(self, memory_id: str, *, limit: int | None = None) -> "RelatedMemories":
        """List memories related to one, each with the reasons."""
        found: "RelatedMemories" = await self._call("GET", path("/v1/memories/{}/related", memory_id), query={"limit": limit})
        return found

    async def forget_memories(self, body: "ForgetRequest", *, idempotency_key: str | None = None) -> ForgetPlan | Operation:
        """Forget memories by policy."""
        found: ForgetPlan | Operation = await self._call("POST", "/v1/memories/forget", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def extract_memories(self, body: "ExtractRequest", *, idempotency_key: str | None = None) -> Extracted | Operation:
        """Extract memories from messages:"""
        found: Extracted | Operation = await self._call("POST", "/v1/memories/extract", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def summarize_session(self, session_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Operation":
        """Write the session's summary anew from all its messages."""
        found: "Operation" = await self._call("POST", path("/v1/sessions/{}/summarize", session_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def create_task(self, body: "TaskCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Task":
        """Begin a task."""
        found: "Task" = await self._call("POST", "/v1/tasks", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_tasks(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, session_id: str | None = None, status: "TaskStatus | None" = None) -> "TaskPage":
        """List the tasks, newest first."""
        found: "TaskPage" = await self._call("GET", "/v1/tasks", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "session_id": session_id, "status": status})
        return found

    async def get_task(self, task_id: str) -> "Task":
        """Get a task with all its state."""
        found: "Task" = await self._call("GET", path("/v1/tasks/{}", task_id))
        return found

    async def update_task(self, task_id: str, body: "TaskPatch", *, if_match: int | str | None = None) -> "TaskPatched":
        """Change a task."""
        found: "TaskPatched" = await self._call("PATCH", path("/v1/tasks/{}", task_id), body=body, headers={"If-Match": if_match})
        return found

    async def delete_task(self, task_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a task and its checkpoints."""
        await self._call("DELETE", path("/v1/tasks/{}", task_id), headers={"If-Match": if_match})

    async def update_task_context(self, task_id: str, body: "JsonObject", *, if_match: int | str | None = None) -> "Task":
        """Merge into the context (JSON merge patch, RFC 7396):"""
        found: "Task" = await self._call("PATCH", path("/v1/tasks/{}/context", task_id), body=body, headers={"If-Match": if_match})
        return found

    async def put_task_plan(self, task_id: str, body: "Plan", *, if_match: int | str | None = None) -> "Task":
        """Replace a task's plan."""
        found: "Task" = await self._call("PUT", path("/v1/tasks/{}/plan", task_id), body=body, headers={"If-Match": if_match})
        return found

    async def update_task_step(self, task_id: str, index: int, body: "StepPatch", *, if_match: int | str | None = None) -> "Task":
        """Set a step's status and result."""
        found: "Task" = await self._call("PATCH", path("/v1/tasks/{}/plan/{}", task_id, index), body=body, headers={"If-Match": if_match})
        return found

    async def add_task_note(self, task_id: str, body: "NoteIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Jotted":
        """Jot down a note."""
        found: "Jotted" = await self._call("POST", path("/v1/tasks/{}/scratchpad", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def add_task_evidence(self, task_id: str, body: "EvidenceIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "EvidenceAdded":
        """Add a piece of evidence."""
        found: "EvidenceAdded" = await self._call("POST", path("/v1/tasks/{}/evidence", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def get_working_memory(self, task_id: str, *, max_tokens: int | None = None) -> "WorkingMemory":
        """Get the task as text for a prompt, within a token budget."""
        found: "WorkingMemory" = await self._call("GET", path("/v1/tasks/{}/working-memory", task_id), query={"max_tokens": max_tokens})
        return found

    async def create_checkpoint(self, task_id: str, body: "CheckpointIn | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Checkpoint":
        """Keep the task's state as it is now."""
        found: "Checkpoint" = await self._call("POST", path("/v1/tasks/{}/checkpoints", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_checkpoints(self, task_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "CheckpointPage":
        """List the checkpoints of a task, newest first."""
        found: "CheckpointPage" = await self._call("GET", path("/v1/tasks/{}/checkpoints", task_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def get_checkpoint(self, task_id: str, seq: int) -> "Checkpoint":
        """Get one checkpoint."""
        found: "Checkpoint" = await self._call("GET", path("/v1/tasks/{}/checkpoints/{}", task_id, seq))
        return found

    async def restore_task(self, task_id: str, body: "Restore | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Task":
        """Bring a checkpoint's state back, in one write; the restore and what was there before are kept as checkpoints."""
        found: "Task" = await self._call("POST", path("/v1/tasks/{}/restore", task_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def log_action(self, body: "ActionCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Action":
        """Log what an agent did:"""
        found: "Action" = await self._call("POST", "/v1/actions", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_actions(self, *, agent_id: str | None = None, user_id: str | None = None, metadata: str | None = None, filters: str | None = None, session_id: str | None = None, task_id: str | None = None, event_type: str | None = None, action_type: str | None = None, outcome: "Outcome | None" = None, entity: str | None = None, tag: str | None = None, since: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ActionPage":
        """List the actions by the time they happened, newest first."""
        found: "ActionPage" = await self._call("GET", "/v1/actions", query={"agent_id": agent_id, "user_id": user_id, "metadata": metadata, "filters": filters, "session_id": session_id, "task_id": task_id, "event_type": event_type, "action_type": action_type, "outcome": outcome, "entity": entity, "tag": tag, "since": since, "until": until, "limit": limit, "cursor": cursor, "order": order})
        return found

    async def log_actions(self, body: "ActionBatch", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ActionBatchCreated":
        """Log up to 500 actions:"""
        found: "ActionBatchCreated" = await self._call("POST", "/v1/actions/batch", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def search_actions(self, body: "ActionSearch") -> "ActionSearchResult":
        """Find similar past actions, by meaning and words."""
        found: "ActionSearchResult" = await self._call("POST", "/v1/actions/search", body=body)
        return found

    async def get_action_stats(self, *, agent_id: str | None = None, user_id: str | None = None, action_type: str | None = None, window_days: int | None = None, group_by: "GroupBy | None" = None, tz: str | None = None) -> "Stats":
        """Count how often an agent succeeds and how long it takes, with 95 % Wilson intervals."""
        found: "Stats" = await self._call("GET", "/v1/actions/stats", query={"agent_id": agent_id, "user_id": user_id, "action_type": action_type, "window_days": window_days, "group_by": group_by, "tz": tz})
        return found

    async def get_action(self, action_id: str) -> "Action":
        """Get one action."""
        found: "Action" = await self._call("GET", path("/v1/actions/{}", action_id))
        return found

    async def give_feedback(self, action_id: str, body: "Feedback", *, if_match: int | str | None = None) -> "Action":
        """Say how an action was:"""
        found: "Action" = await self._call("PATCH", path("/v1/actions/{}/feedback", action_id), body=body, headers={"If-Match": if_match})
        return found

    async def create_procedure(self, body: "ProcedureCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Procedure":
        """Keep how something is done."""
        found: "Procedure" = await self._call("POST", "/v1/procedures", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_procedures(self, *, agent_id: str | None = None, user_id: str | None = None, name: str | None = None, tag: str | None = None, status: "ProcedureListStatus | None" = None, since: str | None = None, until: str | None = None, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ProcedurePage":
        """List the procedures that have exactly the owner fields named, newest first; shared ones are not added."""
        found: "ProcedurePage" = await self._call("GET", "/v1/procedures", query={"agent_id": agent_id, "user_id": user_id, "name": name, "tag": tag, "status": status, "since": since, "until": until, "limit": limit, "cursor": cursor, "order": order})
        return found

    async def search_procedures(self, body: "ProcedureSearch") -> "ProcedureSearchResult":
        """Find procedures for a situation, best first:"""
        found: "ProcedureSearchResult" = await self._call("POST", "/v1/procedures/search", body=body)
        return found

    async def get_procedure(self, procedure_id: str) -> "Procedure":
        """Get one procedure."""
        found: "Procedure" = await self._call("GET", path("/v1/procedures/{}", procedure_id))
        return found

    async def update_procedure(self, procedure_id: str, body: "ProcedurePatch", *, if_match: int | str | None = None) -> "Procedure":
        """Refine a procedure:"""
        found: "Procedure" = await self._call("PATCH", path("/v1/procedures/{}", procedure_id), body=body, headers={"If-Match": if_match})
        return found

    async def delete_procedure(self, procedure_id: str, *, if_match: int | str | None = None) -> None:
        """Delete a procedure, its vector and its history."""
        await self._call("DELETE", path("/v1/procedures/{}", procedure_id), headers={"If-Match": if_match})

    async def get_procedure_history(self, procedure_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ProcedureVersionPage":
        """List the earlier versions of a procedure, each as it was when it left."""
        found: "ProcedureVersionPage" = await self._call("GET", path("/v1/procedures/{}/history", procedure_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def record_outcome(self, procedure_id: str, body: "OutcomeIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "OutcomeRecorded":
        """Say whether a procedure worked this time."""
        found: "OutcomeRecorded" = await self._call("POST", path("/v1/procedures/{}/outcomes", procedure_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_users(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ListedUserPage":
        """List everyone of whom anything is stored, by user id."""
        found: "ListedUserPage" = await self._call("GET", "/v1/users", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def get_user(self, user_id: str) -> "ListedUser":
        """Get a user of whom anything is stored, with the profile, which is empty if nobody has written one."""
        found: "ListedUser" = await self._call("GET", path("/v1/users/{}", user_id))
        return found

    async def erase_user(self, user_id: str) -> Receipt | Operation:
        """Erase a user."""
        found: Receipt | Operation = await self._call("DELETE", path("/v1/users/{}", user_id))
        return found

    async def get_profile(self, user_id: str, *, as_of: str | None = None, known_at: str | None = None) -> "StoredProfile":
        """Get what is known of a user for good."""
        found: "StoredProfile" = await self._call("GET", path("/v1/users/{}/profile", user_id), query={"as_of": as_of, "known_at": known_at})
        return found

    async def put_profile(self, user_id: str, body: "Profile", *, if_match: int | str | None = None) -> "StoredProfile":
        """Replace a user's profile."""
        found: "StoredProfile" = await self._call("PUT", path("/v1/users/{}/profile", user_id), body=body, headers={"If-Match": if_match})
        return found

    async def update_profile(self, user_id: str, body: "ProfilePatch", *, if_match: int | str | None = None) -> "StoredProfile":
        """Add to a profile:"""
        found: "StoredProfile" = await self._call("PATCH", path("/v1/users/{}/profile", user_id), body=body, headers={"If-Match": if_match})
        return found

    async def add_interaction(self, user_id: str, body: "InteractionIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Interaction":
        """Note a conversation in a line; the last 50 are kept."""
        found: "Interaction" = await self._call("POST", path("/v1/users/{}/interactions", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_interactions(self, user_id: str) -> "Interactions":
        """List the last 50 interactions of a user, newest first."""
        found: "Interactions" = await self._call("GET", path("/v1/users/{}/interactions", user_id))
        return found

    async def add_issue(self, user_id: str, body: "IssueIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Issue":
        """Note a problem that the user has."""
        found: "Issue" = await self._call("POST", path("/v1/users/{}/issues", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_issues(self, user_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "IssuePage":
        """List the user's problems, newest first."""
        found: "IssuePage" = await self._call("GET", path("/v1/users/{}/issues", user_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def update_issue(self, user_id: str, issue_id: str, body: "IssuePatch", *, if_match: int | str | None = None) -> "Issue":
        """Set a problem's status."""
        found: "Issue" = await self._call("PATCH", path("/v1/users/{}/issues/{}", user_id, issue_id), body=body, headers={"If-Match": if_match})
        return found

    async def add_solution(self, user_id: str, body: "SolutionIn", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Solution":
        """Note what fixed a problem."""
        found: "Solution" = await self._call("POST", path("/v1/users/{}/solutions", user_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_solutions(self, user_id: str, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "SolutionPage":
        """List what has helped this user, newest first."""
        found: "SolutionPage" = await self._call("GET", path("/v1/users/{}/solutions", user_id), query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def export_user(self, user_id: str) -> str:
        """Export everything whose owner is this user, as newline-delimited JSON, as far as the key sees it."""
        found: str = await self._call("GET", path("/v1/users/{}/export", user_id))
        return found

    async def create_agent(self, body: "AgentCreate", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Agent":
        """Register an agent."""
        found: "Agent" = await self._call("POST", "/v1/agents", body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_agents(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ListedAgentPage":
        """List every agent that is registered or has a record, by agent id."""
        found: "ListedAgentPage" = await self._call("GET", "/v1/agents", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def get_agent(self, agent_id: str) -> "Agent":
        """Get an agent with its settings and experience."""
        found: "Agent" = await self._call("GET", path("/v1/agents/{}", agent_id))
        return found

    async def update_agent(self, agent_id: str, body: "AgentPatch", *, if_match: int | str | None = None) -> "Agent":
        """Change an agent; its memories fade by its own settings."""
        found: "Agent" = await self._call("PATCH", path("/v1/agents/{}", agent_id), body=body, headers={"If-Match": if_match})
        return found

    async def delete_agent(self, agent_id: str, *, if_match: int | str | None = None) -> None:
        """Delete an agent's settings and experience."""
        await self._call("DELETE", path("/v1/agents/{}", agent_id), headers={"If-Match": if_match})

    async def get_experience(self, agent_id: str) -> "Experience":
        """Get what the agent has learned from all its users."""
        found: "Experience" = await self._call("GET", path("/v1/agents/{}/experience", agent_id))
        return found

    async def update_experience(self, agent_id: str, body: "ExperiencePatch", *, if_match: int | str | None = None) -> "Experience":
        """Add lessons; one that is known is seen once more."""
        found: "Experience" = await self._call("PATCH", path("/v1/agents/{}/experience", agent_id), body=body, headers={"If-Match": if_match})
        return found

    async def copy_experience(self, agent_id: str, body: "ExperienceCopy", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "Experience":
        """Copy what another agent has learned:"""
        found: "Experience" = await self._call("POST", path("/v1/agents/{}/experience/copy", agent_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def get_experience_prompt(self, agent_id: str, *, user_id: str | None = None, max_tokens: int | None = None, timezone: str | None = None) -> "Prompt":
        """Get experience, profile and memories as delimited blocks for a system prompt, within a token budget."""
        found: "Prompt" = await self._call("GET", path("/v1/agents/{}/experience-prompt", agent_id), query={"user_id": user_id, "max_tokens": max_tokens, "timezone": timezone})
        return found

    async def list_findings(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, agent_id: str | None = None, user_id: str | None = None, kind: "FindingKind | None" = None, status: "FindingListStatus | None" = None) -> "ReflectionFindingPage":
        """List the findings that have exactly the owner fields named, newest first, each with its evidence."""
        found: "ReflectionFindingPage" = await self._call("GET", "/v1/findings", query={"limit": limit, "cursor": cursor, "order": order, "agent_id": agent_id, "user_id": user_id, "kind": kind, "status": status})
        return found

    async def get_finding(self, finding_id: str) -> "ReflectionFinding":
        """Get one finding with its evidence."""
        found: "ReflectionFinding" = await self._call("GET", path("/v1/findings/{}", finding_id))
        return found

    async def reflect(self, body: "ReflectRequest", *, idempotency_key: str | None = None) -> "Operation":
        """Look for contradictions between memories, facts and the profile, and for what is past."""
        found: "Operation" = await self._call("POST", "/v1/reflect", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def accept_finding(self, finding_id: str, body: "Acceptance | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ReflectionFinding":
        """Do what a finding proposes, or keep the other one of its two records."""
        found: "ReflectionFinding" = await self._call("POST", path("/v1/findings/{}/accept", finding_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def dismiss_finding(self, finding_id: str, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ReflectionFinding":
        """Settle a finding."""
        found: "ReflectionFinding" = await self._call("POST", path("/v1/findings/{}/dismiss", finding_id), headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def resolve_fact(self, fact_id: str, body: "Resolution", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ResolvedFact":
        """Settle a dispute between facts."""
        found: "ResolvedFact" = await self._call("POST", path("/v1/facts/{}/resolve", fact_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def resolve_memory(self, memory_id: str, body: "DisputeResolution", *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ResolvedMemory":
        """Settle a dispute between memories."""
        found: "ResolvedMemory" = await self._call("POST", path("/v1/memories/{}/resolve", memory_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def list_changes(self, *, after: str | None = None, limit: int | None = None, format: "ChangeFormat | None" = None, agent_id: str | None = None, user_id: str | None = None, kind: str | None = None, type: str | None = None, include: "ChangeInclude | None" = None, last_event_id: str | None = None) -> "ChangePage":
        """List changes of records, the oldest first, as a page or, with `Accept:"""
        found: "ChangePage" = await self._call("GET", "/v1/changes", query={"after": after, "limit": limit, "format": format, "agent_id": agent_id, "user_id": user_id, "kind": kind, "type": type, "include": include}, headers={"last-event-id": last_event_id})
        return found

    async def list_jobs(self) -> "Jobs":
        """List what runs by the clock, when it last ran and what came of it."""
        found: "Jobs" = await self._call("GET", "/v1/jobs")
        return found

    async def run_job(self, name: str, body: "JobRun | None" = None, *, idempotency_key: str | None = None) -> "Operation":
        """Run a job now, on this tenant's data, or one user's."""
        found: "Operation" = await self._call("POST", path("/v1/jobs/{}/run", name), body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def list_operations(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, session_id: str | None = None, user_id: str | None = None, kind: str | None = None) -> "OperationPage":
        """List the operations, newest first."""
        found: "OperationPage" = await self._call("GET", "/v1/operations", query={"limit": limit, "cursor": cursor, "order": order, "session_id": session_id, "user_id": user_id, "kind": kind})
        return found

    async def get_operation(self, operation_id: str) -> "Operation":
        """Get how far an operation is, and what came of it."""
        found: "Operation" = await self._call("GET", path("/v1/operations/{}", operation_id))
        return found

    async def undo_operation(self, operation_id: str, *, idempotency_key: str | None = None) -> "Operation":
        """Undo what an operation did; the answer is the operation that does so."""
        found: "Operation" = await self._call("POST", path("/v1/operations/{}/undo", operation_id), headers={"Idempotency-Key": idempotency_key})
        return found

    async def get_stats(self) -> "StoreStats":
        """Get the number of records of each kind, their growth, what was recalled lately, and latency."""
        found: "StoreStats" = await self._call("GET", "/v1/stats")
        return found

    async def create_key(self, body: "KeyCreate", *, idempotency_key: str | None = None) -> "CreatedKey":
        """Make a key for this tenant, with verbs that the calling key has itself."""
        found: "CreatedKey" = await self._call("POST", "/v1/keys", body=body, headers={"Idempotency-Key": idempotency_key})
        return found

    async def list_keys(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None) -> "ApiKeyPage":
        """List every key that was ever made for this tenant, newest first."""
        found: "ApiKeyPage" = await self._call("GET", "/v1/keys", query={"limit": limit, "cursor": cursor, "order": order})
        return found

    async def get_key(self, key_id: str) -> "ApiKey":
        """Get a key without its secret."""
        found: "ApiKey" = await self._call("GET", path("/v1/keys/{}", key_id))
        return found

    async def rotate_key(self, key_id: str, body: "KeyRotate | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "CreatedKey":
        """Make a key of the same rights in place of this one, which goes on for the overlap."""
        found: "CreatedKey" = await self._call("POST", path("/v1/keys/{}/rotate", key_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def revoke_key(self, key_id: str, body: "KeyRevoke | None" = None, *, idempotency_key: str | None = None, if_match: int | str | None = None) -> "ApiKey":
        """Take a key back:"""
        found: "ApiKey" = await self._call("POST", path("/v1/keys/{}/revoke", key_id), body=body, headers={"Idempotency-Key": idempotency_key, "If-Match": if_match})
        return found

    async def whoami(self) -> "Caller":
        """Get what the calling key may do:"""
        found: "Caller" = await self._call("GET", "/v1/whoami")
        return found

    async def list_settings(self) -> "SettingsInForce":
        """List the settings of the process that answers."""
        found: "SettingsInForce" = await self._call("GET", "/v1/settings")
        return found

    async def list_audit(self, *, limit: int | None = None, cursor: str | None = None, order: "ListOrder | None" = None, key_id: str | None = None, action: str | None = None, user_id: str | None = None, record_id: str | None = None, since: str | None = None, until: str | None = None) -> "AuditEntryPage":
        """List who did what to which records, newest first."""
        found: "AuditEntryPage" = await self._call("GET", "/v1/audit", query={"limit": limit, "cursor": cursor, "order": order, "key_id": key_id, "action": action, "user_id": user_id, "record_id": record_id, "since": since, "until": until})
        return found

    async def livez(self) -> "Alive":
        """Tell whether the process answers."""
        found: "Alive" = await self._call("GET", "/livez")
        return found

    async def readyz(self) -> "Ready":
        """Tell whether requests can be served:"""
        found: "Ready" = await self._call("GET", "/readyz")
        return found
