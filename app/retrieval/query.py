"""A query, as far as it is read before the ranking: its text, its vector, and what the searched documents
have of its words.

    analysed = analyse("When did Ann sign the NDA?", ["Ann", "Bob"])
    analysed.stripped  # "When did sign the NDA?", the text to embed
    analysed.speaker  # name_id("Ann")

The steps are `analyse_off_loop`, `with_names`; then, of the vector, `towards_what_is_denied`; and after the store was
searched for its terms, `settle` weighs them by what the searched documents have of them:

    corrections = find_corrections(columns, analysed)  # mistyped words; if there are any, it is searched again
    columns, settled = settle(columns, analysed, corrections, vector, model)

All functions are pure: columns come back as new ones.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from app.core.caches import ByteCache
from app.core.language import FUNCTION_WORDS, fold, sentences, word_count
from app.core.language import whole as pattern_of_word
from app.core.work import in_turn
from app.embedding.model import knows_all_scripts, without_runtime
from app.retrieval.time_expressions import MAX_CHARS, asked_order, fold_in_place, likeliest
from app.retrieval.time_grammar import TimeOrder
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import (
    TermIds,
    Whole,
    acronyms,
    name_id,
    normalise_content,
    notations,
    parts_of_runs,
    spelled,
    term_ids,
    terms,
    text_ids,
    wholes,
    written_apart,
)

ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "ai", "bot", "agent", "human"})
"""Roles that are never names.

