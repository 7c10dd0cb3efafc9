"""The first hits: what their texts say of each other.

The ranking compares a document with all others, and so finds the documents about the query. Among the
first hits other properties tell which of them answers it:

- Some say the same: `Likes oat milk in coffee` and `likes oat milk in her coffee.` are one statement. A search shows
  the newest, and counts them once. `Room 12 has the projector` and `Room 14 has the projector` are two, and so are `He
  likes tea` and `He does not like tea`.
- A later statement replaces an earlier statement about the same subject: asked "What is the budget?", "Sorry, the
  budget is 12k" replaces "The budget is 20k". Asked for my dog, "My sister's dog is called Bo" does not replace "My
  dog is called Rex": its words differ before the new value, too (`same_subject`).
- A newer statement mostly holds: asked "Where do I live?", "I moved to Boston" goes before the older "I live in
  Paris". The time of a long text counts less: it says many things, and the new thing in it need not be what was asked
  for.
- A person's statement tells more than a question, or than what an assistant made of that statement.
- What an assistant answered when the same was asked before is second-hand: "You live in Paris." was made from what
  memory had then, right or wrong.

How much each property counts is fitted by scripts/fit_ranking.py, as the weights of the ranking are (conditional logit
among the first hits), apart for turns of conversations and for plain memories. Turns of two people with names keep the
order of the ranking: there these properties gained nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.core.caches import kept_by_digest
from app.core.language import FUNCTION_WORDS, STOP_WORDS, fold, wording
from app.retrieval.decay import DAY_MS
from app.retrieval.model_weights import FirstHitWeights, Weights
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import LONG_TEXT, TINY, Ranked, has_words, says_something, term_weights
from app.retrieval.time_expressions import likeliest
from app.storage.protocol import Fetched
from app.storage.schema import Doc, SearchSchema
from app.storage.search import Bools, Columns, DocumentIndex, Floats, Ints
from app.storage.text import (
    DATE_TERMS,
    HAS_EVENT_TIME,
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    SUMMARY,
    name_id,
    terms,
    words_in_order,
)

LONGEST = 1_000
"""Characters of a text that is compared. Longer ones say the same only if their contents are equal."""
USER = name_id("user")
"""The speaker of what a user without a name says."""

# --- What says the same -----------------------------------------------------------------------------------------------

COMPARED = 24
"""So many of the best documents are compared with each other, or twice as many as there are hits: no fewer than those
that are ordered among themselves (`2 * FIRST`). Where some of them say the same, those that come in their place are
compared, too, `ROUNDS` times at most."""
ROUNDS = 4
_PUNCTUATION = frozenset(".,;:!\"'()\u2026\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb")


def suspects(columns: Columns, among: Sequence[int], *, of_days: bool) -> list[list[int]]:
    """Returns groups of documents that may say the same, each with two at least: of one speaker, of one length, and
    with as many of each word of the query. `of_days`: what happened on different days is not the same."""

    def compute() -> Ints:
        dated = columns.flags & HAS_EVENT_TIME != 0
        # bits 0 to 33: the crc32 of who said it, 0 for the user and of a plain memory; or, `of_days`, the day of a
        # plain memory that has one, 2**33 + 20,605 of 2026-06-01, which is no crc32
        who_or_day = np.where(columns.plain | (columns.speaker == USER), 0, columns.speaker)
        if of_days:
            who_or_day = np.where(dated & columns.plain, columns.time // DAY_MS + (1 << 33), who_or_day)
        form = columns.flags & (IS_QUESTION | HAS_NUMBER_OR_TIME_WORD)  # 0 to 3, bits 34 and 35; from 36 on the length
        key: Ints = ((columns.length - DATE_TERMS * dated).astype(np.int64) << 36) + (form << 34) + who_or_day
        return key

    sources = columns.flags, columns.length, columns.session, columns.speaker, columns.time
    alike = columns.memo.get(f"alike, of days: {of_days}", sources, compute)
    groups: dict[int, list[int]] = {}
    for index, key in zip(among, alike.take(among).tolist(), strict=True):
        groups.setdefault(key, []).append(index)
    by_words: dict[tuple[int, bytes], list[int]] = {}
    for key, group in groups.items():
        for index in group if len(group) > 1 else ():
            by_words.setdefault((key, columns.term_counts[:, index].tobytes()), []).append(index)
    return [group for group in by_words.values() if len(group) > 1]


def repetitions_among(
    columns: Columns, groups: Sequence[Sequence[int]], documents: Mapping[int, Fetched[Any]], spec: SearchSchema
) -> list[list[int]]:
    """Returns the repetitions in each of the groups: documents that say the same, the newest first, two at least, and a
    summary last: it repeats the others. `documents`: those that can be read, by index. What `spec.said_with` names must
    be equal, too, and of two users nobody repeats the other."""

    def words_of(document: Doc) -> tuple[str, ...]:
        """Returns the words that are no stop words. Texts that say the same have the same ones in the same order."""
        text = spec.text(document)
        return tuple(word for word in _words(text) if word not in STOP_WORDS) if len(text) <= LONGEST else ()

    repetitions: list[list[int]] = []
    for group in groups:
        by_words: dict[tuple[str, ...], list[list[int]]] = {}
        for index in _newest_first(columns, filter(documents.__contains__, group)):
            doc = documents[index].doc
            with_these_words = by_words.setdefault(documents[index].memo.once("content words", words_of, doc), [])
            for repetition in with_these_words:
                newest = documents[repetition[0]].doc
                equal = all(newest.get(name) == doc.get(name) for name in spec.said_with)
                users = {newest.get("user_id"), doc.get("user_id")} - {None}
                if equal and len(users) < 2 and says_the_same(spec.text(newest), spec.text(doc)):
                    repetition.append(index)
                    break
            else:
                with_these_words.append([index])
        repetitions += [indices for lists in by_words.values() for indices in lists if len(indices) > 1]
    return repetitions


def merged(columns: Columns, repetitions: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns both lists, repetitions with a document in common as one, the newest document of each first."""
    result = [list(repetition) for repetition in repetitions]
    for added in new:
        apart = [repetition for repetition in result if set(repetition).isdisjoint(added)]
        in_common = [repetition for repetition in result if repetition not in apart]
        result = [*apart, [*{*added}.union(*in_common)]]
    return [_newest_first(columns, repetition) for repetition in result]


