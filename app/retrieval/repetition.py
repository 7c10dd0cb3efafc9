"""Repetitions: texts that say what another one says. A search shows one of them, the newest, and counts them once.

`Likes oat milk in coffee` and `likes oat milk in her coffee.` are the same statement. `Room 12 has the projector` and
`Room 14 has the projector` are two, and so are `He likes tea` and `He does not like tea`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from app.core.caches import kept_by_digest
from app.core.clock import from_ms
from app.core.language import STOP_WORDS, wording
from app.core.schemas import Timestamp, shown
from app.retrieval.decay import DAY_MS
from app.retrieval.features import equal_contents, plain_memories
from app.storage.protocol import Fetched
from app.storage.search import Bools, Columns
from app.storage.text import DATE_TERMS, HAS_EVENT_TIME, HAS_NUMBER_OR_TIME_WORD, IS_QUESTION, name_id

COMPARED = 24
"""So many of the best documents are compared with each other, or twice as many as there are hits: no fewer than those
that are ordered among themselves (`2 * ranking.FIRST`). Where some of them say the same, those that come in their place
are compared, too, `ROUNDS` times at most."""
ROUNDS = 4
MOST_NAMED = 20
"""Others that `explain` names."""
LONGEST = 1_000
"""Characters of a text that is compared. Longer ones are the same only if their contents are equal."""
_PUNCTUATION = frozenset(".,;:!\"'()\u2026\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb")
_USER = name_id("user")


@shown
class Repetition(TypedDict):
    """How often a memory was said: the texts that it stands for are equal, or differ in stop words, case and marks
    alone."""

    count: Annotated[int, Field(description="The texts that say it, this one included.")]
    since: Annotated[Timestamp, Field(description="The time of the first (`event_at`, else `created_at`).")]
    ids: Annotated[
        NotRequired[list[str]],
        Field(default=[], description="With `explain`: the others, the newest 20. Else absent."),
    ]


@dataclass(frozen=True, slots=True)
class HitRepetition:
    """The documents that say what a hit says, itself included."""

    count: int
    since: int
    """Milliseconds since 1970: the earliest time of one."""
    others: Sequence[int]
    """The newest `MOST_NAMED` of them, without the hit."""

    def shown(self, documents: Mapping[int, Fetched], id_field: str | None) -> Repetition:
        """Returns it as responses show it. `id_field`: the field with the ids of the others, if they are asked for."""
        answer: Repetition = {"count": self.count, "since": from_ms(self.since)}
        if id_field is not None:
            answer["ids"] = [documents[index].doc[id_field] for index in self.others if index in documents]
        return answer


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


@kept_by_digest(4 << 20, lambda words: 100 * (1 + len(words)))
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
            by_words.setdefault((number, columns.term_counts[:, index].tobytes()), []).append(index)
    return [group for group in by_words.values() if len(group) > 1]


def repetitions_among(
    columns: Columns, groups: Sequence[Sequence[int]], texts: Mapping[int, tuple[str, object]]
) -> list[list[int]]:
    """Returns the repetitions in each of the groups: documents that say the same, the newest first, two at least.
    `texts`: the text of each document, and what else must be equal."""
    repetitions: list[list[int]] = []
    for group in groups:
        by_words: dict[tuple[str, ...], list[list[int]]] = {}
        for index in sorted((index for index in group if index in texts), key=lambda index: -columns.time[index]):
            text, rest = texts[index]
            with_these_words = by_words.setdefault(_content_words(text), [])
            for repetition in with_these_words:
                newest_text, newest_rest = texts[repetition[0]]
                if newest_rest == rest and says_the_same(newest_text, text):
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
    return [sorted(repetition, key=lambda index: -columns.time[index]) for repetition in result]


def said_once(columns: Columns, repetitions: Sequence[Sequence[int]]) -> Columns:
    """Returns the columns in which the first document of each repetition stands for all: the others do not match, and
    do not count in the frequencies of the query's words."""
    others = [index for repetition in repetitions for index in repetition[1:] if columns.matched[index]]
    with_term = np.count_nonzero(columns.term_counts[:, others], axis=1)
    matched, groups = columns.matched.copy(), equal_contents(columns)
    matched[others if groups is None or not others else groups.like(others)] = False
    return replace(
        columns,
        matched=matched,
        df=np.maximum(columns.df - with_term, 0).astype(np.float32),
        count=columns.count - len(others),
        repeated=[newest for newest, *_ in repetitions],
    )


def repetitions_of_hits(
    columns: Columns, findable: Bools, best: Sequence[int], said_again: Sequence[Sequence[int]]
) -> dict[int, HitRepetition]:
    """Returns what says the same as each hit, by the hit's index, for hits that are not alone. `findable`: what matched
    before `said_once`. `said_again`: the repetitions that it was given."""
    groups = equal_contents(columns)
    if not said_again and groups is None:
        return {}
    said_as = {indices[0]: indices for indices in said_again}
    repetitions: dict[int, HitRepetition] = {}
    for index in best:
        own = said_as.get(index, [index])
        same = np.array(own) if groups is None else groups.like(own)
        same = same[findable[same]]
        if len(same) > 1:
            others = np.sort(same[same != index])  # as they are stored
            newest = others[np.argsort(-columns.time[others], kind="stable")]
            repetitions[index] = HitRepetition(len(same), int(columns.time[same].min()), newest[:MOST_NAMED].tolist())
    return repetitions