A message without a name has its role as speaker, but a query that says "user" names nobody.
"""

LAST_LATIN = "\u024f"
MAX_TERMS = 2_000
"""Most distinct terms that are looked for. A search takes longer with each, and a longer text is no question."""
MAX_IDENTIFIERS = 50
"""Identifiers of a query that are looked for as a whole, and none of a query longer than `LONG_QUERY`."""
MAX_NAMES = 8
"""Other names of an entity that are looked for."""
LONG_QUERY = 4_000
"""Characters that take about two milliseconds to analyse."""
MAX_KEPT_CHARS = 1_000
"""Maximum length of a query whose analysis is cached. Its vector is cached as well."""
LONGEST_NAME = 64
"""Characters of a name that queries are searched for. Nobody writes a longer one in full."""
SCRIPT_SAMPLE = 2_000
"""Characters from the beginning of a query that show its script."""
MOST_WORDS, FEW_WORDS = 300, 2
_TURN = re.compile(r"^(?:[^\S\n]|[*_#>-])*([^\W\d_][\w .]{0,30}?)[*_]*\s?(?:\uff1a|:[*_]*(?=\s|$))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """An entity that the query calls by a name, and that has other names."""

    name: TermIds
    """Terms of the name in the query."""
    others: tuple[TermIds, ...]
    """Terms of each other name."""
    added: TermIds
    """Terms of the other names that the query itself does not have."""


@dataclass(frozen=True, slots=True)
class Acronym:
    """A word of the query that may be the initials of others: `NDA` of "non-disclosure agreement"."""

    term: int
    """Id of the acronym as a term, which no document has: `settle` counts there which documents have all pairs."""
    word: TermIds
    """Ids of the word itself."""
    pairs: TermIds
    """Ids of its pairs of initials (`storage.text.acronyms`): `^nd` and `^da`."""
    lower: bool
    """It is in small letters, and counts for a word where a searched document has that word."""

    @property
    def looked_for(self) -> TermIds:
        return np.append(self.pairs, np.uint32(self.term))


@dataclass(frozen=True, slots=True)
class AnalysedQuery:
    """What the text of a query says, before the store is searched for it."""

    stripped: str
    """The text to embed."""
    terms: TermIds
    """The distinct term ids to look for, ascending."""
    speaker: int
    """Name id of the one speaker that the query names, or 0."""
    name: TermIds = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The terms of the name of that one speaker."""
    foreign: float = 0.0
    """Share of its letters that are not Latin."""
    order: TimeOrder | None = None
    """Which of several answers it asks for by their times: "present", "latest" or "earliest" (`asked_order`)."""
    identifiers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The ids of the parts of each identifier, by its own id (`storage.text.wholes`)."""
    if_present: frozenset[int] = frozenset()
    """Those of the identifiers that count only where a searched document has them: what the query may have written as
    several words, "parse user id", and values and names in another notation (`storage.text.notations`)."""
    if_present_rows: Ints = field(init=False)
    """The rows of `terms`, and so of `Columns.term_counts`, that they have."""
    always_rows: Ints = field(init=False)
    """The rows of the other terms."""
    numbers: TermIds = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The terms that are numbers, in digits or in words."""
    characters: TermIds = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The terms that are Han characters of a longer run, which as often as not are a part of another word."""
    function_words: TermIds = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The function words of its language, of the query or not. Those of English are no terms."""
    times: TermIds = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The terms that are days or minutes of the day: `@04-13`, `@1145`."""
    spelled: Mapping[int, str] = field(default_factory=dict)
    """The terms, by id, that may be mistyped."""
    acronyms: Sequence[Acronym] = ()
    entities: Sequence[NamedEntity] = ()
    """What the query calls by one of several names."""

    def __post_init__(self) -> None:
        is_if_present = _are(self.terms, self.if_present)
        object.__setattr__(self, "if_present_rows", np.flatnonzero(is_if_present))
        object.__setattr__(self, "always_rows", np.flatnonzero(~is_if_present))


def leading_part(query: str) -> str:
    """Returns what a query asks: of a transcript the last turn ("User: hi", "Assistant: …", "User: Who has my keys?"),
    of another text of more than `MOST_WORDS` words its last question. A last turn of a word or two, such as "yes", asks
    what the turn before it says. Of other queries, all is asked."""
    turns = list(_TURN.finditer(query)) if "\n" in query else []
    speakers = [fold(turn[1]) for turn in turns]
    if (
        len(turns) > 1
        and not query[: turns[0].start()].strip()
        and (len({*speakers}) < len(turns) or ROLES.issuperset(speakers))
    ):
        said = [
            query[turn.end() : after].strip()
            for turn, after in zip(turns, [*(t.start() for t in turns[1:]), None], strict=True)
        ]
        first = len(said) - 1 if "?" in fold(said[-1]) or len(terms(said[-1])) > FEW_WORDS else len(said) - 2
        return "\n".join(filter(None, said[first:])) or query
    if len(query) < 2 * MOST_WORDS or word_count(query) <= MOST_WORDS:
        return query
    questions = [
        sentence for sentence in sentences(query[-LONG_QUERY:]) if sentence.strip().endswith(("?", "\uff1f", "\u061f"))
    ]
    return questions[-1].strip() if questions else query


async def analyse_off_loop(query: str, speakers: Sequence[str]) -> AnalysedQuery:
    """Returns `analyse(query, speakers)`, for a long query from a thread, so that it does not stop the event loop."""
    if len(query) <= LONG_QUERY:
        return analyse(query, speakers)
    return await in_turn(analyse, query, speakers)


def analyse(query: str, speakers: Sequence[str]) -> AnalysedQuery:
    """Analyses a query. `speakers`: the names of the speakers of the searched documents.

    Of the distinct terms the first `MAX_TERMS` are looked for: words come before pairs of characters and those before
    single characters (scripts without spaces), each in the order of the text.

    The text to embed leaves out the speakers' names, because a name says who spoke and a turn rarely contains the name
    of its own speaker. On LoCoMo this raises recall@10 of the vector alone from 0.38 to 0.56.
    """
    key = query, tuple(speakers)
    if len(query) > MAX_KEPT_CHARS:
        return _analyse_uncached(*key)
    return _ANALYSED.get(key) or _ANALYSED.keep(key, _analyse_uncached(*key))


def _analyse_uncached(query: str, speakers: tuple[str, ...]) -> AnalysedQuery:
    pattern, owners = _MATCHERS.get(speakers) or _MATCHERS.keep(speakers, _matcher(speakers))
    stripped, named, forms = query, set[int](), list[str]()
    if pattern is not None:
        stripped = " ".join(pattern.sub(" ", query).split())
        forms = [match[1] for match in pattern.finditer(query)]
        named = {speaker for form in forms for speaker in owners.get(_form(form), ())}
    if not any(character.isalnum() for character in stripped):
        stripped = query
    ids, first = np.unique(text_ids(query), return_index=True)
    identifiers: dict[int, tuple[int, ...]] = {}
    if len(ids) > MAX_TERMS:
        ids = ids[np.sort(np.argsort(first)[:MAX_TERMS])]
    elif len(query) <= LONG_QUERY and (compounds := wholes(query)[:MAX_IDENTIFIERS]):
        identifiers = _parts_by_id(compounds)
        ids = np.union1d(ids, term_ids([term for identifier in compounds for term in identifier.added]))
    in_notation = notations(query, asked=True)[:MAX_IDENTIFIERS] if len(query) <= LONG_QUERY else []
    if_present = _parts_by_id([*written_apart(query), *in_notation]) if len(ids) < MAX_TERMS else {}
    if if_present := {term: parts for term, parts in if_present.items() if term not in identifiers and term not in ids}:
        ids = np.union1d(ids, np.array([*if_present], np.uint32))
    initials = [
        Acronym(int(term_ids([f"^^{word}"])[0]), text_ids(word), term_ids(pairs), word.islower())
        for word, pairs in (acronyms(query) if len(ids) < MAX_TERMS else {}).items()
    ][:MAX_NAMES]
    if initials:
        ids = np.union1d(ids, np.concatenate([acronym.looked_for for acronym in initials]))
    ids.setflags(write=False)
    times = [whole.term for whole in in_notation if whole.term[0] == "@"]
    return AnalysedQuery(
        stripped,
        ids,
        speaker=next(iter(named)) if len(named) == 1 else 0,
        name=text_ids(" ".join(forms) if len(named) == 1 else ""),
        foreign=_foreign(query),
        order=asked_order(query),
        identifiers=if_present | identifiers,
        if_present=frozenset(if_present),
        function_words=_function_words_of(query),
        characters=term_ids([] if query.isascii() else parts_of_runs(query[:MAX_KEPT_CHARS])),
        numbers=term_ids(
            [term for term in terms(query[:MAX_KEPT_CHARS]) if term.isdecimal()]
            + [
                whole.term
                for whole in in_notation
                if whole.term.isdecimal() and not any(map(str.isdecimal, whole.parts))
            ]
        ),
        times=term_ids(times),
        spelled=spelled(query[:MAX_KEPT_CHARS]),
        acronyms=initials,
    )


def _function_words_of(query: str) -> TermIds:
    """Returns the function words of the language that a query is written in, as terms. What denies is none of them."""
    words = [_FUNCTION_WORDS.get(grammar.code, set()) for grammar in likeliest(fold_in_place(query[:MAX_CHARS]))]
    return term_ids(sorted(words[0].intersection(*words)))


_DENYING = frozenset("no not nicht ne pas non nao".split())
_FUNCTION_WORDS = {
    code: {term for word in words - _DENYING for term in terms(word)}
    for code, words in FUNCTION_WORDS.items()
    if code != "en"  # they are no terms
}


def _parts_by_id(identifiers: Sequence[Whole]) -> dict[int, tuple[int, ...]]:
    """Returns the ids of the parts of each identifier, by its own id.

    Two joined words without a number, as "e-mail", have no parts here: they mean what they mean alone. A+ has one.
    """
    ids = term_ids([identifier.term for identifier in identifiers]).tolist()
    return {
        term: tuple(term_ids(identifier.parts).tolist())
        if identifier.one_word or len(identifier.parts) != 2 or any(map(str.isdecimal, identifier.term))
        else ()
        for term, identifier in zip(ids, identifiers, strict=True)
    }


def with_names(analysed: AnalysedQuery, text: str, names: Sequence[Sequence[str]]) -> AnalysedQuery:
    """Returns the query with the terms of other names of what its `text` names. `names`: those of each entity.

    As the names of speakers, those names are left out of the text to embed: what is looked for may have another one.
    """
    folded = normalise_content(text[:LONG_QUERY])
    entities, stripped, ids = list[NamedEntity](), analysed.stripped, analysed.terms
    for group in names:
        named = [
            name
            for name in group
            if (form := normalise_content(name)) and form in folded and re.search(pattern_of_word(form), folded)
        ]
        if not named:
            continue
        others = tuple(text_ids(name) for name in group if name not in named)[:MAX_NAMES]
        of_name = np.unique(np.concatenate([text_ids(name) for name in named]))
        if others and len(of_name):
            added = np.setdiff1d(np.concatenate(others), analysed.terms)
            entities.append(NamedEntity(of_name, others, added))
            ids = np.union1d(ids, added)
            forms = "|".join(pattern_of_word(name) for name in sorted(named, key=len, reverse=True))
            stripped = re.sub(rf"(?:{forms})(?:['\u2019]s\b)?", " ", stripped, flags=re.IGNORECASE)
    if not entities:
        return analysed
    if not any(character.isalnum() for character in stripped):
        stripped = analysed.stripped
    of_names = {int(term) for entity in entities for term in entity.name}
    return replace(
        analysed,
        stripped=" ".join(stripped.split()),
        terms=ids,
        spelled={term: word for term, word in analysed.spelled.items() if term not in of_names},
        entities=entities,
    )


def _foreign(query: str) -> float:
    query = query[:SCRIPT_SAMPLE]
    if query.isascii():
        return 0.0
    letters = [character for character in query if character.isalpha()]
    return sum(character > LAST_LATIN for character in letters) / max(1, len(letters))


Matcher: TypeAlias = tuple[re.Pattern[str] | None, dict[str, set[int]]]


def _matcher(speakers: tuple[str, ...]) -> Matcher:
    """Returns a pattern for the full and first names of the speakers, with possessives, and the name ids of each
    form."""
    owners: dict[str, set[int]] = {}
    for speaker in speakers:
        words = speaker.split()
        for form in {" ".join(words), *words[:1]} - {""}:
            if len(form) <= LONGEST_NAME and form.casefold() not in ROLES:
                owners.setdefault(_form(form), set()).add(name_id(speaker))
    if not owners:
        return None, owners
    forms = "|".join(pattern_of_word(form) for form in sorted(owners, key=len, reverse=True))
    return re.compile(rf"({forms})(?:['\u2019]s\b)?", re.IGNORECASE), owners


def _size_of_matcher(speakers: tuple[str, ...], matcher: Matcher) -> int:
    pattern, owners = matcher
    of_pattern = 0 if pattern is None else sys.getsizeof(pattern) + sys.getsizeof(pattern.pattern)
    return of_pattern + _size_of_names(speakers) + sum(300 + sys.getsizeof(form) for form in owners)


def _size_of_names(speakers: tuple[str, ...]) -> int:
    return sum(map(sys.getsizeof, speakers))


def _size_of_terms(query: AnalysedQuery) -> int:
    mistyped = sum(150 + sys.getsizeof(word) for word in query.spelled.values()) + 600 * len(query.acronyms)
    arrays = query.terms.nbytes + query.if_present_rows.nbytes + query.always_rows.nbytes + 8 * len(query.numbers) + 250
    return arrays + mistyped + sum(250 + 40 * len(parts) for parts in query.identifiers.values())


_MATCHERS = ByteCache[tuple[str, ...], Matcher](16 << 20, _size_of_matcher)
_ANALYSED = ByteCache[tuple[str, tuple[str, ...]], AnalysedQuery](
    16 << 20,
    lambda key, text: (
        sys.getsizeof(key[0]) + _size_of_names(key[1]) + sys.getsizeof(text.stripped) + _size_of_terms(text)
    ),
)


def _form(name: str) -> str:
    return " ".join(name.casefold().split())


# --- The vector -------------------------------------------------------------------------------------------------------

# Where a query's vector lies along a direction of the space of an embedding model says something of the query, whatever
# it is about. No word is read, and a model without the direction says nothing.

FOLDER = Path(__file__).parent / "data"


@lru_cache(maxsize=16)
def direction(kind: str, model: str, dim: int) -> Floats | None:
    """Returns the direction, shape (dim,): `direction("asks", "recalld-minilm-1:onnx-int8-d4e6ed7b", 384)`. None: the
    model has none, or another model with vectors of another size bears its name."""
    path = FOLDER / f"{kind}_{without_runtime(model)}.npy"
    axis: Floats | None = np.load(path) if "/" not in model and path.is_file() else None
    return None if axis is None or len(axis) != dim else axis


# Whether it denies: "Which herbs does she not like?" asks for what is denied, not for what she likes. The vectors of a
# statement and of what denies it ("likes fish", "hates fish") differ along one direction. So the vector of a query that
# lies on the far side of it is moved along it, and comes nearer to what is denied. scripts/fit_negation.py fits it.

ASSERTED, NEGATED = 0.03, 0.12
"""Where queries lie along the direction: below the first one nothing is denied (95 of 100 questions that ask what is
so), from the second one on everything is."""
FORCE = 0.6
"""How far the vector of a negated query is moved. Two documents as far apart as "likes" and "hates" then differ by 0.1
more in their cosine, and by less than 2 in their log-odds."""


def negation_of(vector: Floats, model: str) -> float:
    """Returns how surely a query denies, 0 to 1, by its `vector` of unit length."""
    denies = direction("negation", model, len(vector))
    if denies is None:
        return 0.0
    return min(max((float(vector @ denies) - ASSERTED) / (NEGATED - ASSERTED), 0.0), 1.0)


def towards_what_is_denied(vector: Floats, model: str) -> Floats:
    """Returns the `vector` of a query, nearer to what is denied as far as the query is negated; both of unit length."""
    denies, negated = direction("negation", model, len(vector)), negation_of(vector, model)
    if denies is None or not negated:
        return vector
    moved = vector + np.float32(FORCE * negated) * denies
    nearer: Floats = (moved / np.linalg.norm(moved)).astype(np.float32)
    return nearer


# Whether it asks for anything that memory may have: "thanks, see you tomorrow!" asks for nothing, in no language. The
# vectors of what asks and of what does not lie apart: how far a query's vector lies along one direction says how likely
# it asks (a linear probe, Alain and Bengio 2016, "Understanding intermediate layers using linear classifier probes"). A
# bare name or a keyword lies between the two. It asks where memory has it: "Rex" where a dog of that name was spoken
# of. scripts/fit_asking.py fits the direction and the numbers; a model without them takes every query for one that
# asks.


def asking_place(vector: Floats, model: str) -> float | None:
    """Returns where the `vector` of a query lies along the direction in which queries ask; None: the model has none."""
    asks = direction("asks", model, len(vector))
    return None if asks is None else float(vector @ asks)


# --- What the searched documents have of its words --------------------------------------------------------------------

PART_OF_IDENTIFIER = 0.3
"""Factor of the weight of an identifier's part where documents have the whole, and of a joined word beside its
parts."""
CHARACTER = 0.4
"""Factor of the weight of a Han character beside its pairs: 天 of 天气 (weather) stands in 每天 (every day), too."""
FUNCTION_WORD = 0.3
"""Factor of the weight of a function word of another language than English: "Qu'est-ce qui coûte 800 euros ?" asks for
800 euros."""
NAME = 0.3
"""Factor of the weight of the name of the speaker whom the query names. The ranking knows who speaks (`speaker`), and
"Congratulations, Mira." is said to her and tells nothing of her address."""
IDENTIFIER = 1.5
"""Factor of the weight of an identifier: where all words are rare, "10.0.4.117" tells more than "uses"."""
CORRECTED = 0.7
"""Factor of the weight of a word at edit distance 1 from one that no searched document has, which keeps the rest of
its own."""
EXPANDED = 0.7
"""Factor of the weight of the initials of an acronym whose word no searched document has, which keeps the rest. Where
one has the word it is the other way round."""
NUMBER_IN_WORDS = 0.7
"""Factor, at most, of the weight of `12` where the query says "twelve"; the word, as its part, keeps the rest
(`PART_OF_IDENTIFIER`)."""


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class SettledQuery:
    """What the ranking reads of a query. The rows of `Columns.term_counts` and `Columns.df` are its terms."""

    terms: TermIds
    speaker: int = 0
    """Name id of the one speaker that the query names, or 0."""
    foreign: float = 0.0
    """Share of its letters that are not Latin; 0 with a model that knows all scripts."""
    order: TimeOrder | None = None
    """Which of several answers it asks for by their times: "present", "latest" or "earliest". The part `latest` of the
    score serves all three. (`Ranked.order` is another thing: the hits, best first.)"""
    subject: bool = True
    """False for a query of a time alone, such as "What happened yesterday?", whose words and vector tell nothing."""
    identifiers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The identifiers that the searched documents have, with their parts."""
    exact: Bools | None = None
    """Mask of the terms that a document does not repeat but matches: identifiers, parts of one, numbers, corrected
    words. None: there are none."""
    telling: Bools | None = None
    """Mask of the terms that are no function words (`AnalysedQuery.function_words`); None: all."""
    unknown: bool = False
    """True if it asks for an identifier of which no searched document has the whole or a part."""
    negation: float = 0.0
    """How surely it denies, 0 to 1 (`negation_of`)."""
    over: Sequence[int] = ()
    """Indices of documents that say that they no longer hold (`is_over`)."""
    asking_place: float | None = None
    """Where its vector lies along the direction in which queries ask (`asking_place`); None: nowhere that is
    known."""


