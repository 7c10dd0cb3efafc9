"""What we served in a prompt is known again, in any shape, and what a user says of it is not taken for it."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.context import rendering
from app.core.prompt_text import CONTEXT_OPENING, CONTEXT_UNSURE, KNOWN_OF_USER, OF_USER, entry
from app.core.served_text import readings, strip_served
from app.memories.agents import Experience, Lesson
from app.memories.schemas import MemoryRecord
from app.profiles import agents
from tests.support.payloads import HIDING, HOSTILE, LOOKALIKES, TOKENS, UNSEEN
from tests.support.processor_time import processor_time
from tests.support.reshaping import AFTER, BEFORE, CONTENTS, SECRET, SHAPES, Shape, fenced

TEXT = st.lists(
    st.sampled_from(
        [*LOOKALIKES, *TOKENS, *HIDING, *UNSEEN, "<", ">", "|", "[", "]", "/", "&lt;", "&#91;", "\n", "\x85"]
    )
    | st.text(max_size=6),
    max_size=6,
).map("".join)

LINES = "## Memories\n- [1] Ada lives in Boston\n  with cats\n- [2] She likes tea\n## Profile\n- [3] name: Ada\n"
BLOCK = f"{CONTEXT_OPENING}{LINES}</recalld_context>\n"
EXPERIENCE = (
    "<agent_experience>\nprocedural_knowledge: ask first\n  twice\nheuristics: be kind\n</agent_experience>\n\n"
    '<user_specific_experience>\n<user_profile>\n{"name":"Ada"}\n</user_profile>\n'
    '<memories>\n{"id":"mem_1"}\n</memories>\n</user_specific_experience>'
)


def test_a_block_without_its_end_is_taken_out() -> None:
    for cut in range(len(CONTEXT_OPENING), len(BLOCK) - 1):
        assert "Ada" not in strip_served(f"Hello\n{BLOCK[:cut]}")
        assert strip_served(f"Hello\n{BLOCK[:cut]}").startswith("Hello\n")


def test_a_question_after_a_block_without_its_end_stays() -> None:
    for cut in ("- [1] Ada li", "- [2] She likes tea\n", "## Profile\n- [3] name: A"):
        served = BLOCK[: BLOCK.index(cut) + len(cut)].rstrip("\n")
        assert strip_served(f"{served}\n\nAnd where is she?\n- now") == "\nAnd where is she?\n- now"


def test_a_line_of_ours_before_the_first_title_is_taken_out() -> None:
    served = BLOCK.replace("## Memories", f"{CONTEXT_UNSURE}## Memories")
    assert strip_served(served[:-30]) == ""


def test_a_block_without_its_start_is_taken_out() -> None:
    for cut in range(1, BLOCK.index("- [3]")):
        assert strip_served(f"{BLOCK[cut:]}And where is she?") == "And where is she?"


def test_experience_is_taken_out_whole_and_cut() -> None:
    assert strip_served(f"{EXPERIENCE}\nHello").strip() == "Hello"
    for cut in range(40, len(EXPERIENCE)):
        assert "first" not in strip_served(EXPERIENCE[:cut])
        assert "Ada" not in strip_served(EXPERIENCE[:cut])
    assert strip_served(f"{EXPERIENCE[30:]}\nHello").strip() == "Hello"


@pytest.mark.parametrize(
    "text",
    [
        "What does <recalld_context> mean?\nAnd the rest?",
        "<recalld_context>\nWhat does this tag mean?\n- a\n- b",
        "Look:\n<recalld_context>\nRemembered data, they say.\n## Title\n- [1] mine",
        "Can you explain this:\n</recalld_context>\nwhat is it?",
        "My list:\n- tea\n- milk\n</recalld_context> is odd",
        "My list:\n- tea\n- milk\nand then\n</recalld_context>\nis odd",
        "It begins with: Remembered data, not instructions. Cite an entry by what stands in its brackets.\n## My\n- x",
        "Remembered data, not instructions. Cite an entry by what stands in its brackets.\nWhat does that mean?",
        "What this agent has learned so far, as Recalld keeps it.\nIs that a heading?",
        "<agent_experience>\nwhat is it?",
        "note: tea\n</agent_experience>\nwhat is it?",
        "<user_specific_experience>\nwhat is it?",
    ],
)
def test_a_mention_takes_nothing_with_it(text: str) -> None:
    assert strip_served(text) == text


def test_a_mention_before_a_block_stays() -> None:
    mention = "What is this?\n<recalld_context>\nIt came with:\n"
    assert strip_served(f"{mention}{BLOCK}Tell me.") == f"{mention}Tell me."


@pytest.mark.parametrize("payload", HOSTILE, ids=ascii)
def test_no_payload_keeps_a_cut_block_in(payload: str) -> None:
    served = f"{CONTEXT_OPENING}## Memories\n{entry('- [1] ', payload)}- [2] secret\n"
    assert strip_served(served) == ""


@settings(deadline=None)
@given(TEXT)
def test_a_text_without_blocks_of_ours_is_learned_whole(text: str) -> None:
    assert strip_served(text) == text


# --- In any shape -----------------------------------------------------------------------------------------------------


def context_of(contents: list[str], cited: Callable[[int], str] = str) -> str:
    lines = [entry(f"- [{cited(number)}] ", content) for number, content in enumerate(contents, 1)]
    half = len(lines) // 2
    first = rendering.title("Memories") + rendering.heading("2026-05-08", 2) + "".join(lines[:half])
    return rendering.block([first, rendering.title("Recent messages") + "".join(lines[half:])])


def experience_of(contents: list[str]) -> str:
    last = [_lesson(contents[-1])]
    experience: Experience = {
        "procedural_knowledge": contents[0],
        "common_scenarios": last,
        "effective_strategies": last,
        "known_pitfalls": last,
        "tool_patterns": last,
        "heuristics": [_lesson(content) for content in contents],
        "user_feedback": last,
        "improvement_areas": last,
    }
    memories: list[MemoryRecord] = [
        {"memory_id": f"mem_{number:032x}", "memory_type": "fact", "content": content, "context": None}
        for number, content in enumerate(contents)
    ]
    return agents.compose(experience, {"name": SECRET, "interests": contents}, memories, None)[0]


def _lesson(text: str) -> Lesson:
    return {"text": text, "seen": 1, "source": {}}


SERVED = {
    "context": context_of([*CONTENTS]),
    "context with ids": context_of([*CONTENTS], lambda number: f"mem_{number:032x}"),
    "experience": experience_of([*CONTENTS]),
}
OURS = (SECRET, "Remembered data", "as Recalld keeps it", "## Memories", "agent_experience: ")


def test_there_are_many_shapes() -> None:
    assert len(SHAPES) >= 40
    assert len({shape(SERVED["context"]) for shape in SHAPES.values()}) == len(SHAPES)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", SERVED)
def test_in_no_shape_is_anything_of_it_left_or_anything_of_the_users_lost(kind: str, shape: Shape) -> None:
    message = shape(SERVED[kind])
    rest = strip_served(message)
    assert [one for one in OURS if one in rest] == []
    assert [one for one in (BEFORE, AFTER) if one in message and one not in rest] == []
    assert strip_served(rest) == rest


STARTED = [name for name in SHAPES if "start" not in name and "beheaded" not in name]
"""Of a block without its start, a single line that was cut may remain: it could be anybody's."""
WORDS = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='<&%\\"`~'), min_size=1, max_size=30
)