def _newest_first(columns: Columns, indices: Iterable[int]) -> list[int]:
    """Returns documents, the newest first, and summaries behind all others."""
    return sorted(indices, key=lambda index: (columns.flags[index] & SUMMARY, -columns.time[index]))


def said_once(columns: Columns, repetitions: Sequence[Sequence[int]]) -> Columns:
    """Returns the columns in which the first document of each repetition stands for all: the others do not match, and
    do not count in the frequencies of the query's words."""
    others = [index for repetition in repetitions for index in repetition[1:] if columns.matched[index]]
    with_term = np.count_nonzero(columns.term_counts[:, others], axis=1)
    matched, groups = columns.matched.copy(), columns.contents
    matched[others if groups is None or not others else groups.like(others)] = False
    return columns.having(
        matched=matched,
        df=np.maximum(columns.df - with_term, 0).astype(np.float32),
        count=columns.count - len(others),
        standing_for=[newest for newest, *_ in repetitions],
    )


def repetitions_of_hits(
    columns: Columns, matched_before: Bools, best: Sequence[int], repetitions: Sequence[Sequence[int]]
) -> dict[int, Ints]:
    """Returns the other documents that say what a hit says, the newest first, by the hit's index, for hits that are not
    alone. `matched_before`: what matched before `said_once`. `repetitions`: those that it was given."""
    groups = columns.contents
    if not repetitions and groups is None:
        return {}
    said_as = {indices[0]: indices for indices in repetitions}
    repeated_by: dict[int, Ints] = {}
    for index in best:
        saying_it = said_as.get(index, [index])
        same = np.array(saying_it) if groups is None else groups.like(saying_it)
        others = np.sort(same[matched_before[same] & (same != index)])  # as they are stored
        if len(others):
            repeated_by[index] = others[np.argsort(-columns.time[others], kind="stable")]
    return repeated_by