def find_corrections(columns: Columns, analysed: AnalysedQuery) -> dict[int, int]:
    """Returns, for each word of the query that no searched document has, the term that it stands for: of the words at
    edit distance 1 that some have, the one of most documents."""
    of_query = set(analysed.terms.tolist())
    corrections: dict[int, int] = {}
    for term in analysed.terms[columns.df == 0].tolist():
        close = {other: count for other, count in columns.close.get(term, {}).items() if other not in of_query}
        if close:
            corrections[term] = max(close, key=lambda other: (close[other], other))
    return corrections


def looked_for(analysed: AnalysedQuery, corrections: Mapping[int, int]) -> TermIds:
    """Returns the terms to search the store for: the query's own, and those that mistyped ones stand for."""
    if not corrections:
        return analysed.terms
    return np.union1d(analysed.terms, np.array([*corrections.values()], np.uint32))


def settle(
    columns: Columns,
    analysed: AnalysedQuery,
    corrections: Mapping[int, int],
    vector: Floats | None = None,
    model: str = "",
    *,
    subject: bool = True,
) -> tuple[Columns, SettledQuery]:
    """Returns the columns with the terms that count here, each with its weight, and the query for the ranking.
    `columns`: of a search for `looked_for(analysed, corrections)`. `vector`: the vector, by this `model`, that was
    searched with. In a hybrid search without `min_similarity` that of a negated query has been moved
    (`towards_what_is_denied`), so that its negation is near 1.

    An identifier that no document has whole is looked for by its parts alone. One that some have takes most of the
    weight of its parts: 10.0.4.71 shares three words with 10.0.4.17, and is another address. An acronym is looked for
    as a word and as the initials of others.
    """
    foreign = analysed.foreign if analysed.foreign and not knows_all_scripts(model) else 0.0
    settled = SettledQuery(analysed.terms, analysed.speaker, foreign, analysed.order, subject)
    if vector is not None:
        settled.asking_place, settled.negation = asking_place(vector, model), negation_of(vector, model)
    at_most_identifiers = not (
        corrections
        or analysed.entities
        or analysed.acronyms
        or len(analysed.numbers)
        or len(analysed.characters)
        or len(analysed.name)
        or len(analysed.function_words)
    )
    if at_most_identifiers and not analysed.identifiers:
        return columns, settled  # "Where does she live?": its one word, "live", counts as it is
    all_if_present = len(analysed.identifiers) == len(analysed.if_present)
    if at_most_identifiers and all_if_present and not columns.df[analysed.if_present_rows].any():
        # the usual query: no two of its words are an identifier that a searched document has
        settled.terms = analysed.terms.take(analysed.always_rows)
        term_counts, df = columns.term_counts.take(analysed.always_rows, axis=0), columns.df.take(analysed.always_rows)
        return columns.having(term_counts=term_counts, df=df), settled

    terms, term_counts, df = looked_for(analysed, corrections), columns.term_counts.copy(), columns.df.copy()
    _count_other_names(analysed.entities, terms, term_counts, df)
    _count_initials(analysed.acronyms, terms, term_counts, df)

    present = set(terms[df > 0].tolist())
    identifiers = {term: parts for term, parts in analysed.identifiers.items() if term in present}
    expanded = [
        acronym
        for acronym in analysed.acronyms
        if acronym.term in present and not (acronym.lower and present.issuperset(acronym.word.tolist()))
    ]
    counting = ~_are(terms, _not_counting(analysed, present, identifiers, expanded))
    term_counts, df, settled.terms = term_counts[counting], df[counting], terms[counting]

    emphasis, settled.exact = _emphasis(settled.terms, df, identifiers, corrections, expanded)
    is_number = _are(settled.terms, analysed.numbers.tolist())
    settled.exact |= is_number
    in_words = is_number & _are(settled.terms, analysed.if_present)
    emphasis[in_words] = np.minimum(emphasis[in_words], NUMBER_IN_WORDS)
    emphasis[_are(settled.terms, analysed.characters.tolist())] = CHARACTER
    is_function_word = _are(settled.terms, analysed.function_words.tolist())
    if is_function_word.any() and not is_function_word.all():  # "wer ist das" has no other words
        emphasis[is_function_word], settled.telling = FUNCTION_WORD, ~is_function_word
    is_name = _are(settled.terms, analysed.name.tolist())
    if not is_name.all():
        emphasis[is_name] *= np.float32(NAME)
    settled.identifiers = identifiers
    settled.unknown = any(
        term not in present and term not in analysed.if_present and present.isdisjoint(parts)
        for term, parts in analysed.identifiers.items()
    )
    return columns.having(term_counts=term_counts, df=df, emphasis=emphasis), settled


