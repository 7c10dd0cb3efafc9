"""Candidates: pairs of records of one prompt that may not both hold, by their vectors and by what tells them apart.

The nearest neighbours of each record are read from the store's vectors. Each pair gets a score, the probability that a
person would call it a contradiction or a change. The weights are fitted by `scripts/fit_pairs.py` on pairs that were
written for it.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.core.work import in_turn
from app.facts.schemas import FACTS
from app.findings.service import EvidenceRecord, facts_of_one_group
from app.learning.words import number_words
from app.memories.models import MEMORIES
from app.reflection.sentences import Sentence, people, sentences, stems, table
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Collection
from app.storage.search import Partition, SearchQuery

NEIGHBOURS = 6
"""The number of nearest records that each record is paired with."""
LEAST_COSINE = 0.1
"""Records that are less alike speak of nothing in common."""
FETCHED = 200
"""Documents that are read from the store at once."""
SHORT = 3
"""A text with fewer words of its own is an answer or a remark, which says little alone."""
ALIKE = 0.35
"""The least cosine of texts without a word in common that are shown as uncertain without a judge."""
WEAK = 0.4
"""The least score of a pair that becomes a finding without a model."""
WEIGHTS = Path(__file__).parent / "data" / "pair_weights.toml"
_OTHERS = frozenset("he she they er ella ellos ellas his her their ihr ihre sein seine su sus".split())
_SMALL = frozenset("a an at the of on in is um am im der die das de la las el los en es zu und and y o".split())
_NO_NUMBER = frozenset("ein eine einen einem einer un una uno one a".split())


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two records that may not both hold. `score`: the probability, by their words and vectors."""

    earlier: EvidenceRecord
    later: EvidenceRecord
    cosine: float
    score: float
    plain: bool = True
    """Whether both texts say enough to be shown as uncertain without a judge."""

    @property
    def changed(self) -> bool:
        """Whether the later record has words of a change, a correction or an end."""
        said = list(sentences(self.later.text))
        return any(one.has(name) for one in said for name in ("changed", "corrected", "over"))