def says_the_same(text: str, other: str) -> bool:
    """Returns whether two texts have the same words in the same order, but for stop words that one has more.

    Numbers, names and negations are no stop words. A stop word that stands for another one makes a difference: "from
    Oslo to Rome" is not "to Oslo from Rome".
    """
    if max(len(text), len(other)) > LONGEST:
        return False
    shorter, longer = sorted((_words(text), _words(other)), key=len)
    at = 0
    for word in longer:
        if at < len(shorter) and word == shorter[at]:
            at += 1
        elif word not in STOP_WORDS:
            return False
    return at == len(shorter)


@kept_by_digest(4 << 20, lambda words: 100 * (1 + len(words)))
def _words(text: str) -> list[str]:
    return [word for word in wording(text) if word not in _PUNCTUATION]


# --- What replaces what, and which answers ----------------------------------------------------------------------------

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. The document that answers is among them for
9 of 10 questions."""
FAR = 4.0
"""The greatest distance to the best hit, in log-odds, that `gap` has: a hit that is 9 behind counts as 4 behind."""
ENOUGH_OF_QUERY = 0.4
"""Minimum share of the weight of a query's words that two hits have in common where the later hit replaces the earlier.
With a lower minimum, recall@10 falls by .07 in MemDaily, a benchmark of daily notes that resemble each other."""
REVERSED = 4.0
"""Log-odds that a document loses that has the words of the query the other way round, beside one that has them in its
order."""
EQUAL = 1e-4
"""Two hits whose cosines to the query differ by less have the same text."""
PROPERTIES = ("gap", "cosine", "newness", "statement", "length", "renewed", "second_hand", "replaced")
"""The fields of `FirstHitWeights`, in this order."""
NO_ORDER = FirstHitWeights()
Pairs: TypeAlias = Sequence[tuple[int, int]]  # [(4, 9)]: the indices of an earlier memory and of a later one


class KnownOfTexts(NamedTuple):
    """What is known of each text alone; the rows of one array, each of shape (n,). `statement` and `may_hold_now` are 1
    for true and 0 for false, the others are numbers: 0.4, say."""

    statement: Floats
    """It is neither a question nor what an assistant says."""
    length: Floats
    """It grows with the logarithm of the number of terms; 1 for a text of 147 terms."""
    brief: Floats
    """1 less the length; 0 for a longer text."""
    by_newness: Floats
    """How much its newness counts: `brief` for a statement that is no summary, else 0."""
    may_hold_now: Floats
    """It is neither a question nor a summary, so that it may replace an earlier one."""


@dataclass(slots=True)
class FirstHits:
    """The first hits, turns and plain memories, and what each of them (row) has in common with each other one of its
    kind (column)."""

    group: Ints
    """Indices of the documents that are ordered among themselves, of each kind the best first."""
    plain: Bools
    """Which of them are plain memories."""
    of_kinds: Sequence[DocumentIndex]
    """The hits of each kind, as an index of them."""
    known: KnownOfTexts
    """What is known of their texts alone."""
    newest: Ints
    """When each was said; what was said twice, the last time."""
    later: Bools
    """It is a later statement of the same speaker. A question is none, nor is the same text said again, as a summary
    does."""
    share: Floats
    """The share of the query's words of the hit, weighed by rarity, that the other one has, too: asked "What is the
    budget?", "The budget is 20k" has the word "budget", and "Sorry, the budget is 12k" has it, too."""
    may_replace: Pairs = ()
    """Memories with `ENOUGH_OF_QUERY`, and the newest of the later ones that have all that they have of it and may say
    what holds instead: their texts tell (`same_subject`)."""
    alike: Sequence[Sequence[int]] = ()
    """Groups of memories with the same words of the query, of which some may have them the other way round."""


def first_hits(
    ranked: Ranked, columns: Columns, settled: SettledQuery, weights: Weights, *, several_users: bool = False
) -> FirstHits:
    """Returns the first hits, turns and plain memories, at least two of a kind that has weights for its order. A query
    of a time alone, which is ordered by that time, has none. Of several users no hit replaces another: the later "My
    dog is called Bo" may be Bob's, and the earlier "My dog is called Rex" Ada's.

    Turns are ordered if an assistant said one of the first documents, be it "Noted.", or if all turns are of a user
    without a name: when two people talk, "I" in the turns of one is not "I" in those of the other.
    """
    start = ranked.order[: 2 * FIRST] if settled.subject else ranked.order[:0]
    with_assistant = True in columns.assistants.take(start).tolist()
    start = start[says_something(ranked.other_parts, start)]
    plain = columns.plain.take(start)
    turns, memories = start[~plain][:FIRST], start[plain][:FIRST]
    alike = find_alike(columns, settled, memories, ranked.score)
    of_one_person = with_assistant or {*columns.speaker.take(turns).tolist()} == {USER}
    if len(turns) < 2 or weights.first_turns == NO_ORDER or not of_one_person:
        turns = turns[:0]
    if len(memories) < 2 or weights.first_plain == NO_ORDER:
        memories = memories[:0]
    later_replaces = not several_users and not asks_for_past(settled, ranked.other_parts)
    first = compare_hits(columns, np.concatenate((turns, memories)), later_replaces=later_replaces)
    first.alike = alike
    return first


