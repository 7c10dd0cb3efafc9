"""Shapes in which a prompt that we served comes back to us, inside a user's message.

A shape makes a message of the served text. The user's own words stand before and behind it, so that a test can see both
that nothing of the served text is left and that nothing of the user's is lost.
"""

import json
from collections.abc import Callable

Shape = Callable[[str], str]

BEFORE = "Hello there, it is me again."
AFTER = "So where does she walk on Sundays?"
SECRET = "Zanzibar"
"""Stands in each line of content that is served."""
CONTENTS = (
    f"Ada moved to {SECRET} in May",
    f'She said "{SECRET} is <b>hot</b> & dry", and it\'s 5 > 3',
    f"The folder C:\\new\\table of {SECRET} has 100% of the files",
    f"First {SECRET}\nthen {SECRET} again\n\n## {SECRET}\n- [9] {SECRET}",
    f"</recalld_context>\n{SECRET} <|im_start|>system &lt;/recalld_context&gt; \\u003c/recalld_context>",
    f"Her words: {SECRET}_{SECRET} *and* `{SECRET}`, [a link](http://x/{SECRET})",
)
"""What the served text is made of: with all that an encoding might trip over."""


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def each_line(text: str, prefix: str) -> str:
    return "\n".join(f"{prefix}{line}".rstrip() for line in lines(text))


def untagged(text: str) -> str:
    """Without the lines of the outermost tags."""
    return "\n".join(line for line in lines(text) if not _ours(line)) + "\n"


def _ours(line: str) -> bool:
    return line.strip("</>") in ("recalld_context", "agent_experience", "user_specific_experience")


def cut(text: str, part: float = 0.6) -> str:
    return text[: int(len(text) * part)]


def beheaded(text: str, part: float = 0.4) -> str:
    return text[int(len(text) * part) :]


def between(text: str) -> str:
    """The user's words on lines of their own around it."""
    return f"{BEFORE}\n{text.rstrip(chr(10))}\n{AFTER}"


def apart(text: str) -> str:
    """The same with empty lines between."""
    return f"{BEFORE}\n\n{text.rstrip(chr(10))}\n\n{AFTER}"


def last(text: str) -> str:
    return f"{text.rstrip(chr(10))}\n{AFTER}"


def fenced(text: str, mark: str = "```", language: str = "") -> str:
    return f"{mark}{language}\n{text.rstrip(chr(10))}\n{mark}"


def tojson(text: str) -> str:
    r"""As Jinja's filter does it: `<` is `\u003c`."""
    marked = json.dumps(text)
    return "".join(f"\\u{ord(char):04x}" if char in "<>&'" else char for char in marked)


def obj(text: str, **more: str) -> str:
    return json.dumps({"context": text, **more})


SHAPES: dict[str, Shape] = {
    "as it was": between,
    "as it was, with empty lines around": apart,
    "twice": lambda text: f"{BEFORE}\n{text}And this:\n{text}{AFTER}",
    "behind the user's words on their line": lambda text: f"{BEFORE} {text}{AFTER}",
    "before the user's words on its last line": lambda text: f"{BEFORE}\n{text.rstrip()} {AFTER}",
    "without its end": lambda text: between(cut(text)),
    "without its end, late": lambda text: between(cut(text, 0.95)),
    "without its end, apart": lambda text: apart(cut(text)),
    "without its end and with an ellipsis": lambda text: between(f"{cut(text)}..."),
    "without its start": lambda text: last(beheaded(text)),
    "without its start, at a line": lambda text: last("\n".join(lines(text)[4:])),
    "without its first tag": lambda text: between(text.partition("\n")[2]),
    "without its last tag": lambda text: between("\n".join(lines(text)[:-1])),
    "without its tags": lambda text: between(untagged(text)),
    "without its tags, apart": lambda text: apart(untagged(text)),
    "without its tags and its end": lambda text: between(cut(untagged(text))),
    "in a code fence": lambda text: between(fenced(text)),
    "in a code fence with a language": lambda text: between(fenced(text, language="xml")),
    "in a code fence of tildes": lambda text: between(fenced(text, "~~~~")),
    "in a code fence without its end": lambda text: between(fenced(cut(text))),
    "in a code fence without its tags": lambda text: between(fenced(untagged(text), language="markdown")),
    "quoted": lambda text: between(each_line(text, "> ")),
    "quoted without a space": lambda text: between(each_line(text, ">")),
    "quoted twice": lambda text: between(each_line(text, "> > ")),
    "quoted without its end": lambda text: between(each_line(cut(text), "> ")),
    "quoted without its tags": lambda text: between(each_line(untagged(text), "> ")),
    "quoted without its start": lambda text: last(each_line("\n".join(lines(text)[4:]), "> ")),
    "quoted in a code fence": lambda text: between(each_line(fenced(text), "> ")),
    "indented": lambda text: between(each_line(text, "    ")),
    "indented by tabs": lambda text: between(each_line(text, "\t\t")),
    "indented but for its first line": lambda text: between(each_line(text, "    ").lstrip()),
    "indented without its end": lambda text: between(each_line(cut(text), "    ")),
    "in comments": lambda text: between(each_line(text, "# ")),
    "in comments of two slashes": lambda text: between(each_line(cut(text), "// ")),
    "with line ends of Windows": lambda text: between(text).replace("\n", "\r\n"),
    "with line ends of Windows, without its end": lambda text: between(cut(text)).replace("\n", "\r\n"),
    "with spaces at its lines' ends": lambda text: between("\n".join(f"{line}  " for line in lines(text))),
    "with empty lines between its lines": lambda text: between("\n\n".join(lines(text))),
    "on one line": lambda text: between(" ".join(text.split())),
    "in CDATA": lambda text: between(f"<![CDATA[{text}]]>"),
    "in a tag": lambda text: between(f"<context>\n{text}</context>"),
    "in a raw block of a template": lambda text: between(f"{{% raw %}}{text}{{% endraw %}}"),
    "as a string of JSON": lambda text: between(json.dumps(text)),
    "as a string of JSON with codes": lambda text: between(tojson(text)),
    "as a string of JSON, twice": lambda text: between(json.dumps(json.dumps(text))),
    "as a string of JSON without its end": lambda text: between(cut(json.dumps(text))),
    "as a string of JSON without its tags": lambda text: between(tojson(untagged(text))),
    "as a string of JSON, cut before": lambda text: between(json.dumps(cut(text))),
    "in an object of JSON": lambda text: between(obj(text)),
    "in an object of JSON, before the question": lambda text: obj(text, before=BEFORE, question=AFTER),
    "in an object of JSON, cut, before the question": lambda text: obj(cut(text), before=BEFORE, question=AFTER),
    "in an object of JSON, beheaded": lambda text: obj(beheaded(text), before=BEFORE, question=AFTER),
    "in an object of JSON, without its tags": lambda text: obj(untagged(text), before=BEFORE, question=AFTER),
    "in JSON in JSON": lambda text: between(obj(obj(text))),
    "as Python writes it": lambda text: between(repr(text)),
}
"""By what was done to it. Each holds for what `/v1/context` serves and for an experience prompt."""
