"""Candidates: pairs of near records that a judge is asked about, by the vectors of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.core.work import in_turn
from app.facts.schemas import FACTS
from app.findings.service import EvidenceRecord, FactEvidence, MemoryEvidence, TextEvidence, facts_of_one_group
from app.memories.schemas import MEMORIES
from app.retrieval.model_weights import weights_for
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Collection
from app.storage.scope import Partition
from app.storage.search import SearchQuery

T = TypeVar("T", bound=TextEvidence)

NEIGHBOURS = 6
"""The number of nearest records that each record is paired with."""
FETCHED = 200
"""Documents that are read from the store at once."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two near records. `earlier` was said first."""

    earlier: TextEvidence
    later: TextEvidence
    cosine: float


async def candidates(
    store: Store, tenant: str, partitions: Sequence[Partition], model: str, records: Sequence[EvidenceRecord]
) -> list[CandidatePair]:
    """Returns the pairs of near records, the nearest first. Only reads.

    Args:
        store: The store, whose vectors are compared.
        tenant: The tenant.
        partitions: The partitions of the records.
        model: The embedding model.
        records: The records that may be paired: memories and facts. Of a record without a vector no pair is made.
    """
    memories = {record.id: record for record in records if isinstance(record, MemoryEvidence)}
    facts = {record.id: record for record in records if isinstance(record, FactEvidence)}
    rows: list[tuple[TextEvidence, NDArray[np.float32]]] = [
        *await _vectors(store, tenant, partitions, model, MEMORIES, memories),
        *await _vectors(store, tenant, partitions, model, FACTS, facts),
    ]
    if len(rows) < 2:
        return []
    vectors = np.array([vector for _, vector in rows], np.float32)
    return await in_turn(lambda: _near([record for record, _ in rows], vectors, weights_for(model).unrelated))


async def _vectors(
    store: Store,
    tenant: str,
    partitions: Sequence[Partition],
    model: str,
    collection: Collection,
    wanted: Mapping[str, T],
) -> list[tuple[T, NDArray[np.float32]]]:
    """Returns the wanted records, by id, that have a vector of the model, each with it, of unit length."""
    if not wanted:
        return []
    terms = np.empty(0, np.uint32)
    query = SearchQuery(tenant, tuple(partitions), EVERYTHING, None, model, terms, vectors=True)
    columns = await store.search(collection, query)
    if columns.vectors is None:
        return []
    there = np.flatnonzero(columns.vectors.any(axis=1))
    there = there[np.argsort(-columns.time[there], kind="stable")]
    rows: list[tuple[T, NDArray[np.float32]]] = []
    for start in range(0, len(there), FETCHED):
        part = there[start : start + FETCHED]
        for at, fetched in zip(part, await store.fetch(collection, tenant, columns.rows[part]), strict=True):
            record = None if fetched is None else wanted.get(fetched.doc[collection.id_field])
            if record is not None:
                vector = columns.vectors[at].astype(np.float32)
                rows.append((record, vector / np.linalg.norm(vector)))
        if len(rows) == len(wanted):
            break
    return rows


def _near(records: Sequence[TextEvidence], vectors: NDArray[np.float32], least: float) -> list[CandidatePair]:
    """Returns each record with those of the nearest ones whose cosine is `least` or more."""
    by_places: dict[tuple[int, int], float] = {}
    for start in range(0, len(records), FETCHED):
        cosines = vectors[start : start + FETCHED] @ vectors.T
        for row, line in enumerate(cosines, start=start):
            line[row] = -1
            nearest = np.argpartition(-line, min(NEIGHBOURS, len(line) - 1))[:NEIGHBOURS]
            for other in nearest.tolist():
                if line[other] >= least:
                    by_places[min(row, other), max(row, other)] = float(line[other])
    pairs = []
    for (place, other), cosine in by_places.items():
        earlier, later = sorted((records[place], records[other]), key=lambda record: (record.said_at, record.id))
        if not facts_of_one_group(earlier, later) and not _of_two_speakers(earlier, later):
            pairs.append(CandidatePair(earlier, later, cosine))
    return sorted(pairs, key=lambda pair: (-pair.cosine, pair.earlier.name, pair.later.name))


def _of_two_speakers(earlier: TextEvidence, later: TextEvidence) -> bool:
    """Returns True if two people said them: what holds of one need not hold of the other."""
    speakers = _speaker(earlier), _speaker(later)
    return None not in speakers and speakers[0] != speakers[1]


def _speaker(record: TextEvidence) -> str | None:
    source = record.memory.get("source") if isinstance(record, MemoryEvidence) else record.fact.get("source")
    return source.get("speaker") if source else None