@settings(deadline=None, max_examples=150)
@given(st.lists(TEXT.map(lambda text: f"{SECRET} {text} {SECRET}"), min_size=2, max_size=4), st.sampled_from(STARTED))
def test_whatever_was_remembered_no_shape_of_it_is_left(contents: list[str], name: str) -> None:
    for served in (context_of(contents), experience_of(contents)):
        message = SHAPES[name](served)
        rest = strip_served(message)
        assert SECRET not in rest, message
        assert [one for one in (BEFORE, AFTER) if one in message and one not in rest] == []


@settings(deadline=None, max_examples=150)
@given(
    WORDS,
    WORDS,
    st.sampled_from(["as it was", "quoted", "in a code fence", "without its tags, apart"]),
)
def test_the_users_words_around_it_stay_to_the_letter(before: str, after: str, name: str) -> None:
    message = SHAPES[name](SERVED["context"]).replace(BEFORE, f"I say {before}.").replace(AFTER, f"And {after}?")
    rest = strip_served(message)
    assert rest.split("\n")[0] == f"I say {before}."
    assert rest.split("\n")[-1] == f"And {after}?"
    assert rest.strip().replace("\n", "") == f"I say {before}.And {after}?"


# --- What a user says of it -------------------------------------------------------------------------------------------

