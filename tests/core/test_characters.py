"""How characters look: hidden ones are taken out where no writing needs them, look-alikes are read as ASCII."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.characters import LESS_THAN, fold, visible

ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
NEEDED = {
    "a family": "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a skin tone": "\U0001f469\U0001f3fd\u200d\U0001f52c",
    "a red heart": "\u2764\ufe0f",
    "a heart on fire": "\u2764\ufe0f\u200d\U0001f525",
    "a shaking head": "\U0001f642\u200d\u2194\ufe0f",
    "a keycap": "1\ufe0f\u20e3",
    "the flag of England": ENGLAND,
    "a flag of letters": "\U0001f1e9\U0001f1ea",
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "Hindi": "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
    "old Malayalam": "\u0d28\u0d4d\u200d \u0d15",
    "accents": "e\u0301 \u00e9",
    "an Arabic number sign": "\u0600\u0661",
    "lines": "a\r\n\tb\u2028c\x85d",
}


@pytest.mark.parametrize("text", NEEDED.values(), ids=NEEDED.keys())
def test_what_writing_needs_stays(text: str) -> None:
    assert visible(f"x {text} y") == f"x {text} y"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hi\U000e0068\U000e0069", "hi"),
        ("\U0001f3f4\U000e0078\U000e0079\U000e007f", "\U0001f3f4"),
        (f"{ENGLAND}\U000e0068\U000e0069", ENGLAND),
        ("\u202eabc\u202c \u2066d\u2069", "abc d"),
        ("pass\u200bword \u2060\ufeff\u00ad", "password "),
        ("a\u200db\u200cc", "abc"),
        ("\u0645\u200c\u200d\u200c\u06cc", "\u0645\u200c\u06cc"),
        ("\u0645\u200c \u06cc", "\u0645 \u06cc"),
        ("\U0001f600" + "".join(chr(0xE0100 + at) for at in range(9)), "\U0001f600"),
        ("\U0001f600\ufe0f\ufe0e\ufe0f", "\U0001f600\ufe0f"),
        ("x\ufe0f 1\ufe0f2", "x 12"),
        ("\ufff9a\ufffab\ufffb\u3164\U0001d173", "ab"),
        ("\u6f22\U000e0100\ufe00", "\u6f22"),
    ],
    ids=ascii,
)
def test_what_could_hide_text_goes(text: str, shown: str) -> None:
    assert visible(text) == shown


SOME = st.text(
    st.sampled_from("a\u0645\u094d1#\u20e3\u2764\U0001f3f4\U0001f469\u200c\u200d\u200b\ufe0f\U000e0067<")
    | st.characters()
)


@given(SOME)
def test_nothing_more_goes_a_second_time_and_nothing_that_shows(text: str) -> None:
    once = visible(text)
    assert visible(once) == once
    hidden = {"Cf", "Mn", "Lo", "Cn"}
    assert [one for one in once if unicodedata.category(one) not in hidden] == [
        one for one in text if unicodedata.category(one) not in hidden
    ]


def test_look_alikes_read_as_ascii() -> None:
    assert fold("\u0455\u0443st\u0435m \uff53\u0443\uff53") == "system sys"
    assert fold("\u0421\u039f\u039d\u03a4\u0395\u03a7\u03a4").lower() == "context"
    assert fold("r\u00e9ca\u0301\u200blld") == "recalld"
    assert fold("System [x] <y> | a_b /") == "System [x] <y> | a_b /"


def test_every_character_that_reads_as_an_opening_angle_is_listed() -> None:
    codes = (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    assert {char for char in map(chr, codes) if "<" in fold(char)} <= set(LESS_THAN)