def _count_other_names(entities: Sequence[NamedEntity], terms: TermIds, term_counts: Floats, df: Floats) -> None:
    """Counts, in `term_counts` and `df`, the query's name of an entity for each document that has another name of it:
    asked for Bob, "Robert moved" has `bob`."""
    for entity in entities:
        has_other = np.zeros(term_counts.shape[1], np.bool_)
        for other in entity.others:
            rows = np.flatnonzero(np.isin(terms, other))
            if len(rows):
                has_other |= (term_counts[rows] > 0).all(axis=0)
        rows = np.flatnonzero(np.isin(terms, entity.name))
        term_counts[rows] = np.maximum(term_counts[rows], has_other)
        df[rows] = np.maximum(df[rows], np.count_nonzero(term_counts[rows], axis=1))


def _count_initials(acronyms: Sequence[Acronym], terms: TermIds, term_counts: Floats, df: Floats) -> None:
    """Counts, in `term_counts` and `df`, an acronym for each document that has all of its pairs of initials: asked for
    the NDA, "a non-disclosure agreement" has it."""
    for acronym in acronyms:
        has_pairs = (term_counts[_are(terms, acronym.pairs.tolist())] > 0).all(axis=0)
        row = np.flatnonzero(terms == acronym.term)
        term_counts[row], df[row] = has_pairs, np.count_nonzero(has_pairs)


