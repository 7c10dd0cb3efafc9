"""Candidates: pairs of near records that a judge is asked about, by the vectors of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.work import in_turn
from app.facts.schemas import FACTS
from app.findings.service import EvidenceRecord, facts_of_one_group
from app.memories.models import MEMORIES
from app.retrieval.model_weights import weights_for
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Collection
from app.storage.scope import Partition
from app.storage.search import SearchQuery

NEIGHBOURS = 6
"""The number of nearest records that each record is paired with."""
FETCHED = 200
"""Documents that are read from the store at once."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two near records. `earlier` was said first."""

    earlier: EvidenceRecord
    later: EvidenceRecord
    cosine: float


async def candidates(
    store: Store, tenant: str, pairs: Sequence[Partition], model: str, records: Sequence[EvidenceRecord]
) -> list[CandidatePair]:
    """Returns the pairs of near records, the nearest first. Only reads.

    Args:
        store: The store, whose vectors are compared.
        tenant: The tenant.
        pairs: The partitions of the records.
        model: The embedding model.
        records: The records that may be paired: memories and facts. Of a record without a vector no pair is made.
    """
    found: list[EvidenceRecord] = []
    vectors: list[NDArray[np.float32]] = []
    for kind, collection in (("memory", MEMORIES), ("fact", FACTS)):
        wanted = {one.id: one for one in records if one.kind == kind}
        if wanted:
            rows = await _vectors(store, tenant, pairs, model, collection, wanted)
            found += [record for record, _ in rows]
            vectors += [vector for _, vector in rows]
    if len(found) < 2:
        return []
    return await in_turn(lambda: _near(found, np.array(vectors, np.float32), weights_for(model).unrelated))


async def _vectors(
    store: Store,
    tenant: str,
    pairs: Sequence[Partition],
    model: str,
    collection: Collection,
    wanted: Mapping[str, EvidenceRecord],
) -> list[tuple[EvidenceRecord, NDArray[np.float32]]]:
    """Returns the wanted records that have a vector of the model, each with it, of unit length."""
    terms = np.empty(0, np.uint32)
    query = SearchQuery(tenant, tuple(pairs), EVERYTHING, None, model, terms, vectors=True)
    columns = await store.search(collection, query)
    if columns.vectors is None:
        return []
    there = np.flatnonzero(columns.vectors.any(axis=1))
    there = there[np.argsort(-columns.time[there], kind="stable")]
    found = []
    for start in range(0, len(there), FETCHED):
        part = there[start : start + FETCHED]
        for at, one in zip(part, await store.fetch(collection, tenant, columns.rows[part]), strict=True):
            record = None if one is None else wanted.get(one.doc[collection.id_field])
            if record is not None:
                vector = columns.vectors[at].astype(np.float32)
                found.append((record, vector / np.linalg.norm(vector)))
        if len(found) == len(wanted):
            break
    return found


def _near(records: Sequence[EvidenceRecord], vectors: NDArray[np.float32], least: float) -> list[CandidatePair]:
    """Returns each record with those of the nearest ones whose cosine is `least` or more."""
    made: dict[tuple[int, int], float] = {}
    for start in range(0, len(records), FETCHED):
        cosines = vectors[start : start + FETCHED] @ vectors.T
        for row, line in enumerate(cosines, start=start):
            line[row] = -1
            nearest = np.argpartition(-line, min(NEIGHBOURS, len(line) - 1))[:NEIGHBOURS]
            for other in nearest.tolist():
                if line[other] >= least:
                    made[min(row, other), max(row, other)] = float(line[other])
    found = []
    for (one, other), cosine in made.items():
        if facts_of_one_group(records[one], records[other]) or _two_speakers(records[one], records[other]):
            continue
        first, second = sorted((records[one], records[other]), key=lambda record: (record.said_at, record.id))
        found.append(CandidatePair(first, second, cosine))
    return sorted(found, key=lambda pair: (-pair.cosine, pair.earlier.name, pair.later.name))


def _two_speakers(one: EvidenceRecord, other: EvidenceRecord) -> bool:
    """Returns True if two people said them: what holds of one need not hold of the other."""
    said = [(each.doc.get("source") or {}).get("speaker") for each in (one, other)]
    return None not in said and said[0] != said[1]
