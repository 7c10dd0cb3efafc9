"""Questions of the sets as the ranking sees them, without a service: columns and features are the service's own."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.embedding.factory import DEFAULT_MODEL, load_model
from app.retrieval.query import SettledQuery, analyse, settle, towards_what_is_denied
from app.retrieval.ranking import TINY, base_score, bm25, document_arrays, document_features, query_features
from app.retrieval.time_expressions import named_days, names_subject, read_interval, with_named_days
from app.storage.search import Columns, Floats
from app.storage.text import HAS_EVENT_TIME, SAID_BY_ASSISTANT, SAID_BY_USER, content_hash, index_text, name_id
from benchmarks.evaluation.sets import Item, Question, World

_OF_ROLE = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}


@dataclass(frozen=True, slots=True)
class Case:
    """One question asked of one scope."""

    group: str
    fold: int
    question: Question
    query: SettledQuery
    columns: Columns
    known: Floats
    """(FEATURES, n)"""
    base: Floats
    """Half of the scaled cosine and half of the scaled BM25, with neighbours: picks the likely documents."""
    evidence: NDArray[np.bool_]
    interval: tuple[int, int] | None


class Embedder:
    """Vectors of texts by one model, kept in a file between runs if one is named: one file for each model."""

    def __init__(self, cache: Path | None, model: str = DEFAULT_MODEL) -> None:
        self._cache, self._known, self._model = cache, dict[str, Floats](), load_model(model)
        self._split: dict[str, list[str]] = {}
        if cache and cache.exists():
            with np.load(cache, allow_pickle=True) as stored:
                self._known = dict(zip(stored["texts"].tolist(), stored["vectors"], strict=True))

    @property
    def model(self) -> str:
        return self._model.name

    def windows(self, text: str) -> list[str]:
        if text not in self._split:
            self._split[text] = self._model.split(text)
        return self._split[text]

    def passages(self, texts: Sequence[str]) -> Floats:
        """(n, dim)"""
        return self._encoded([self._model.prompts.passage + text for text in texts])

    def queries(self, texts: Sequence[str]) -> Floats:
        """(n, dim)"""
        return self._encoded([self._model.prompts.query + text for text in texts])

    def _encoded(self, texts: Sequence[str]) -> Floats:
        missing = sorted({text for text in texts if text not in self._known}, key=len)
        for start in range(0, len(missing), 8):
            batch = missing[start : start + 8]
            self._known.update(zip(batch, self._model.encode(batch), strict=True))
        return np.stack([self._known[text] for text in texts])

    def save(self) -> None:
        if self._cache:
            texts = np.array(list(self._known), dtype=object)
            np.savez(self._cache, texts=texts, vectors=np.stack(list(self._known.values())))


@dataclass(frozen=True, slots=True)
class Scope:
    """The memories of one user as the documents of a scope."""

    items: Sequence[Item]
    blank: Columns
    """Columns without a query."""
    postings: dict[int, list[tuple[int, int]]]
    """Term → (document, how often)."""
    vectors: Floats
    """Of all windows, document by document."""
    first: NDArray[np.int64]
    """Where each document's windows begin."""


def build_scope(items: Sequence[Item], embed: Embedder) -> Scope:
    indexed = [index_text(item.content, None, item.time) for item in items]
    codes: dict[str, int] = {}
    session = np.array([-1 if i.session is None else codes.setdefault(i.session, len(codes)) for i in items])
    previous, following = links(session)
    spoken = [(item.name or item.role) if item.session is not None else "" for item in items]
    said = np.array([0 if item.time is None else int(item.time.timestamp() * 1000) for item in items])
    flags = [
        text.flags
        | (_OF_ROLE.get(item.role, 0) if item.session is not None else 0)
        | HAS_EVENT_TIME * (item.time is not None)
        for item, text in zip(items, indexed, strict=True)
    ]
    n, length = len(items), np.array([text.length for text in indexed], np.float32)
    blank = Columns(
        rows=np.arange(n),
        matched=np.ones(n, np.bool_),
        cosine=np.zeros(n, np.float32),
        has_vector=np.ones(n, np.bool_),
        term_counts=np.zeros((0, n), np.float32),
        df=np.zeros(0, np.float32),
        length=length,
        count=n,
        mean_length=float(length.mean()),
        previous=previous,
        following=following,
        session=session,
        speaker=np.array([name_id(name) for name in spoken]),
        time=said,
        flags=np.array(flags),
        base_importance=np.full(n, 0.3, np.float32),
        anchor=said,
        pinned=np.zeros(n, np.bool_),
        agent=np.zeros(n, np.int64),
        content=np.array([content_hash(item.content) for item in items]),
    )
    postings: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, text in enumerate(indexed):
        for term, count in zip(text.ids.tolist(), text.counts.tolist(), strict=True):
            postings[term].append((at, count))
    windows = [embed.windows(item.content) for item in items]
    first = np.cumsum([0, *(len(each) for each in windows)])[:-1]
    return Scope(items, blank, postings, embed.passages([window for each in windows for window in each]), first)


