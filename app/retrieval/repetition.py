"""Texts that say what another one says. A search shows one of them, the newest, and counts them once.

`Likes oat milk in coffee` and `likes oat milk in her coffee.` are the same statement. `Room 12 has the projector` and
`Room 14 has the projector` are two, and so are `He likes tea` and `He does not like tea`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.core.caches import kept_by_digest
from app.core.clock import from_ms
from app.core.language import STOP_WORDS, wording
from app.retrieval.decay import DAY_MS
from app.retrieval.features import equal_contents
from app.retrieval.query_analysis import plain_memories
from app.storage.protocol import Fetched
from app.storage.schema import Doc
from app.storage.search import Bools, Columns
from app.storage.text import DATE_TERMS, HAS_EVENT_TIME, HAS_NUMBER_OR_TIME_WORD, IS_QUESTION, name_id

COMPARED = 20
"""So many of the best documents are compared with each other, or twice as many as there are hits. Where some of them
say the same, those that come in their place are compared, too, `ROUNDS` times at most."""
ROUNDS = 4
MOST_NAMED = 20
"""Others that `explain` names."""
LONGEST = 1_000
"""Characters of a text that is compared. Longer ones are the same only if their contents are equal."""
_PUNCTUATION = frozenset(".,;:!\"'()\u2026\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb")
_USER = name_id("user")


@dataclass(frozen=True, slots=True)
class Repeated:
    """The documents that say what a hit says, itself included."""

    count: int
    since: int
    """Milliseconds since 1970: the earliest time of one."""
    others: Sequence[int]
    """The newest `MOST_NAMED` of them, without the hit."""

    def shown(self, documents: Mapping[int, Fetched], id_field: str | None) -> Doc:
        """Returns it as responses show it. `id_field`: the field with the ids of the others, if they are asked for."""
        found: Doc = {"count": self.count, "since": from_ms(self.since)}
        if id_field is None:
            return found
        return found | {"ids": [documents[index].doc[id_field] for index in self.others if index in documents]}


def says_the_same(one: str, other: str) -> bool:
    """Returns whether two texts have the same words in the same order, but for stop words that one has more.

    Numbers, names and negations are no stop words. A stop word that stands for another one makes a difference: "from
    Oslo to Rome" is not "to Oslo from Rome".
    """
    if max(len(one), len(other)) > LONGEST:
        return False
    shorter, longer = sorted((_words(one), _words(other)), key=len)
    at = 0
    for word in longer:
        if at < len(shorter) and word == shorter[at]:
            at += 1
        elif word not in STOP_WORDS:
            return False
    return at == len(shorter)


@kept_by_digest(4 << 20, lambda found: 100 * (1 + len(found)))
def _words(text: str) -> list[str]:
    return [word for word in wording(text) if word not in _PUNCTUATION]


@kept_by_digest(4 << 20, lambda found: 100 * (1 + len(found)))
def _content_words(text: str) -> tuple[str, ...]:
    """Returns the words that are no stop words. Texts that say the same have the same ones in the same order."""
    return tuple(word for word in _words(text) if word not in STOP_WORDS) if len(text) <= LONGEST else ()


def suspects(columns: Columns, among: Sequence[int], *, of_days: bool) -> list[list[int]]:
    """Returns groups of documents that may say the same, each with two at least: of one speaker, as long, and with as
    many of each word of the query. `of_days`: what happened on different days is not the same."""
    flags, length, time, speaker = (
        column.take(among).tolist() for column in (columns.flags, columns.length, columns.time, columns.speaker)
    )
    plain = plain_memories(columns).take(among).tolist()
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, index in enumerate(among):
        is_dated = bool(flags[place] & HAS_EVENT_TIME)
        key = (
            length[place] - DATE_TERMS * is_dated,
            flags[place] & (IS_QUESTION | HAS_NUMBER_OR_TIME_WORD),
            0 if plain[place] or speaker[place] == _USER else speaker[place],
            time[place] // DAY_MS if of_days and is_dated and plain[place] else None,
        )
        groups.setdefault(key, []).append(index)
    by_words: dict[tuple[int, bytes], list[int]] = {}
    for number, group in enumerate(groups.values()):
        for index in group if len(group) > 1 else ():
            by_words.setdefault((number, columns.hits[:, index].tobytes()), []).append(index)
    return [group for group in by_words.values() if len(group) > 1]


def same_statements(
    columns: Columns, groups: Sequence[Sequence[int]], texts: Mapping[int, tuple[str, object]]
) -> list[list[int]]:
    """Returns the documents of each group that say the same, the newest first, two at least. `texts`: the text of each
    document, and what else must be equal."""
    found: list[list[int]] = []
    for group in groups:
        by_words: dict[tuple[str, ...], list[list[int]]] = {}
        for index in sorted((index for index in group if index in texts), key=lambda index: -columns.time[index]):
            text, rest = texts[index]
            statements = by_words.setdefault(_content_words(text), [])
            known = next(
                (one for one in statements if texts[one[0]][1] == rest and says_the_same(texts[one[0]][0], text)), None
            )
            if known is None:
                statements.append([index])
            else:
                known.append(index)
        found += [one for statements in by_words.values() for one in statements if len(one) > 1]
    return found


def joined(columns: Columns, known: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns the statements, those with a document in common as one, the newest document of each first."""
    statements = [list(one) for one in known]
    for one in found:
        apart = [each for each in statements if set(each).isdisjoint(one)]
        with_it = [each for each in statements if each not in apart]
        statements = [*apart, [*{*one}.union(*with_it)]]
    return [sorted(one, key=lambda index: -columns.time[index]) for one in statements]


def leave_one(columns: Columns, statements: Sequence[Sequence[int]]) -> None:
    """Takes all but the first of each statement out of what matched, and out of the frequencies of the query's
    words."""
    others = [index for one in statements for index in one[1:] if columns.matched[index]]
    columns.matched &= ~np.isin(columns.content, columns.content[others])
    columns.df = np.maximum(columns.df - np.count_nonzero(columns.hits[:, others], axis=1), 0).astype(np.float32)
    columns.count -= len(others)
    columns.repeated = [kept for kept, *_ in statements]


def repeated(
    columns: Columns, findable: Bools, best: Sequence[int], statements: Sequence[Sequence[int]]
) -> dict[int, Repeated]:
    """Returns what says the same as each hit, by the hit's index, for hits that are not alone. `findable`: what matched
    before `leave_one`."""
    if not best or (not statements and equal_contents(columns) is None):
        return {}
    same = {one[0]: columns.content[list(one)] for one in statements}
    contents = {index: same.get(index, columns.content[[index]]) for index in best}
    all_of_them = np.flatnonzero(findable & np.isin(columns.content, np.concatenate([*contents.values()])))
    found: dict[int, Repeated] = {}
    for index, wanted in contents.items():
        mine = all_of_them[np.isin(columns.content[all_of_them], wanted)]
        if len(mine) > 1:
            others = mine[mine != index]
            newest = others[np.argsort(-columns.time[others], kind="stable")]
            found[index] = Repeated(len(mine), int(columns.time[mine].min()), newest[:MOST_NAMED].tolist())
    return found