def _are(terms: TermIds, these: Iterable[int]) -> Bools:
    """Returns the mask of the terms that are among these: for a handful of terms a set is faster than `np.isin`."""
    wanted = set(these)
    return np.array([term in wanted for term in terms.tolist()], np.bool_) if wanted else np.zeros(len(terms), np.bool_)


def _not_counting(
    analysed: AnalysedQuery,
    present: set[int],
    identifiers: Mapping[int, tuple[int, ...]],
    expanded: Sequence[Acronym],
) -> list[int]:
    """Returns the terms that count for nothing themselves: identifiers and parts of them that no searched document has,
    parts of a time that one has (7:05 in the morning has two of 7:05 pm), other names of an entity, pairs of initials,
    and acronyms that are looked for as words alone."""
    absent = [term for term in analysed.identifiers if term not in present]
    times = set(analysed.times.tolist())
    parts = [
        part
        for term, parts in identifiers.items()
        for part in parts
        if part not in present or (term in times and part != term)
    ]
    added = [term for entity in analysed.entities for term in entity.added.tolist()]
    pairs = [term for acronym in analysed.acronyms for term in acronym.pairs.tolist()]
    words = [acronym.term for acronym in analysed.acronyms if acronym not in expanded]
    return [*absent, *parts, *added, *pairs, *words]


