"""Context source of what is uncertain: open findings say what two records state differently until somebody settles it.

Findings that the query does not touch are read, too: texts of other sections that repeat what they name are marked.
"""

from collections.abc import Mapping, Sequence

from app.context.rendering import one_line
from app.context.source import (
    Candidate,
    ContextSource,
    JudgedStatement,
    SourceRequest,
    SourceResult,
    same_memory,
    same_text,
    search,
    visible,
)
from app.core.clock import rfc3339
from app.errors import RecalldError
from app.facts.repository import of_partitions
from app.findings import service as findings
from app.findings.replacing import replaced
from app.findings.schemas import FindingRecord, evidence_names, is_doubt
from app.memories.repository import MemoryRepository, told_at
from app.memories.schemas import HISTORY, MEMORIES, RULE_MARK, EvidenceName, MemoryRecord
from app.storage.repository import Repository
from app.storage.schema import In, both
from app.storage.text import text_ids

MOST_VERSIONS = 200
"""The number of earlier texts of shortened memories that are looked through, the latest ones."""
MOST_OPEN = 100
"""The number of findings that are looked at, the latest ones."""
NEAR = 10
"""The number of memories nearest to the query whose findings are shown."""
SHOWN_CHARACTERS = 200
"""Longer texts are cut, and their memories may stand in their own section, too."""


async def gather_uncertain(request: SourceRequest) -> SourceResult:
    """Returns the open findings of a judge, and those about facts in conflict, that touch the query: by a word of their
    evidence, or because a memory of theirs is among the nearest ones. Without open findings nothing is searched. A
    finding whose link counts (`app/findings/replacing.py`) is not uncertain: its earlier statement is marked."""
    store, scope, doubts = request.resources.store, request.scope, await _doubts(request)
    if not doubts:
        return SourceResult()
    records = await findings.EvidenceReader(store, scope, rfc3339(request.now)).read(
        name for finding in doubts for name in evidence_names(finding)
    )
    opened = [
        finding
        for finding in doubts
        if finding["status"] == "open"
        and findings.whole(finding, records)
        and finding["trust"] >= (request.body.min_trust or 0)
        and all(records[name].said_at <= request.as_of for name in evidence_names(finding))
    ]
    # of an open finding whose earlier memory is linked with the later statement, nothing is uncertain
    earlier = dict.fromkeys(evidence_names(finding)[0] for finding in opened)
    memories = [record.memory for name in earlier if isinstance(record := records[name], findings.MemoryEvidence)]
    linked = await replaced(store, scope, request.viewpoint, memories)
    # {(("memory", "mem_1"), ("memory", "mem_2")), …}: the names of the earlier and the later statement
    linked_pairs = {(("memory", statement.memory_id), statement.later.name) for statement in linked}
    uncertain = [finding for finding in opened if tuple(evidence_names(finding)) not in linked_pairs]
    judged = [JudgedStatement.of_replaced(statement) for statement in linked]
    judged += [statement for finding in uncertain for statement in _uncertain_statements(finding, records)]
    judged += await _accepted_statements(request, [finding for finding in doubts if finding["status"] == "accepted"])
    if not uncertain:
        return SourceResult(judged=judged)

    where, keep = visible(request)
    try:
        retrieved = await search(request, MEMORIES, where, NEAR, keep=keep)
        nearest, warnings, faults = {hit.doc["memory_id"] for hit in retrieved.hits}, retrieved.warnings, []
    except RecalldError as error:
        nearest, warnings, faults = set(), [], [error]
    query_terms = set(text_ids(request.body.query).tolist())
    touched = list[tuple[int, Candidate]]()
    for finding in uncertain:
        both_records = [records[name] for name in evidence_names(finding)]
        shared = sum(len(query_terms.intersection(text_ids(record.text).tolist())) for record in both_records)
        if shared or any(record.id in nearest for record in both_records):
            touched.append((-shared, _item(finding, both_records, request)))
    items = [item for _, item in sorted(touched, key=lambda pair: pair[0])]
    # without `query_evidence`: the section of memories, which searches the same collection, returns it
    return SourceResult(items, warnings=warnings, judged=judged, faults=faults)


async def _doubts(request: SourceRequest) -> list[FindingRecord]:
    """Returns the latest findings, open or accepted, which say that two records cannot both hold."""
    repository = findings.FindingRepository(request.resources.store, request.scope)
    still_counts = both(In("status", ("open", "accepted")), In("kind", ("contradiction", "stale")))
    found = [
        finding
        for of_user in of_partitions(request.partitions)  # one after the other: an index finds those of each user
        for finding in await repository.find(both(of_user, still_counts), limit=MOST_OPEN)
    ]
    found.sort(key=lambda finding: (finding["created_at"], finding["finding_id"]), reverse=True)
    return [finding for finding in found[:MOST_OPEN] if is_doubt(finding)]


