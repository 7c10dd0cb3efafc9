"""Models that are made up: one that is right, one that lies, one that repeats every line. Their second look objects to
nothing.

They are told which conversation is being read. What they quote are real words of it wherever they can.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

from app.core.language import Token, fold, sentences, tokens
from benchmarks.learned.meter import Json, completion
from benchmarks.learned.sets import Conversation, Expected, Words, says

Parts: TypeAlias = dict[str, Any]
"""An answer: the items of each part."""
Say: TypeAlias = Callable[[Conversation], Parts]

FIELDS: Sequence[str] = ("name", "age", "home", "occupation", "interest", "conversation_preference", "preference")
OF_USER: Json = {"subject": "user", "kind": "fact", "certainty": "stated", "holds": "now"}
"""What an item says of itself. The liar and the echo say it of everything."""
INVENTED = ("Bartholomew Quexley", "Zanzibar", "48213", "4 July 1987")
"""Values that no conversation of a set contains."""


@dataclass(slots=True)
class MadeUpModel:
    """Answers as one of the models. `current` is the conversation that is being read."""

    say: Say
    current: Conversation | None = None

    def __call__(self, body: Json) -> Json:
        """Returns the answer to a request: the parts that its schema asks for."""
        assert self.current is not None
        told = self.say(self.current)
        asked = body["response_format"]["json_schema"]["schema"]["properties"]
        given = {name: told.get(name, []) for name in asked}
        return completion(json.dumps(given, ensure_ascii=False), body)


# --- Right answers ----------------------------------------------------------------------------------------------------


def scripted(talk: Conversation) -> Parts:
    """Returns what must be learned, each item with the sentence that says it."""
    told: Parts = {"statements": []}
    for one in talk.must:
        quote, words = _evidence(talk, one)
        if one.part == "fact":
            told["statements"].append(_fact(talk, one, quote, words))
        elif one.part == "profile":
            told["statements"].append(_profile_item(one, quote, words))
        else:  # a memory, or what the summary has to say
            told["statements"].append(_memory(quote, quote))
    return told


def _evidence(talk: Conversation, one: Expected) -> tuple[str, Words]:
    """Returns the sentence of the message that holds the words of an alternative, else the message."""
    said = _message(talk, one)
    for words in one.any_of:
        for sentence in sentences(said):
            if says(sentence, words):
                return sentence, words
    held = next((words for words in one.any_of if says(said, words)), one.any_of[0])
    return said, held


def _message(talk: Conversation, one: Expected) -> str:
    if one.quote_from is not None:
        return str(talk.messages[one.quote_from]["content"])
    return next(
        (str(each["content"]) for each in talk.messages if one.met_by(each["content"]) and each["role"] == "user"),
        _first(talk),
    )


def _memory(quote: str, text: str) -> Json:
    return {"quote": quote, **OF_USER, "text": text, "importance": 0.6}


def _fact(talk: Conversation, one: Expected, quote: str, words: Words) -> Json:
    """Returns a fact: the object is the last of the words in the quote, the predicate what stands before it."""
    said = tokens(quote)
    start, end = _place(said, words)
    before = [token.word for token in said[max(0, start - 2) : start]]
    subject = talk.user_id if one.about in ("user", talk.user_id) else one.about
    if not says(talk.text, (subject,)) and subject != talk.user_id:
        subject = words[0]  # the word of the conversation for a relation that the set names in English
    object_ = quote[said[start].start : said[end - 1].end] if said else quote
    return {**_memory(quote, quote), "subject": subject, "predicate": "_".join(before) or "is", "object": object_}


def _place(said: Sequence[Token], words: Words) -> tuple[int, int]:
    """Returns the places of the first and behind the last token of the word that stands last in a sentence."""
    found = [(0, max(1, len(said)))]
    for word in words:
        wanted = [token.word for token in tokens(word)]
        for at in range(len(said) - len(wanted) + 1):
            here = said[at : at + len(wanted)]
            if wanted and all(token.word.startswith(part) for token, part in zip(here, wanted, strict=True)):
                found.append((at, at + len(wanted)))
    return max(found)


def _profile_item(one: Expected, quote: str, words: Words) -> Json:
    said = tokens(quote)
    start, end = _place(said, words)
    value = quote[said[start].start : said[end - 1].end] if said else quote
    field = one.about if one.about in FIELDS else "preference"
    return {**_memory(quote, quote), "profile_field": field, "object": value}


# --- Wrong answers ----------------------------------------------------------------------------------------------------


def liar(talk: Conversation) -> Parts:
    """Returns what must not be learned, and values that nobody said, each behind a quote of the conversation and behind
    one that is invented."""
    claims = [*(" ".join(one.words) for one in talk.must_not), *INVENTED]
    told: Parts = {"statements": []}
    fields = cycle(FIELDS)
    for claim in claims:
        for quote in (_nearest(talk, claim), f"The user {claim}."):
            told["statements"].append(_claimed(quote, claim))
            value = {"profile_field": next(fields), "object": claim}
            told["statements"].append({**_memory(quote, f"The user: {claim}."), **value})
    lesson = {"about": "work", "certainty": "stated", "holds": "now", "kind": "heuristics"}
    told["lessons"] = [{"quote": _first(talk), **lesson, "text": f"Remember {INVENTED[0]}."}]
    return _capped(told)


def _claimed(quote: str, claim: str) -> Json:
    parts = claim.split()
    predicate, object_ = ("_".join(parts[:-1]), parts[-1]) if len(parts) > 1 else ("is", claim)
    fact = {"predicate": predicate, "object": object_, "cardinality": "one", "at": "1987-07-04T00:00:00Z"}
    return {**_memory(quote, f"The user {claim}."), **fact}


def _nearest(talk: Conversation, claim: str) -> str:
    """Returns the sentence, of whomever, that has most of a claim's words."""
    wanted = {fold(word) for word in claim.split()}
    found = [part for message in talk.messages for part in sentences(message["content"])]
    return max(found, key=lambda part: sum(word in fold(part) for word in wanted))


def echo(talk: Conversation) -> Parts:
    """Returns every line as a memory, as a fact and as an entry of the profile."""
    fields = cycle(FIELDS)
    told: Parts = {"statements": []}
    for message in talk.messages:
        said = message["content"]
        words = said.split()
        object_ = " ".join(words[2:])[:1000] or said[:1000]
        told["statements"].append({**_memory(said, said), "predicate": "_".join(words[:2]) or "is", "object": object_})
        told["statements"].append({**_memory(said, said), "profile_field": next(fields), "object": said[:1000]})
    return _capped(told)


def _capped(told: Mapping[str, list[Json]]) -> Parts:
    """Returns as many items as the shapes allow: more would make the whole answer invalid."""
    most = {"statements": 80, "lessons": 20}
    return {name: items[: most[name]] for name, items in told.items()}


def _first(talk: Conversation) -> str:
    return next(str(message["content"]) for message in talk.messages if message["role"] == "user")


SAYS: Mapping[str, Say] = {"scripted": scripted, "liar": liar, "echo": echo}