def _known(columns: Columns) -> Floats:
    """Returns `KnownOfTexts` of all documents as one array, shape (5, n): `compare_hits` takes those of the hits."""

    def compute() -> Floats:
        length, is_original = np.log1p(columns.length) / LONG_TEXT, columns.flags & SUMMARY == 0
        statement, brief = ~(columns.assistants | columns.questions), np.maximum(1 - length, 0)
        by_newness, may_hold_now = statement * brief * is_original, is_original & ~columns.questions
        return np.array((statement, length, brief, by_newness, may_hold_now), np.float32)

    return columns.memo.get("texts", (columns.session, columns.speaker, columns.flags, columns.length), compute)


def compare_hits(columns: Columns, group: Ints, *, later_replaces: bool = True) -> FirstHits:
    """Compares the documents of a group with each other. `later_replaces`: a later one may replace an earlier one, as
    the query names no time, does not ask for the earliest and is not of several users."""
    plain, time, speaker = columns.plain.take(group), columns.time.take(group), columns.speaker.take(group)
    content, cosine = columns.content.take(group), columns.cosine.take(group)
    of_terms, total = term_weights(columns)
    has = columns.term_counts.take(group, axis=1) > 0
    common = np.add.reduce(has[:, :, None] * (has * of_terms)[:, None], axis=0)
    own_weight = common.diagonal()[:, None]
    of_kinds = (plain, ~plain) if len({*plain.tolist()}) > 1 else (...,)
    known, newest, later = KnownOfTexts(*_known(columns).take(group, axis=1)), time, time > time[:, None]
    later &= speaker == speaker[:, None]
    later &= known.may_hold_now > 0
    if len(of_kinds) > 1:
        later &= plain == plain[:, None]
    near = any(after - before < EQUAL for before, after in pairwise(sorted(cosine.tolist())))
    if near or len({*content.tolist()}) < len(group):
        # two memories with the same text but different keys differ in `content`; their vectors are as near to the query
        has_vector = columns.has_vector.take(group)
        same = (np.abs(cosine - cosine[:, None]) < EQUAL) & has_vector & has_vector[:, None]
        same |= content == content[:, None]
        later &= ~same
        newest = np.where(same, time, time.min()).max(axis=1)
    may_replace: Pairs = ()
    if not later_replaces:
        later[:] = False
    elif True in plain.tolist():
        all_of_it = later & (common >= own_weight) & (own_weight >= ENOUGH_OF_QUERY * max(total, TINY)) & plain
        newest_place = np.where(all_of_it, time, np.iinfo(np.int64).min).argmax(axis=1)
        places = all_of_it.any(axis=1).nonzero()[0]
        may_replace = [*zip(group[places].tolist(), group[newest_place[places]].tolist(), strict=True)]
    share = common / np.maximum(own_weight, TINY)
    return FirstHits(group, plain, of_kinds, known, newest, later, share, may_replace)


def compare_texts(first: FirstHits, texts: Mapping[int, str], query: str) -> tuple[Pairs, list[int]]:
    """Returns the pairs of which the later text replaces the earlier one, and the documents that have the words of the
    query the other way round: `[(4, 9)], [2]`. `texts`: those of the documents in pairs and groups, by index."""
    replaced = [
        (earlier, later)
        for earlier, later in first.may_replace
        if earlier in texts and later in texts and same_subject(texts[earlier], texts[later], query)
    ]
    groups = [{index: texts[index] for index in group if index in texts} for group in first.alike]
    return replaced, [index for group in groups for index in find_reversed(group, query)]