def _emphasis(
    terms: TermIds,
    df: Floats,
    identifiers: Mapping[int, tuple[int, ...]],
    corrections: Mapping[int, int],
    expanded: Sequence[Acronym],
) -> tuple[Floats, Bools]:
    """Returns the factor of each term's weight, and the mask of the terms that a document matches and does not repeat.
    `expanded`: the acronyms that are looked for as initials."""
    parts_of_others = [part for term, parts in identifiers.items() for part in parts if part != term]
    is_part = _are(terms, [part for parts in identifiers.values() for part in parts])
    is_joined = _are(terms, [term for term, parts in identifiers.items() if not parts])  # "e-mail"
    is_identifier = _are(terms, [term for term, parts in identifiers.items() if parts]) & ~_are(terms, parts_of_others)
    is_correction = _are(terms, corrections.values())
    emphasis = np.where((is_part & ~is_identifier) | is_joined, np.float32(PART_OF_IDENTIFIER), np.float32(1))
    emphasis[is_correction] = CORRECTED
    emphasis[_are(terms, corrections)] = 1 - CORRECTED
    exact = is_part | is_identifier | is_correction
    emphasis[is_identifier] = IDENTIFIER
    for acronym in expanded:
        is_word, is_acronym = _are(terms, acronym.word.tolist()), terms == acronym.term
        word_is_known = bool(df[is_word].any())
        emphasis[is_word] = 1 if word_is_known else 1 - EXPANDED
        emphasis[is_acronym] = 1 - EXPANDED if word_is_known else EXPANDED
        exact |= is_acronym
    return emphasis, exact