def _uncertain_statements(
    finding: FindingRecord, records: Mapping[findings.Name, findings.EvidenceRecord]
) -> list[JudgedStatement]:
    """Returns each sentence of an open finding with the other one."""
    earlier, later = (records[name] for name in evidence_names(finding))
    before, after = map(findings.quoted, finding["evidence"], (earlier.text, later.text))
    return [
        JudgedStatement(earlier.id, before, after, later.said_at, other_is_later=True),
        JudgedStatement(later.id, after, before, earlier.said_at, other_is_later=False),
    ]


async def _accepted_statements(request: SourceRequest, accepted: Sequence[FindingRecord]) -> list[JudgedStatement]:
    """Returns the statements that accepted findings replaced. Memories and summaries that repeat them may still have
    them.

    The evidence of a finding names its memories, each with a fingerprint of its text (`mark`, no mark of a prompt).
    `proposal` says what stays: `{"action": "supersede", "keep": {"id": "mem_2", …}, "retire": [{"id": "mem_1", …}]}`.
    """
    replacements = [
        finding
        for finding in accepted
        if finding["proposal"]["action"] == "supersede"
        and {named["kind"] for named in finding["evidence"]} == {"memory"}
    ]
    if not replacements:
        return []
    memories = await MemoryRepository(request.resources.store, request.scope).get_many(
        [named["id"] for finding in replacements for named in finding["evidence"]]
    )

    # shortened since: {"id": "mem_1", "mark": "9f…" (of its text now), "judged": {"mark": "a1…", "span": [0, 14]}}
    cut = tuple(named["id"] for finding in replacements for named in finding["evidence"] if "judged" in named)
    past = Repository(request.resources.store, request.scope, HISTORY)
    texts = {
        (version["record_id"], findings.fingerprint_of(version["record"]["content"])): version["record"]["content"]
        for version in (await past.find(In("record_id", cut), limit=MOST_VERSIONS) if cut else ())
    }

    def as_judged(named: EvidenceName) -> MemoryRecord | None:
        """Returns the memory that a finding names, with the text that was judged, if that is still its text or if the
        finding has changed it."""
        memory = memories.get(named["id"])
        if memory is None or findings.fingerprint_of(memory["content"]) != named["mark"]:
            return None
        judged = named.get("judged", named)
        return memory | {"content": texts.get((named["id"], judged["mark"]), memory["content"])}

    statements = list[JudgedStatement]()
    for finding in replacements:
        evidence = {named["id"]: named for named in finding["evidence"]}
        keep = finding["proposal"]["keep"]
        if keep is None:
            continue
        named_later = evidence[keep["id"]]
        later = as_judged(named_later)
        if later is None or (said_at := told_at(later)) > request.as_of:
            continue
        later_words = findings.quoted(named_later.get("judged", named_later), later["content"])
        for named in (evidence[retired["id"]] for retired in finding["proposal"]["retire"]):
            if (memory := as_judged(named)) is not None:
                words = findings.quoted(named.get("judged", named), memory["content"])
                statements.append(
                    JudgedStatement(named["id"], words, later_words, said_at, other_is_later=True, replaced=True)
                )
    return statements


def _item(finding: FindingRecord, both_records: Sequence[findings.EvidenceRecord], request: SourceRequest) -> Candidate:
    """Returns a line such as "uncertain: I live in Rome. (2026-01-05) or, later: I now live in Oslo. (2026-05-05)"."""
    quoted_records = [
        (findings.quoted(named, record.text), record)
        for named, record in zip(finding["evidence"], both_records, strict=True)
    ]
    text = " or, later: ".join(
        f"{one_line(quote, SHOWN_CHARACTERS)} ({request.day(record.said_at)})" for quote, record in quoted_records
    )
    keys = frozenset(key for quote, record in quoted_records if quote == record.text for key in _keys(record))
    return Candidate(finding["finding_id"], "finding", text, prefix="uncertain: ", keys=keys)


def _keys(record: findings.EvidenceRecord) -> tuple[str, ...]:
    """Returns the keys by which a memory or fact that is shown here is not shown again. Rules and long texts keep their
    own place."""
    is_short = len(record.text) <= SHOWN_CHARACTERS
    if isinstance(record, findings.MemoryEvidence) and is_short and record.memory.get("standing") != RULE_MARK:
        return (same_memory(record.id),)
    return (same_text(record.text),) if record.kind == "fact" else ()


UNCERTAIN_SOURCE = ContextSource("uncertain", "Uncertain", gather_uncertain, default_limit=10, share=0.1)
