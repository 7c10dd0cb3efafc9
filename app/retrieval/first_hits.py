"""The second step of the ranking: it orders the first hits among themselves.

The ranking compares a document with all others of the scope, and so finds the documents about the query. Among the
first hits other properties tell which of them answers it:

- A newer statement mostly holds: asked "Where do I live?", "I moved to Boston" goes before the older "I live in Paris".
- A person's statement tells more than a question, or than what an assistant made of that statement.
- What an assistant answered when the same was asked before is second-hand: "You live in Paris." was made from what
  memory had then, right or wrong.
- A later statement replaces an earlier statement about the same subject: asked "What is the budget?", "Sorry, the
  budget is 12k" replaces "The budget is 20k". Asked for my dog, "My sister's dog is called Bo" does not replace "My dog
  is called Rex": its words differ before the new value, too (`same_subject`).

The time of a long text counts less: it says many things, and the new thing in it need not be what was asked for.

How much each property counts is fitted by scripts/fit_ranking.py, as the weights of the ranking are (conditional logit
among the first hits, McFadden 1974), apart for turns of conversations and for plain memories. Turns of two people with
names keep the order of the ranking: there these properties gained nothing.
"""

import re
from collections.abc import Iterator, Mapping, Set
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np

from app.retrieval.features import LONG_TEXT, TINY, assistants, plain_memories, questions, term_weights
from app.retrieval.model_weights import FirstHitWeights, Weights
from app.retrieval.query import SettledQuery
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import name_id, terms, words_in_order

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. The document that answers is among them for
9 of 10 questions."""
FAR = 4.0
"""The greatest distance to the best hit, in log-odds, that `gap` has: a hit that is 9 behind counts as 4 behind."""
ENOUGH_OF_QUERY = 0.4
"""Minimum share of the weight of a query's words that two hits have in common where the later hit replaces the earlier.
With a lower minimum, recall@10 falls by .07 in MemDaily, a benchmark of daily notes that resemble each other."""
TURNED = 2.0
"""Log-odds that a document loses that has the words of the query the other way round, beside one that has them in its
order."""
LONGEST = 1_000
"""Characters of a text of which it is told what it speaks of."""
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
    gained[list(columns.turned)] -= np.float32(TURNED)
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
        renewed = (share * later).max(axis=1, initial=0)
        replaced = (has_all * later * _replaces(columns, group)).max(axis=1, initial=0)
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


def _replaces(columns: Columns, group: Ints) -> Bools:
    """Returns for each hit (row) which other hits (columns) are known to replace it (`Columns.replaced`)."""
    pairs: Bools = np.zeros((len(group), len(group)), np.bool_)
    places = {index: place for place, index in enumerate(group.tolist())}
    for earlier, later in columns.replaced:
        if earlier in places and later in places:
            pairs[places[earlier], places[later]] = True
    return pairs


def possible_replacements(columns: Columns, order: Ints, parts: Mapping[str, Floats]) -> list[tuple[int, int]]:
    """Returns, for each of the first plain memories, the newest of those that have all its words of the query and are
    later: the pairs whose texts tell whether they speak of the same subject."""
    start = order[: 2 * FIRST]
    start = start[says_something(parts, start)]
    group = start[plain_memories(columns)[start]][:FIRST]
    if len(group) < 2:
        return []
    time, speaker = columns.time[group], columns.speaker[group]
    _, has_all = _common_words(columns, group)
    later = has_all & (time > time[:, None]) & (speaker == speaker[:, None]) & ~_same_texts(columns, group)
    newest = np.where(later, time, np.iinfo(np.int64).min).argmax(axis=1)
    return [(int(group[at]), int(group[newest[at]])) for at in np.flatnonzero(later.any(axis=1))]


def alike(columns: Columns, order: Ints, odds: Floats) -> list[list[int]]:
    """Returns groups of the first plain memories that have the same words of the query, two words at least, and about
    the same log-odds: the documents whose texts tell who does what to whom (`turned`)."""
    start = order[plain_memories(columns)[order]][:FIRST]
    start = start[odds[start] >= odds[start[:1]] - TURNED]  # what lies farther behind stays behind
    has = columns.term_counts[:, start] > 0
    groups: dict[bytes, list[int]] = {}
    for place, index in enumerate(start.tolist()):
        if np.count_nonzero(has[:, place]) > 1:
            groups.setdefault(has[:, place].tobytes(), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def turned(texts: Mapping[int, str], query: str) -> list[int]:
    """Returns which texts have more neighbouring words of the query the other way round than another one of them.

        turned({0: "Mira manages Olaf", 1: "Olaf manages Pia"}, "Who manages Olaf?") == [1]

    A genitive turns the two: "Olaf's parent" is whose parent is Olaf in "Mira parent of Olaf".
    """
    asked, genitive = terms(query), _GENITIVE.search(query) is not None
    counts: dict[int, int] = {}
    for index, text in texts.items():
        words = words_in_order(text) if len(text) <= LONGEST else []
        at = {word: words.index(word) for word in asked if word in words}
        before_of = {word for word, place in at.items() if genitive and words[place + 1 : place + 2] == ["of"]}
        counts[index] = sum(
            (at[one] > at[other]) != bool(before_of & {one, other})
            for one, other in pairwise(word for word in asked if word in at)
            if one != other
        )
    return [index for index, count in counts.items() if count > min(counts.values())]


_GENITIVE = re.compile(r"['\u2019]s\b")


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
    old, new = _clause_about(earlier, asked), _clause_about(later, asked)
    if {*terms(earlier)} < {*terms(later)}:
        return True
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


def _clause_about(text: str, asked: Set[str]) -> list[str]:
    """Returns the words of a text, as terms, from the first clause with a word of the query to the last one."""
    clauses = [words_in_order(clause) for clause in _CLAUSE_END.split(text)]
    about = [at for at, clause in enumerate(clauses) if not asked.isdisjoint(clause)]
    return [word for clause in clauses[about[0] : about[-1] + 1] for word in clause] if about else []


_CLAUSE_END = re.compile(r"[,:;.!?\n](?=\s|\Z)|[\uff0c\u3002\uff01\uff1f\uff1b\u3001\uff1a]")


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