async def candidates(
    store: Store, tenant: str, pairs: Sequence[Partition], model: str, records: Sequence[EvidenceRecord]
) -> list[CandidatePair]:
    """Returns the pairs of near records, the likeliest contradiction first. Only reads.

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
    return await in_turn(lambda: _scored(found, np.array(vectors, np.float32)))


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


def _scored(records: Sequence[EvidenceRecord], vectors: NDArray[np.float32]) -> list[CandidatePair]:
    said = [PairSide.of(record.text) for record in records]
    made: dict[tuple[int, int], float] = {}
    for start in range(0, len(records), FETCHED):
        cosines = vectors[start : start + FETCHED] @ vectors.T
        for row, line in enumerate(cosines, start=start):
            line[row] = -1
            nearest = np.argpartition(-line, min(NEIGHBOURS, len(line) - 1))[:NEIGHBOURS]
            for other in nearest.tolist():
                if line[other] >= LEAST_COSINE:
                    made[min(row, other), max(row, other)] = float(line[other])
    found = []
    for (one, other), cosine in made.items():
        if facts_of_one_group(records[one], records[other]) or _two_speakers(records[one], records[other]):
            continue
        first, second = sorted((one, other), key=lambda at: (records[at].said_at, records[at].id))
        score = probability(features(said[first], said[second], cosine))
        plain = comparable(said[first], said[second], cosine)
        found.append(CandidatePair(records[first], records[second], cosine, score, plain))
    return sorted(found, key=lambda pair: (-pair.score, pair.earlier.name, pair.later.name))


def likely(pairs: Sequence[CandidatePair]) -> list[CandidatePair]:
    """Returns the pairs that become findings without a judge: of each later record the one pair with the best score,
    if it is likely enough. `pairs`: the best first."""
    best: dict[tuple[str, str], CandidatePair] = {}
    for pair in pairs:
        if pair.plain and pair.score >= WEAK:
            best.setdefault(pair.later.name, pair)
    return list(best.values())


def _two_speakers(one: EvidenceRecord, other: EvidenceRecord) -> bool:
    """Returns True if two people said them: what holds of one need not hold of the other."""
    said = [(each.doc.get("source") or {}).get("speaker") for each in (one, other)]
    return None not in said and said[0] != said[1]


# --- What tells two records apart -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairSide:
    """What one text of a pair says, as far as it is compared."""

    stems: tuple[frozenset[str], ...]
    numbers: frozenset[str]
    days: frozenset[str]
    names: frozenset[str]
    people: frozenset[str]
    cues: frozenset[str]
    amounts: frozenset[tuple[str, str]]
    """Numbers, each with the word behind it: a unit, a month, what is counted. And with the word before it."""
    mine: bool
    question: bool

    @classmethod
    def of(cls, text: str) -> "PairSide":
        """Reads a text."""
        said = list(sentences(text))
        words = [token.word for one in said for token in one.tokens]
        days = frozenset(word for word in words if word in table("weekdays") or word in table("months"))
        numbers = frozenset(
            word if word[0].isdigit() else number_words()[word]
            for word in words
            if word[0].isdigit() or (word in number_words() and word not in _NO_NUMBER)
        )
        kept = [word for word in words if word not in days and not word[0].isdigit()]
        return cls(
            stems(kept),
            numbers,
            days,
            frozenset(name for one in said for name in _names(one)),
            frozenset(people()[word] for word in words if word in people()) | (_OTHERS & set(words)),
            frozenset(name for name in CUES if any(_cue(one, name) for one in said)),
            frozenset(amount for one in said for amount in _amounts(one)),
            any(word in table("self") or word in _MINE for word in words),
            bool(said) and all(one.text.endswith("?") for one in said),
        )


def comparable(one: PairSide, other: PairSide, cosine: float) -> bool:
    """Returns whether two texts say enough alone: the earlier one is no mere answer or remark, neither only asks
    unless it takes a number for granted, they share a word or much of their meaning, and the later one has a word of
    change, another number or another sign."""
    shared = max(len(a & b) for a, b in zip(one.stems, other.stems, strict=True))
    if min(map(len, one.stems)) < SHORT or one.question or not (shared or cosine >= ALIKE):
        return False
    differs = _differ(dict(one.amounts), dict(other.amounts))
    denied = ("negative" in one.cues) != ("negative" in other.cues) and shared >= 2
    if not (differs or denied) and other.cues.isdisjoint(SURE_CUES):
        return False
    return not other.question or differs


CUES = (
    "changed",
    "surely changed",
    "corrected",
    "over",
    "negative",
    "additive",
    "past",
    "unreal",
    "narrowed",
    "always",
)
SURE_CUES = ("surely changed", "corrected", "over")
_MINE = frozenset("my mine our mein meine meinen meinem meiner unser unsere mi mis nuestro nuestra".split())


def _cue(sentence: Sentence, name: str) -> bool:
    if name == "surely changed":
        return any(f" {entry} " in sentence.plain for entry in table("changed") - table("common_change"))
    return sentence.negative if name == "negative" else sentence.has(name)


def _amounts(sentence: Sentence) -> Iterable[tuple[str, str]]:
    """Yields (word beside it, number) for each number: "24 pupils", "4 de mayo", "born in 1986", "starts at 19:30"."""
    words = [token.word for token in sentence.tokens]
    for at, word in enumerate(words):
        value = word if word[0].isdigit() else number_words().get(word)
        if value is None or word in _NO_NUMBER:
            continue
        after = [each for each in words[at + 1 : at + 3] if each not in _SMALL][:1]
        before = [each for each in words[max(0, at - 3) : at] if each not in _SMALL and not each[0].isdigit()][-1:]
        yield from ((f"{place} {each}", value) for place, found in (("+", after), ("-", before)) for each in found)


def _names(sentence: Sentence) -> Iterable[str]:
    """Yields the capitalised words after the first one. In German these are all nouns, so they say little alone."""
    for token in sentence.tokens[1:]:
        if sentence.text[token.start : token.start + 1].isupper():
            yield token.word


FEATURES = (
    *("bias", "cosine", "cosine squared", "overlap", "containment", "one stem", "two stems", "three stems"),
    *("numbers differ", "amounts differ", "days differ", "names differ", "same value", "people differ", "same people"),
    *(
        "changed",
        "surely changed",
        "corrected",
        "over",
        "negation differs",
        "both negative",
        "additive",
        "past earlier",
        "unreal",
    ),
    *("narrowed", "always", "both of the user", "earlier question", "later question", "cue and alike"),
    *("negation and alike", "length differs", "earlier is short", "earlier is long"),
)


def features(one: PairSide, other: PairSide, cosine: float) -> NDArray[np.float64]:
    """Returns what the score of a pair is computed from; `one` was said first. In the order of `FEATURES`."""
    shared = max(len(a & b) for a, b in zip(one.stems, other.stems, strict=True))
    sizes = [max(1, min(map(len, side.stems))) for side in (one, other)]
    overlap = shared / max(1, sizes[0] + sizes[1] - shared)
    cue = not other.cues.isdisjoint(SURE_CUES)
    differs = ("negative" in one.cues) != ("negative" in other.cues)
    alike = max(0.0, cosine) ** 0.5 * min(1.0, shared / 2)
    values = (
        *(1.0, cosine, cosine * cosine, overlap, shared / (min(sizes) + 1)),
        *(shared >= 1, shared >= 2, shared >= 3),
        bool(one.numbers and other.numbers) and one.numbers.isdisjoint(other.numbers),
        _differ(dict(one.amounts), dict(other.amounts)),
        bool(one.days and other.days) and one.days.isdisjoint(other.days),
        bool(one.names - other.names and other.names - one.names),
        bool((one.numbers & other.numbers) | (one.days & other.days)),
        one.people != other.people,
        bool(one.people) and one.people == other.people,
        *(name in other.cues for name in ("changed", *SURE_CUES)),
        differs,
        "negative" in one.cues and "negative" in other.cues,
        *("additive" in other.cues, "past" in one.cues, bool({"unreal"} & (one.cues | other.cues))),
        *(bool({name} & (one.cues | other.cues)) for name in ("narrowed", "always")),
        *(one.mine and other.mine, one.question, other.question, cue * alike, differs * alike),
        *(abs(math.log(sizes[0] / sizes[1])), sizes[0] < SHORT, sizes[0] > 2 * SHORT),
    )
    return np.array(values, np.float64)


def _differ(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Returns whether two texts have different numbers beside one word."""
    return any(other.get(word, value) != value for word, value in one.items())


@cache
def _weights() -> NDArray[np.float64]:
    fitted = tomllib.loads(WEIGHTS.read_text(encoding="utf-8"))["weights"]
    return np.array([fitted[name] for name in FEATURES], np.float64)


def probability(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> float:
    """Returns the score of a pair with these features, 0 to 1."""
    raised = float(values @ (_weights() if weights is None else weights))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, raised))))
