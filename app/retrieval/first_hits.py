"""The second step of the ranking: it orders the first hits among themselves.

The ranking compares a document with all others of the scope, and so finds the documents about the query. Among the
first hits other properties tell which of them answers it:

- A newer statement mostly holds: asked "Where do I live?", "I moved to Boston" goes before the older "I live in Paris".
- A person's statement tells more than a question, or than what an assistant made of that statement.
- What an assistant answered when the same was asked before is second-hand: "You live in Paris." was made from what
  memory had then, right or wrong.
- A later statement replaces an earlier statement with the same words of the query: asked "What is the budget?",
  "Sorry, the budget is 12k" replaces "The budget is 20k".

The time of a long text counts less: it says many things, and the new thing in it need not be what was asked for.

How much each property counts is fitted by scripts/fit_ranking.py, as the weights of the ranking are (conditional logit
among the first hits, McFadden 1974), apart for turns of conversations and for plain memories. Turns of two people with
names keep the order of the ranking: there these properties gained nothing.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from app.retrieval.features import LONG_TEXT, TINY, term_weights
from app.retrieval.memory_kinds import assistants, plain_memories, questions
from app.retrieval.model_weights import FirstHitWeights, Weights
from app.retrieval.query_settling import SettledQuery
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import name_id

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. The document that answers is among them for
9 of 10 questions."""
FAR = 4.0
"""The greatest distance to the best hit, in log-odds, that `gap` has: a hit that is 9 behind counts as 4 behind."""
ENOUGH_OF_QUERY = 0.4
"""Minimum share of the weight of a query's words that two hits have in common where the later hit replaces the earlier.
With a lower minimum, recall@10 falls by .07 in MemDaily, a benchmark of daily notes that resemble each other."""
EQUAL = 1e-4
"""Two hits whose cosines to the query differ by less have the same text."""
PROPERTIES = ("gap", "cosine", "newness", "statement", "length", "renewed", "second_hand", "replaced")
"""The fields of `FirstHitWeights`, in this order."""
NO_ORDER = FirstHitWeights()
USER = name_id("user")
"""The speaker of what a user without a name says."""


