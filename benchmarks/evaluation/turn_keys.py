"""Keys of a turn by rules, without a model: further texts by which a turn could be found.

Rules are English. They read what a user says in the first person ("I prefer short answers") and facts that speak of the
user in the third person ("User prefers short answers").
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

MOST_KEYS = 16
"""Keys of one kind that a turn has at most."""
LEAST_WORDS, MOST_WORDS = 3, 30
"""Words of a statement; a longer one is cut."""

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TOPIC = re.compile(r"^\s*【([^】]*)】\s*")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE = re.compile(
    r",\s+(?=(?:and|but|so|or|because|which|while|although|considering|given|since|as)\b|(?:can|could|would|how|what)\b)"
    r"|\s+(?=but\s+I\b|and\s+I(?:'\w+)?\b|because\s+I\b|so\s+I\b)|\s+-\s+",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:and|but|so|or|because|while|although|considering|given that|since|as|hmm|well|yeah)[\s,]+", re.IGNORECASE
)
_FIRST_PERSON = re.compile(r"\b(?:(?:I|we)(?:'(?:m|ve|ll|d|re))?|my|our)\b", re.IGNORECASE)
_USER = re.compile(r"\b(?:the )?user\b", re.IGNORECASE)
_ASKS = re.compile(
    r"^(?:can|could|would|will|do|does|did|how|what|which|when|where|who|why|should|is|are)\b", re.IGNORECASE
)
_PREFERS = re.compile(
    r"\b(?:prefer|like|love|enjoy|hate|dislike|want|need|always|never|avoid|favou?rite|rather|interested in)\w*\b",
    re.IGNORECASE,
)
_THIRD = {
    "i'm": "user is", "i've": "user has", "i'll": "user will", "i'd": "user would", "i am": "user is",
    "i have": "user has", "i was": "user was", "i": "user", "me": "user", "my": "user's", "mine": "user's",
    "myself": "user", "we're": "user is", "we've": "user has", "we": "user", "our": "user's", "us": "user",
}  # fmt: skip
_FIRST = {"the user's": "my", "user's": "my", "the user": "I", "user": "I", "their": "my", "they": "I"}
_TO_THIRD = re.compile(r"\b(?:" + "|".join(sorted(_THIRD, key=len, reverse=True)) + r")(?![\w'])", re.IGNORECASE)
_TO_FIRST = re.compile(r"\b(?:" + "|".join(sorted(_FIRST, key=len, reverse=True)) + r")(?![\w'])", re.IGNORECASE)
_OWN = re.compile(r"\b(?:my|our)\b", re.IGNORECASE)
_AMOUNT = re.compile(r"(?:[$€£¥₦]\s?)?\b\d[\d,.:/]*\d?%?\w{0,4}")
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w.-]+(?:\s+[A-Z][\w.-]+)*")
_DATE = re.compile(
    r"\b(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+\d{1,2}|\d{1,2}:\d\d|"
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|tomorrow)\b"
)
_WORD = re.compile(r"[\w'’.-]+")
_SMALL = frozenset("a an the of to in on at by for from with and or is are was were be it this that".split())


def sentences(text: str) -> list[str]:
    """The prose of a text in sentences, without code and without the topic in front."""
    prose = _TOPIC.sub("", _CODE.sub(" ", text))
    return [sentence for part in _SENTENCE.split(prose) if len(sentence := part.strip(" -*#\t").strip()) > 8]


def statements(text: str) -> list[str]:
    """Clauses that say something of the user, in the third person: "user is using Flask 2.3.1"."""
    return [_TO_THIRD.sub(lambda found: _THIRD[found[0].lower()], clause) for clause in _clauses(text)]


def told(text: str) -> list[str]:
    """The same clauses in the first person, as a query would name them: "I prefer short answers"."""
    clauses = (_TO_FIRST.sub(lambda found: _FIRST[found[0].lower()], clause) for clause in _clauses(text))
    return [_OWN.sub("my", clause) for clause in clauses]


def preferences(text: str) -> list[str]:
    """Statements of what the user likes, wants, always or never does."""
    return [statement for statement in statements(text) if _PREFERS.search(statement)]


def details(text: str) -> list[str]:
    """Numbers and names, each with the words beside it; one key: "deadline of April 15; Flask 2.3.1"."""
    found = dict.fromkeys(phrase for sentence in sentences(text) for phrase in _beside(sentence))
    return ["; ".join(list(found)[:MOST_KEYS])] if found else []


def questions(text: str) -> list[str]:
    """Questions in the first person that the turn answers, by templates."""
    return [question for clause in told(text) for question in _asked(clause)]


def everything(text: str) -> list[str]:
    return [*statements(text), *details(text), *questions(text)]


def joined(text: str) -> list[str]:
    """All statements and details as one key."""
    parts = [*statements(text), *details(text)]
    return [". ".join(parts)] if parts else []


RULES: Mapping[str, Callable[[str], Sequence[str]]] = {
    "statements": statements,
    "preferences": preferences,
    "names and numbers": details,
    "questions": questions,
    "all": everything,
    "statements, joined": joined,
    "sentences (control)": sentences,
}
"""The control splits a turn into its sentences: it adds no words and understands nothing."""


def keys_of(text: str, rule: str) -> list[str]:
    """At most `MOST_KEYS` keys of a turn, each once; none that is the whole turn."""
    found = dict.fromkeys(key for key in RULES[rule](text) if key.casefold() != text.strip().casefold())
    return list(found)[:MOST_KEYS]


_HEDGE = re.compile(
    r"\bI(?:'m|'ve been| am| have been) (?:(?:kinda|just|really|still) )?(?:trying|hoping|looking) to "
    r"(?:(?:understand|figure out|make sure|see|verify) (?:(?:how|that|if|whether|why) )?(?=(?:I|my)\b)|()(?=\w))",
    re.IGNORECASE,
)
"""What people put before what they do: "I'm trying to understand how my score rose" says "my score rose"."""


def _clauses(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        for part in _CLAUSE.split(sentence):
            clause = _LEAD.sub("", part.strip(" ,")).strip(" ,.;")
            clause = _HEDGE.sub(lambda found: "" if found[1] is None else "I ", clause)
            spoken = _FIRST_PERSON.search(clause) or _USER.search(clause)
            words = clause.split()
            if spoken and len(words) >= LEAST_WORDS and not _ASKS.match(clause):
                yield " ".join(words[:MOST_WORDS])


def _beside(sentence: str) -> Iterator[str]:
    """A number or a name with up to three words before it and two behind it."""
    words = [(found.start(), found[0]) for found in _WORD.finditer(sentence)]
    for found in (*_AMOUNT.finditer(sentence), *_NAME.finditer(sentence)):
        before = [word for at, word in words if at < found.start()][-3:]
        behind = [word for at, word in words if at >= found.end()][:2]
        while before and before[0].lower() in _SMALL:
            before = before[1:]
        while behind and behind[-1].lower() in _SMALL:
            behind = behind[:-1]
        yield " ".join((*before, found[0].strip(), *behind))


_IS = re.compile(r"^(my [\w\s'-]{2,40}?) (is|are|was|were) (.+)$", re.IGNORECASE)
_DOES = re.compile(
    r"^I('m|'ve|'d| am| have| was|)\s+(?:(?:always|already|just|currently|also|really)\s+)?([\w-]+)\s+(.+)$",
    re.IGNORECASE,
)
_AUXILIARY = {
    "'m": "am I",
    "am": "am I",
    "'ve": "have I",
    "have": "have I",
    "'d": "would I",
    "was": "was I",
    "": "did I",
}


def _asked(clause: str) -> Iterator[str]:
    if said := _IS.match(clause):
        yield f"What {said[2]} {said[1]}?"
    if said := _DOES.match(clause):
        begin, verb, rest = _AUXILIARY[said[1].strip().lower()], said[2], " ".join(said[3].split()[:10])
        yield f"{begin[0].upper()}{begin[1:]} {verb} {rest}?"
    if (found := _DATE.search(clause)) and (event := clause[: found.start()].strip(" ,")):
        yield f"When {event}?"
    elif (found := _AMOUNT.search(clause)) and (behind := _WORD.findall(clause[found.end() :])[:2]):
        yield f"How many {' '.join(behind)}?"
    for found in _NAME.finditer(clause):
        yield f"What did I say about {found[0]}?"