def order_first_hits(
    ranked: Ranked,
    columns: Columns,
    first: FirstHits,
    weights: Weights,
    replaced: Pairs = (),
    reversed_words: Sequence[int] = (),
) -> None:
    """Orders the first hits among themselves, turns and plain memories apart. The part `first` is what each document
    gains by this, in log-odds, less than 0 if it falls. `replaced`, `reversed_words`: what `compare_texts` returns."""
    gained = np.zeros(len(ranked.score), np.float32)
    if len(first.group):
        values = properties(columns, ranked.score, first, ranked.other_parts, replaced)
        gained[first.group] = gains(values, first, weights)
    for index in reversed_words:
        gained[index] -= REVERSED
    if gained.any():
        ranked.other_parts["first"] = gained
        ranked.score = ranked.score + gained
        # all documents are sorted, because a first hit may fall behind those that follow: "The budget is 20k", which
        # "Sorry, the budget is 12k" replaces, falls far behind
        ranked.order = ranked.order[(-ranked.score[ranked.order]).argsort(kind="stable")]


def asks_for_past(settled: SettledQuery, other_parts: Mapping[str, Floats]) -> bool:
    """Returns whether the query names a time or asks for the earliest."""
    return "when" in other_parts or settled.order == "earliest"


def properties(
    columns: Columns, odds: Floats, first: FirstHits, other_parts: Mapping[str, Floats], replaced: Pairs = ()
) -> Floats:
    """Returns the properties of the first hits, a row for each name of `PROPERTIES` and a column for each hit. Each hit
    is compared with those of its kind. `odds`, `other_parts`: the score and the other parts of `Ranked`.

    - `gap`: the log-odds that the hit has more than the best hit, from −`FAR` to 0.
    - `cosine`: that of the hit and the query.
    - `newness`: 0 for the oldest hit, 1 − `length` for the newest. Only statements have it: an assistant's answer is no
      newer than what it rests on, nor is a summary.
    - `statement`: 1 for what a person states, 0 for a question and for what an assistant says.
    - `length`: grows with the logarithm of the number of terms; 1 for a text of 147 terms.
    - `second_hand`: 1 for what an assistant said right after an `echo`, a question that asks what the query asks.
    - `renewed` and `replaced`: how surely a later hit says something else about the same thing, 0 to 1: the less, the
      farther its log-odds are behind those of the hit. For `renewed` the share of the common words of the query counts,
      and less in a long text; for `replaced` the pairs that `compare_texts` returns.
    """
    group = first.group
    values = np.zeros((len(PROPERTIES), len(group)), np.float32)
    gap, cosine, newness, statement, length, renewed, second_hand, is_replaced = values  # views, written in place
    statement[:], length[:] = first.known.statement, first.known.length
    odds.take(group, out=gap)
    columns.cosine.take(group, out=cosine)
    for of_kind in first.of_kinds:
        times = first.newest[of_kind].tolist()
        steps = {moment: step for step, moment in enumerate(sorted({*times}))}
        newness[of_kind] = [steps[moment] / max(len(steps) - 1, 1) for moment in times]
        gap[of_kind] -= max(gap[of_kind].tolist())
    newness *= first.known.by_newness
    np.maximum(gap, -FAR, out=gap)
    behind = np.maximum(gap[:, None] - gap, 0) / FAR
    near = (1 - behind * behind) * first.later
    np.maximum.reduce(first.share * near, axis=1, out=renewed)
    renewed *= first.known.brief
    if "echo" in other_parts:
        before = columns.previous.take(group)
        second_hand[:] = columns.assistants.take(group) & (before >= 0) & (other_parts["echo"][before] > 0)
    for earlier, later in replaced:
        place = (group == earlier).argmax()
        is_replaced[place] = near[place, (group == later).argmax()]
    return values


def gains(values: Floats, first: FirstHits, weights: Weights) -> Floats:
    """Returns the log-odds that each hit gains on the first hit of its kind, shape (len(group),).

    `values`: what `properties` returns for hits of which each kind has falling log-odds. The first hit gains 0: it
    keeps its log-odds, and with them its place among documents of the other kind.
    """
    gain = np.empty(len(first.group), np.float32)
    for of_kind in first.of_kinds:
        is_plain = bool(first.plain[of_kind][0])
        factors = _factors(weights.first_plain if is_plain else weights.first_turns)
        of_hits = np.add.reduce(factors * values[:, of_kind], axis=0)
        gain[of_kind] = of_hits - of_hits[0]
    return gain