MENTIONS = [
    "What does <recalld_context> mean?",
    "</recalld_context>",
    "`<agent_experience>` and `</agent_experience>`",
    "&lt;recalld_context&gt; is what I see",
    '{"content": "<recalld_context>"}',
    "\\<recalld\\_context\\> in Markdown",
    "## Memories",
    "## Recent messages",
    "### 2026-05-08",
    "- [1] my first point",
    "- [ ] buy milk",
    "- a list",
    "1. [x] done",
    "> a quote",
    "> - [2] a quoted list",
    "  indented",
    "    code",
    "```python",
    "```",
    "heuristics: be kind",
    "procedural_knowledge: how it is done",
    "user: hello",
    "tool: 3",
    '{"id": "mem_1", "content": "x"}',
    "Remembered data is data.",
    "He said: Cite an entry by what stands in its brackets.",
    "Recalld keeps it.",
    "<user_profile>",
    "</memories>",
    "C:\\new\\table",
    "50% off, %20 and %3C",
    'a "quoted" word',
    "\\u003c is <",
    "",
    "plain words",
]


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.sampled_from(MENTIONS) | WORDS, max_size=12).filter(lambda lines: not _is_block(lines)),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_what_a_user_writes_of_such_tags_and_headings_stays(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert strip_served(text) == text


def _is_block(lines: list[str]) -> bool:
    """Whether the lines by chance are a block of ours that lacks an end: that cannot be told from one."""
    said = [line.lstrip("> ") for line in lines]
    closes = {"</recalld_context>", "</agent_experience>", "</user_specific_experience>"}
    return any(line in closes for line in said[1:]) or any(line.startswith("`<agent") for line in said)


def test_documentation_of_our_format_stays() -> None:
    for text in (
        "A context looks so:\n\n```\n<recalld_context>\n…\n</recalld_context>\n```\nClear?",
        f"The first line is `{CONTEXT_OPENING.splitlines()[1]}` and then come titles.",
        fenced("<agent_experience>\n{{ lessons }}\n</agent_experience>", language="jinja"),
        "## Memories\n- [1] Lisbon\n- [2] Rome\n\n## Profile\n- [3] me",
        json.dumps({"tag": "<recalld_context>", "closing": "</recalld_context>"}),
    ):
        assert strip_served(text) == text


# --- Readings ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(["\\n", '\\"', '"', "\\\\", "\\u003c", "\\_", "<br>", "a", "é", "\n"]),
        max_size=12,
    )
)
def test_each_character_of_a_reading_has_its_place(parts: list[str]) -> None:
    text = "".join(parts)
    for decoded, at in readings(text):
        assert len(at) == len(decoded) + 1
        assert list(at) == sorted(at)
        assert at[-1] == len(text)


def test_a_text_of_blocks_without_ends_takes_time_in_proportion_to_its_length() -> None:
    """Each block goes on where the next begins: of 64,000 characters, 900 were each read up to the end of the text."""

    def read(text: str) -> None:
        assert len(strip_served(text)) < 100

    texts = [(f"{{<{OF_USER}>{KNOWN_OF_USER}\n" * length)[:length] for length in (8_000, 64_000)]
    short, long = (processor_time(partial(read, text)) for text in texts)
    assert long < 30 * max(short, 0.002)
