"""Claims: what a record states of a subject, in a form that can be compared. Rules for English, German and Spanish.

A claim has a subject, an aspect and a value. Aspects are single-valued: nobody has two homes, as far as a plain
sentence says. A sentence that asks, wishes, speaks of the past, of a part of the time or of one thing more makes no
claim. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.learning.words import fold, number_words
from app.reflection.sentences import USER, Sentence, people, sentences, subject_of, table

_ADVERBS = (
    r"(?:(?:now|currently|still|just|actually|jetzt|nun|derzeit|aktuell|immer noch|noch|seit\s\S+"
    r"|wieder|inzwischen|mittlerweile"
    r"|ahora|actualmente|todavia|aun|ya|again|back|no longer|not|nicht|nicht mehr|mehr)\s+)*"
)
_VALUE = r"(?P<value>.+)"
_RULES: Sequence[tuple[str, re.Pattern[str]]] = [
    (aspect, re.compile(rf"(?:^|\s)(?P<verb>{verb})(?:\s+|(?<=\s)){_ADVERBS}{_VALUE}$"))
    for aspect, verb in (
        (
            "home",
            rf"(?:live|lives|am living|is living|i'm living|reside|resides|wohne|wohnt|wohnen|lebe|lebt|leben"
            rf"|vivo|vive|vivimos|resido|reside"
            rf"|am based|i'm based|is based|are based)\s+{_ADVERBS}(?:in|at|en)",
        ),
        ("home", r"(?:moved|relocated)\s+(?:from\s.+?\s|back\s|here\s)?to"),
        ("home", r"(?:mude|mudo|mudado|mudamos|traslade|trasladado)\s+(?:de\s.+?\s)?a"),
        (
            "employer",
            rf"(?:work|works|am working|is working|i'm working|working|am employed"
            rf"|is employed)\s+{_ADVERBS}(?:at|for|by)",
        ),
        ("employer", rf"(?:arbeite|arbeitet|arbeiten)\s+{_ADVERBS}(?:bei|fur)"),
        ("employer", rf"(?:trabajo|trabaja)\s+{_ADVERBS}(?:en|para)"),
        (
            "employer",
            r"(?:joined|started (?:working )?at|started a (?:new )?job at|switched to|empece (?:a trabajar )?en)",
        ),
        ("occupation", rf"(?:work|works|working|arbeite|arbeitet|trabajo|trabaja)\s+{_ADVERBS}(?:as|als|como|de)"),
        (
            "diet",
            r"(?:am|i'm|is|bin|ist|soy|es|became|become|wurde)\s+(?:now |jetzt |ahora |a |an )*(?=(?:vegan"
            r"|vegetari|pescatar|pescetar|omnivor))",
        ),
        (
            "marital status",
            r"(?:am|i'm|is|bin|ist|estoy|esta|soy|es|got)\s+(?:\S+\s+){0,3}?(?=(?:married|single"
            r"|divorced|engaged|verheiratet|ledig|geschieden|verlobt|casad|solter|divorciad|prometid))",
        ),
        (
            "school",
            r"(?:study|studies|studying|studiere|studiert|estudio|estudia)\s+"
            r"(?:\S+\s+)??(?:at|an der|auf der|en)(?: the| la| el)?",
        ),
        ("car", rf"(?:drive|drives|fahre|fahrt|conduzco|conduce|manejo)\s+{_ADVERBS}(?:an?|einen?|un|una)"),
        ("name", r"(?:call me|i'm called|ich hei(?:ss|\u00df)e|me llamo)"),
        ("age", r"(?:am|i'm|is|bin|ist|tengo|tiene)(?=\s+\d+\s+(?:years old|jahre alt|anos\b))"),
    )
]
_MOVED_DE = re.compile(r"\snach\s+(?P<value>.+?)\s+(?:um)?gezogen")
_ATTRIBUTE = re.compile(
    r"(?:^|\s)(?P<owner>my|our|mein|meine|meiner|unser|unsere|mi|nuestro"
    r"|nuestra)\s+(?P<head>(?:\S+\s+){0,4}?\S+?)(?:'s)?\s+"
    r"(?:is now|is called|is named|is|are|ist jetzt|ist|hei(?:ss|\u00df)t|es ahora|es|se llama|son"
    r"|sind|changed to|has changed to|was moved to)\s+"
    rf"(?:now |jetzt |ahora |on |am |el )*{_VALUE}$"
)
_NAME = re.compile(
    r"(?:[a-z]?[A-Z\u00c0-\u00de\d][\w'\u2019.@+-]*)(?:\s+(?:(?:de|del|la|las|los|of|am|an der|upon|di"
    r"|von)\s+)?[A-Z\u00c0-\u00de\d][\w'\u2019.@+-]*)*"
)
_VALUE_END = re.compile(
    r"[,;:()!?\u2013\u2014]|(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bSt)(?<!\bSr)(?<!\bMrs)(?<!\bSra)\.(?=\s"
    r"|$)|\s-\s|\b(?:and|but|because|since|with|for|where|which|who|after|before|as of|from|until"
    r"|now|instead|these days|not"
    r"|und|aber|weil|seit|mit|wo|nachdem|bevor|ab|jetzt|statt|nicht|als|y|pero|porque|desde|con"
    r"|donde|ahora|para|despues)\b"
)
_LARGER = re.compile(r"^[^,]+,\s+(?P<name>[A-Z\u00c0-\u00de][\w'-]+)")
_BETWEEN_CLAUSES = re.compile(r"[,;:]|\s(?:and|but|und|aber|y|pero)(?=\s)")
_PREFERS = re.compile(
    r"(?:^|\s)(?P<verb>prefer|prefers|bevorzuge|bevorzugt|prefiero|prefiere)\s+"
    r"(?:now |jetzt |ahora |el |la |den |die |das )*"
    r"(?P<one>[^,.;!]+?)(?:\s+(?:to|over|than|gegenuber|vor|al|a|antes que|statt)\s+(?:el |la |den |die |das )?"
    r"(?P<other>[^,.;!]+))?(?:\s+(?:now|jetzt|ahora))?[.!]?$"
)
_ARTICLE = re.compile(
    r"^(?:(?:an?|the|eine?[rnm]?|de[rnm]|die|das|una?|el|la|los|las)\s+)?"
    r"(?:(?:doctora?|do\u00f1a|se\u00f1ora?|herr|frau|mrs?|ms|dr)\.?\s+(?=\S))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ValueClaim:
    """What a sentence states. `about` is the name of a person where the subject has one beside the relation."""

    subject: str
    aspect: str
    value: str
    sentence: Sentence
    negative: bool = False

    @property
    def words(self) -> frozenset[str]:
        """The words of the value."""
        return frozenset(re.findall(r"\w+", self.value))

    @property
    def changed(self) -> bool:
        """Whether the sentence itself says that it was otherwise before."""
        return self.sentence.has("changed")


def claims_of(text: str, names: frozenset[str] = frozenset()) -> list[ValueClaim]:
    """Returns the claims of a text with a value. `names`: folded names of the user."""
    return [claim for sentence in sentences(text) for claim in _claims(sentence, names)]


def _claims(sentence: Sentence, names: frozenset[str]) -> Iterator[ValueClaim]:
    if not sentence.holds or sentence.has("additive"):
        return
    even = _folded(sentence.text)
    moved = re.search(r"\b(?:moved|relocated|mude|mudo|mudado|gezogen|joined|started|empece)\b", even)
    if sentence.past and not moved:
        return
    found, subject = False, USER if sentence.tokens and sentence.tokens[0].word in table("self") else None
    for start, end in _clauses(even):
        for aspect, rule in _RULES:
            match = rule.search(even, start, end)
            if match is None:
                continue
            before, verb = sentence.text[start : match.start("verb")], match["verb"]
            if start == 0 or before.strip(" ,"):
                subject = subject_of(before, verb, names)
            value = _value(sentence.text[match.start("value") :], aspect)
            if subject and value:
                found = True
                denied = any(one.negative for one in sentences(sentence.text[start:end]))
                yield ValueClaim(subject, aspect, value, sentence, denied)
                break
    match = _MOVED_DE.search(even)
    if match and not found:
        subject = subject_of(sentence.text[: match.start()], "", names)
        value = _value(sentence.text[match.start("value") : match.end("value")], "home")
        if subject and value:
            yield ValueClaim(subject, "home", value, sentence)
    yield from _attributes(sentence, even)
    yield from _preferences(sentence, even, names)


def _clauses(even: str) -> Iterator[tuple[int, int]]:
    """Yields start and end of the clauses of a folded sentence."""
    start = 0
    for mark in _BETWEEN_CLAUSES.finditer(even):
        yield start, mark.start()
        start = mark.end()
    yield start, len(even)


def _attributes(sentence: Sentence, even: str) -> Iterator[ValueClaim]:
    """Yields what the sentence says of a thing that the user has one of, as "My dentist is Dr. Braun"."""
    match = _ATTRIBUTE.search(even)
    if match is None:
        return
    words = [
        word
        for word in match["head"].split()
        if word not in {"new", "neue", "neuer", "neues", "nuevo", "nueva", "current"}
    ]
    favourite = any(word in table("favourite") or word.startswith("liebling") for word in words)
    if not words or not (favourite or words[-1] in table("single") or words[0] in table("single")):
        return
    if not favourite and len(words) > 2:
        return
    said = sentence.text[match.start("value") :]
    value = _value(said, "favourite" if favourite else "attribute")
    if value:
        head = " ".join(people().get(word, word) for word in words)
        yield ValueClaim(USER, f"my {head}", value, sentence, sentence.negative)


def _preferences(sentence: Sentence, even: str, names: frozenset[str]) -> Iterator[ValueClaim]:
    """Yields which of two things somebody prefers, as in "tea to coffee", or which kind, as in "dark mode"."""
    match = _PREFERS.search(even)
    subject = None if match is None else subject_of(sentence.text[: match.start("verb")], match["verb"], names)
    if match is None or subject is None:
        return
    one, other = match["one"].strip(), match["other"]
    if other is not None:
        pair = sorted((one, other.strip(" .!")))
        yield ValueClaim(subject, f"{pair[0]} or {pair[1]}", one, sentence, sentence.negative)
    elif len(one.split()) == 2:
        kind, thing = one.split()
        yield ValueClaim(subject, f"kind of {thing}", kind, sentence, sentence.negative)


def _folded(text: str) -> str:
    """Returns the text in lower case without accents, each character in its place."""
    return "".join(folded if len(folded := fold(one)) == 1 else one for one in text.replace("\u2019", "'"))


def _value(said: str, aspect: str) -> str | None:
    """Returns the compared form of a value: its name for places and employers, else its words to the clause's end."""
    end = _VALUE_END.search(said)
    clause = (said[: end.start()] if end else said).strip(" .")
    bare = _ARTICLE.sub("", clause)
    if not bare:
        return None
    if aspect in ("home", "employer", "attribute", "car", "name", "school"):
        first = fold(clause.split()[0])
        if aspect == "home" and first in table("determiners"):
            return None
        name = _NAME.match(bare)
        if name:
            larger = _LARGER.search(said) if aspect == "home" else None  # "Camden, London"
            return fold(f"{name[0]} {larger['name'] if larger else ''}").strip(" .")
        whole_lower = said == said.lower()
        if aspect in ("attribute", "car", "name") or not whole_lower or first in table("determiners"):
            return _weekday_or_number(clause)
        return fold(bare.split()[0])
    words = [fold(word) for word in bare.split()]
    if aspect == "marital status":
        return _marital(words[0])
    return words[0][:6] if aspect in ("age", "diet") else " ".join(words[:4])


def _weekday_or_number(clause: str) -> str | None:
    words = [fold(word) for word in re.findall(r"\w+", clause)]
    found = [word for word in words if word in table("weekdays") or word in table("months") or word[0].isdigit()]
    found += [
        number_words()[word] for word in words if word in number_words() and word not in {"one", "ein", "una", "un"}
    ]
    return " ".join(found) or None


def _marital(word: str) -> str:
    for name, beginnings in {
        "married": ("married", "verheiratet", "casad"),
        "single": ("single", "ledig", "solter"),
        "divorced": ("divorced", "geschieden", "divorciad"),
        "engaged": ("engaged", "verlobt", "prometid"),
    }.items():
        if word.startswith(beginnings):
            return name
    return word