@lru_cache(maxsize=64)
def _factors(weights: FirstHitWeights) -> Floats:
    """Returns the weights of `PROPERTIES`, shape (PROPERTIES, 1)."""
    return np.array([[getattr(weights, name)] for name in PROPERTIES], np.float32)


def same_subject(earlier: str, later: str, query: str) -> bool:
    """Returns whether two statements that have the same words of a query differ in their value alone.

        same_subject("The budget is 20k", "Sorry, the budget is 12k", "What is the budget?")
        not same_subject("My dog is called Rex", "My sister's dog is called Bo", "What is my dog called?")

    The clauses with the words of the query are compared word by word. They may differ in one place, where words of one
    stand for words of the other, or behind the last word that they have in common, and before it by single words in the
    place of others behind the first word of the query: "on Tuesday at 4", "on Thursday at 5". A word more or less tells
    nothing: "now", as well as "backups", may stand there. A later statement with all words of the earlier one corrects
    it: "Mr. Olsen is our contact", "Ms. Varga has replaced Mr. Olsen as our contact".
    """
    if max(len(earlier), len(later)) > LONGEST:
        return False
    asked = set(terms(query))
    (old_terms, old_clauses), (new_terms, new_clauses) = _read(earlier), _read(later)
    if old_terms < new_terms:
        return True
    old, new = _about(old_clauses, asked), _about(new_clauses, asked)
    first = next((at for at, word in enumerate(new) if word in asked), len(new))
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    in_common = [at for at, (tag, *_) in enumerate(changes) if tag == "equal"]
    if not in_common:
        return False
    if len(changes) - len(in_common) == 1:
        return any(tag == "replace" for tag, *_ in changes)
    for at, (tag, old_start, old_end, new_start, new_end) in enumerate(changes):
        if tag == "equal":
            continue
        if at > in_common[-1]:
            return tag == "replace"
        if tag != "replace" or old_end - old_start != new_end - new_start or new_start <= first:
            return False
    return True


def _about(clauses: Sequence[Sequence[str]], asked: Set[str]) -> list[str]:
    """Returns the words from the first clause with a word of the query to the last one."""
    about = [at for at, clause in enumerate(clauses) if not asked.isdisjoint(clause)]
    return [word for clause in clauses[about[0] : about[-1] + 1] for word in clause] if about else []


@kept_by_digest(4 << 20, lambda read: 100 * (2 + len(read[0]) + sum(1 + len(clause) for clause in read[1])))
def _read(text: str) -> tuple[frozenset[str], list[list[str]]]:
    """Returns the terms of a text, and the words of its clauses in their order."""
    return frozenset(terms(text)), [words_in_order(clause) for clause in _CLAUSE_END.split(text)]


_CLAUSE_END = re.compile(r"[,:;.!?\n](?=\s|\Z)|[\uff0c\u3002\uff01\uff1f\uff1b\u3001\uff1a]")