def order_first_hits(
    columns: Columns, query: SettledQuery, odds: Floats, order: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> tuple[Ints, Floats | None]:
    """Returns `order` with the first hits ordered among themselves, turns and plain memories apart, and the log-odds
    that each document gains by this, shape (n,). A document that falls gains less than 0; None stands for no change.

    `order`: indices of the documents, the best first. `odds`: the log-odds of each document. `parts`: the parts of
    these log-odds that not every query has, by their names in `ranking.py`, such as `echo` and `when`.
    """
    if not query.subject:  # a query of a time alone is ordered by that time
        return order, None
    start = order[: 2 * FIRST]
    gained = np.zeros(len(odds), np.float32)
    for group, fitted in groups_of_first(columns, start, weights, parts):
        gained[group] = gains(properties(columns, odds, group, parts, past=asks_for_past(query, parts)), fitted)
    if not gained.any():
        return order, None
    # all documents are sorted, because a first hit may fall behind those that follow: "The budget is 20k", which
    # "Sorry, the budget is 12k" replaces, falls far behind
    return order[(-(odds + gained)[order]).argsort(kind="stable")], gained


def asks_for_past(query: SettledQuery, parts: Mapping[str, Floats]) -> bool:
    """Returns whether the query names a time or asks for the earliest."""
    return "when" in parts or query.order == "earliest"


def groups_of_first(
    columns: Columns, start: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> Iterator[tuple[Ints, FirstHitWeights]]:
    """Yields the turns and the plain memories that are ordered among themselves, at least two of a kind, with the
    weights of their order.

    `start`: indices of the best documents, the best first. Turns are ordered if an assistant said one of the documents
    in `start`, be it "Noted.", or if all turns are of a user without a name: when two people talk, "I" in the turns of
    one is not "I" in those of the other.
    """
    with_assistant = assistants(columns)[start].any()
    start = start[says_something(parts, start)]
    plain = plain_memories(columns)[start]
    turns, memories = start[~plain][:FIRST], start[plain][:FIRST]
    of_one_person = with_assistant or (columns.speaker[turns] == USER).all()
    if len(turns) > 1 and weights.first_turns != NO_ORDER and of_one_person:
        yield turns, weights.first_turns
    if len(memories) > 1 and weights.first_plain != NO_ORDER:
        yield memories, weights.first_plain


def says_something(parts: Mapping[str, Floats], among: Ints) -> Bools:
    """Returns the mask, shape (len(among),), of the documents that are neither an `echo` (a question that asks what the
    query asks) nor a `filler` ("Noted."). `among`: indices of documents."""
    stating = np.ones(len(among), np.bool_)
    for name in ("echo", "filler"):
        if name in parts:
            stating &= parts[name][among] == 0
    return stating


def properties(columns: Columns, odds: Floats, group: Ints, parts: Mapping[str, Floats], *, past: bool) -> Floats:
    """Returns the properties of the first hits of one kind, a row for each name of `PROPERTIES` and a column for each
    hit. `group`: indices of the hits. `parts`: as in `order_first_hits`. `past`: the query names a time, or asks for
    the earliest, so that no later hit replaces an earlier hit.

    - `gap`: the log-odds that the hit has more than the best hit, from −`FAR` to 0.
    - `cosine`: that of the hit and the query.
    - `newness`: 0 for the oldest hit, 1 − `length` for the newest. Only statements have it: an assistant's answer is no
      newer than what it rests on.
    - `statement`: 1 for what a person states, 0 for a question and for what an assistant says.
    - `length`: grows with the logarithm of the number of terms; 1 for a text of 147 terms.
    - `second_hand`: 1 for what an assistant said right after an `echo`, a question that asks what the query asks.
    - `renewed` and `replaced`: how surely a later hit says something else about the same thing, 0 to 1. The words of
      the query that the hit has are looked for in the later hit. For `renewed` their share counts, and less in a long
      text; for `replaced` the later hit must have all of them.
    """
    time, same = columns.time[group], _same_texts(columns, group)
    newest_time = np.where(same, time, time.min()).max(axis=1)  # a text that was said twice is as new as its last time
    times = np.unique(newest_time)
    newness = times.searchsorted(newest_time) / max(len(times) - 1, 1)
    asks = questions(columns)[group]
    by_assistant = assistants(columns)[group]
    statement = ~(by_assistant | asks)
    gap = np.maximum(odds[group] - odds[group].max(), -FAR)
    length = np.log1p(columns.length[group]) / LONG_TEXT
    brief = np.maximum(1 - length, 0)
    renewed = replaced = np.zeros(len(group), np.float32)
    if not past:
        share, has_all = _common_words(columns, group)
        later = _later(columns, gap, group, asks, same)
        renewed, replaced = (share * later).max(axis=1, initial=0), (has_all * later).max(axis=1, initial=0)
    second_hand = np.zeros(len(group), np.bool_)
    if "echo" in parts:
        before = columns.previous[group]
        second_hand = by_assistant & (before >= 0) & (parts["echo"][before] > 0)
    newness *= statement * brief
    rows = gap, columns.cosine[group], newness, statement, length, renewed * brief, second_hand, replaced
    return np.array(rows, np.float32)


def _common_words(columns: Columns, group: Ints) -> tuple[Floats, Bools]:
    """Returns for each hit (row) and each other hit (column) what the other hit has of the query's words that the hit
    has: their share, weighed by rarity, and whether it has all of them and they are `ENOUGH_OF_QUERY`.

    Asked "What is the budget?", "The budget is 20k" has the word "budget", and "Sorry, the budget is 12k" has it, too:
    the share is 1.
    """
    weights, total = term_weights(columns)
    has = columns.term_counts[:, group] > 0
    common = np.add.reduce((has[:, :, None] & has[:, None, :]) * weights[:, :, None], axis=0)
    of_hit = common.diagonal()[:, None]
    lacks = (has[:, :, None] & ~has[:, None, :]).any(axis=0)
    has_all: Bools = (of_hit >= ENOUGH_OF_QUERY * max(total, TINY)) & ~lacks
    return common / np.maximum(of_hit, TINY), has_all


def _later(columns: Columns, gap: Floats, group: Ints, asks: Bools, same: Bools) -> Floats:
    """Returns for each hit (row) how much each other hit (column) counts as a later statement of the same speaker, 0 to
    1: the less, the farther its log-odds are behind those of the row's hit. A question counts nothing, nor does the
    same text said again."""
    time, speaker = columns.time[group], columns.speaker[group]
    behind = np.maximum(gap[:, None] - gap, 0) / FAR
    later = (time > time[:, None]) & (speaker == speaker[:, None]) & ~asks & ~same
    counts: Floats = (1 - behind**2) * later
    return counts


def _same_texts(columns: Columns, group: Ints) -> Bools:
    """Returns which pairs of hits have the same text, shape (len(group), len(group)).

    Two memories with the same text but different keys differ in `content`; their vectors are equally near to the query.
    """
    content, cosine, has_vector = columns.content[group], columns.cosine[group], columns.has_vector[group]
    near = (np.abs(cosine - cosine[:, None]) < EQUAL) & has_vector & has_vector[:, None]
    same: Bools = (content == content[:, None]) | near
    return same


def gains(values: Floats, weights: FirstHitWeights) -> Floats:
    """Returns the log-odds that each hit gains on the first hit, shape (len(group),).

    `values`: what `properties` returns for hits with falling log-odds. The first hit gains 0: it keeps its log-odds,
    and with them its place among documents of the other kind.
    """
    factors = np.array([[getattr(weights, name)] for name in PROPERTIES], np.float32)
    gain: Floats = np.add.reduce(factors * values, axis=0)
    gain -= gain[0]
    return gain