def links(session: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Index of the document before, and of the one after, in the same session; -1 where there is none."""
    previous, following = np.full(len(session), -1), np.full(len(session), -1)
    last: dict[int, int] = {}
    for at, code in enumerate(session.tolist()):
        if code >= 0:
            if (before := last.get(code, -1)) >= 0:
                previous[at], following[before] = before, at
            last[code] = at
    return previous, following


def build_cases(group: str, worlds: Sequence[World], embed: Embedder, folds: int) -> Iterator[Case]:
    """One case for each question; a world's fold is its number modulo `folds`."""
    for number, world in enumerate(worlds):
        scope = build_scope(world.items, embed)
        speakers = tuple({item.name or item.role for item in world.items if item.session is not None})
        embed.queries([analyse(question.query, speakers).stripped for question in world.questions])
        for question in world.questions:
            yield _case(group, number % folds, scope, question, speakers, embed, question.now or world.now)


def _case(
    group: str, fold: int, scope: Scope, question: Question, speakers: tuple[str, ...], embed: Embedder, now: str | None
) -> Case:
    known_items = scope.items[: question.after]
    last = max((item.time for item in known_items if item.time), default=datetime.now(UTC))
    asked = datetime.fromisoformat(now) if now else last + timedelta(seconds=1)
    read = read_interval(question.query, asked, asked.tzinfo or UTC)
    blank = _known(scope.blank, len(known_items))
    query = analyse(question.query, speakers)
    n = len(known_items)
    wanted = towards_what_is_denied(embed.queries([query.stripped])[0], embed.model)
    nearest = np.maximum.reduceat(scope.vectors @ wanted, scope.first)[:n]
    days = named_days(read)
    looked_for = np.union1d(query.terms, np.array([term for _, _, term in days], np.uint32))
    hits = np.zeros((len(looked_for), n), np.float32)
    for row, term in enumerate(looked_for.tolist()):
        for at, count in scope.postings.get(term, ()):
            if at < n:
                hits[row, at] = count
    df = np.count_nonzero(hits, axis=1).astype(np.float32)
    columns = replace(blank, cosine=nearest.astype(np.float32), term_counts=hits, df=df)
    columns = with_named_days(columns, looked_for, query.terms, days)
    interval = None
    if read is not None:
        interval = read.settled(blank.time, blank.time, blank.matched, ~blank.matched, columns.named)
    subject = True
    if interval is None or not interval.empty:
        subject = names_subject(question.query, interval.words if interval else "")
    columns, settled = settle(columns, query, {}, model=embed.model, subject=subject)
    text = bm25(columns)
    of_documents = document_features(columns, int(columns.time.max(initial=0)))
    known = np.concatenate((query_features(columns, settled, text), of_documents))
    base = base_score(known[0], np.minimum(text / max(float(text.max(initial=0)), TINY), 1), document_arrays(columns))
    evidence = np.array([item.content in question.evidence for item in known_items], np.bool_)
    span = None if interval is None else (interval.start, interval.end)
    return Case(group, fold, question, settled, columns, known, base, evidence, span)


def _known(columns: Columns, n: int) -> Columns:
    """The first n documents, as a scope of its own."""
    if n == len(columns.rows):
        return columns
    names = (
        "rows matched has_vector length session speaker time flags base_importance anchor pinned agent content"
    ).split()
    cut = {name: getattr(columns, name)[:n] for name in names}
    following = np.where(columns.following[:n] < n, columns.following[:n], -1)
    mean = float(columns.length[:n].mean()) if n else 0.0
    return replace(columns, **cut, previous=columns.previous[:n], following=following, count=n, mean_length=mean)


# --- Variants of a world, so that each kind of memory is fitted on several sets ---------------------------------------


def as_plain(world: World) -> World:
    """Without sessions: what the user says there as plain memories, in a talk of two named people what both say."""
    kept = [
        replace(item, session=None) if item.role == "user" or item.name is not None else None for item in world.items
    ]
    return _with(world, kept, every=2)


def mixed(world: World, share: float = 0.15) -> World:
    """This share of the user's turns, picked by their texts, are plain memories."""

    def loose(item: Item) -> bool:
        return item.role == "user" and zlib.crc32(item.content.encode()) % 100 < 100 * share

    return _with(world, [replace(item, session=None) if loose(item) else item for item in world.items], every=2)


def small(world: World) -> Iterator[World]:
    """Scopes of one to six of the memories, for every third question; in half of them with an answer."""
    pick = np.random.default_rng(zlib.crc32(world.name.encode()))
    for question in world.questions[::3]:
        others = [item for item in world.items if item.content not in question.evidence]
        answers = [item for item in world.items if item.content in question.evidence][:1]
        chosen = [others[at] for at in pick.permutation(len(others))[: pick.integers(1, 7)]]
        items = [*answers, *chosen[1:]] if answers and pick.random() < 0.6 else chosen
        evidence = tuple(item.content for item in items if item.content in question.evidence)
        yield replace(
            world, items=tuple(items), questions=(replace(question, evidence=evidence, after=len(items)),), setup=()
        )


def _with(world: World, items: Sequence[Item | None], every: int) -> World:
    """`items`: what becomes of each item of the world; None: it is left out."""
    kept = tuple(item for item in items if item is not None)
    contents = {item.content for item in kept}
    questions = tuple(
        replace(
            question,
            after=sum(item is not None for item in items[: question.after]),
            evidence=tuple(text for text in question.evidence if text in contents),
        )
        for question in world.questions[::every]
        if not question.evidence or not contents.isdisjoint(question.evidence)
    )
    return replace(world, items=kept, questions=questions)