def find_alike(columns: Columns, settled: SettledQuery, memories: Ints, odds: Floats) -> list[list[int]]:
    """Returns groups of the first plain `memories` that have the same words of the query, two words at least, and about
    the same log-odds: the documents whose texts tell who does what to whom (`find_reversed`)."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    if len(memories) > 1:
        of_memories = odds.take(memories).tolist()
        has = has_words(columns, settled).take(memories, axis=1).T.tolist()
        for index, words, value in zip(memories.tolist(), has, of_memories, strict=True):
            if value >= of_memories[0] - REVERSED and sum(words) > 1:  # one farther behind is below it anyway
                groups.setdefault(tuple(words), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def find_reversed(texts: Mapping[int, str], query: str) -> list[int]:
    """Returns which texts have more neighbouring words of the query the other way round than another one of them.

        find_reversed({0: "Mira manages Olaf", 1: "Olaf manages Pia"}, "Who manages Olaf?") == [1]

    A genitive reverses the two: "Olaf's parent" is whose parent is Olaf in "Mira parent of Olaf". Of a question for a
    person it counts who does it (`_does`): "A chi ha prestato i soldi Giulia?", "Wem hat Silke das Auto geliehen?".
    Whom a text names with "by" does it, else whom the text begins with.
    """
    spoken = [grammar.code for grammar in likeliest(fold(query)) if grammar.code in _BY]
    little: Set[str] = frozenset()
    if len(spoken) == 1:
        # "Who was taught by Ada?", of the texts {0: "Ada was taught by Grace", 1: "Ada taught Linus"}:
        little, words = FUNCTION_WORDS[spoken[0]], _LETTERS.findall(query)
        folded = [fold(word) for word in words]
        names = [place for place in range(1, len(words)) if words[place][0].isupper()]  # [4]: "Ada"
        roles = {place: _does(folded, place, spoken[0]) for place in names}
        by_who = {place: does for place, does in roles.items() if does is not None}  # {4: True}: Ada does it
        said = {index: _LETTERS.findall(fold(text[:LONGEST])) for index, text in texts.items()} if by_who else {}
        doers = {index: _done_by(words, spoken[0]) for index, words in said.items()}  # {0: {"grace"}, 1: set()}
        for place, does in by_who.items():
            fits = {  # {0: False, 1: True}: text 0 is the one to return
                # without a by-phrase the first one does it; "A Inês …" begins with her, too
                index: does == (folded[place] in (doers[index] or words[:2]))
                for index, words in said.items()
                if folded[place] in words
            }
            if len({*fits.values()}) > 1:
                return [index for index, fit in fits.items() if not fit]
    asked, genitive = [word for word in terms(query) if word not in little], _GENITIVE.search(query) is not None
    counts: dict[int, int] = {}
    for index, text in texts.items():
        words = [word for clause in _read(text)[1] for word in clause] if len(text) <= LONGEST else []
        at = {word: words.index(word) for word in asked if word in words}
        before_of = {word for word, place in at.items() if genitive and words[place + 1 : place + 2] == ["of"]}
        counts[index] = sum(
            (at[one] > at[other]) != bool(before_of & {one, other})
            for one, other in pairwise(word for word in asked if word in at)
            if one != other
        )
    return [index for index, count in counts.items() if count > min(counts.values())]


def _does(query: Sequence[str], place: int, language: str) -> bool | None:
    """Returns whether the one who is named at a `place` among the words of a question for a person does what it says;
    None: nothing tells.

    True in "taught by Ada", "À qui Luc a-t-il prêté", "Qui Claire a-t-elle invité", "Wen hat Paula angezeigt"; False in
    "From whom did Grace learn", "Chi ha venduto la moto a Dario", "Wer hat Jonas das Klavier geschenkt".
    """
    by, little = _BY[language], FUNCTION_WORDS[language]
    doers = _done_by(query, language)
    if doers:
        return True if query[place] in doers else None
    at = next((at for at, word in enumerate(query) if word in _WHO), place)
    if at >= place:
        return None
    before = query[at - 1] if at else ""
    if before in by or before == "de" or query[-1] in by:
        return False
    if before in little or query[at] in _WHOM:
        return True
    if language == "en":  # the order of the words tells
        return None
    between = query[at + 1 : place]
    follows = not between or (len(between) == 1 and between[0] in little) or between[-1] == "que"
    return follows and query[at] != "wer"


def _done_by(words: Sequence[str], language: str) -> set[str]:
    """Returns the words behind those for "by", without articles and words of a question: {"ada"} of "taught by the Ada
    whom I know"."""
    named = set[str]()
    for at, word in enumerate(words):
        if word in _BY[language] and not _WHO.intersection(words[at + 1 : at + 2]):
            named.update([each for each in words[at + 1 : at + 4] if each not in FUNCTION_WORDS[language]][:1])
    return named


_BY = {
    "en": {"by", "from"},
    "de": {"von", "vom"},
    "es": {"por"},
    "fr": {"par"},
    "it": {"da", "dal", "dalla", "dallo", "dall", "dai", "dagli", "dalle"},
    "pt": {"por", "pelo", "pela", "pelos", "pelas"},
}
_WHO = frozenset("who whom wer wem wen chi qui quien quem".split())
_WHOM = frozenset("whom wem wen".split())
_LETTERS = re.compile(r"[^\W\d_]+")
_GENITIVE = re.compile(r"['\u2019]s\b")
