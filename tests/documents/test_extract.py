"""What a file's passages are."""

import io
import resource
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents import extract
from app.documents.extract import (
    MOST,
    FileUnreadable,
    TextSection,
    html_sections,
    markdown_sections,
    passages,
    pdf_sections,
    text_sections,
)
from tests.support.documents import MANUAL, pdf


def test_markdown_has_the_path_of_each_heading_and_the_place_of_each_passage() -> None:
    found = list(passages(markdown_sections(MANUAL)))
    assert [(item["headings"], item["text"].splitlines()[-1]) for item in found] == [
        (["Fern care"], "Keep ferns out of the sun."),
        (["Fern care", "Water"], "Water a fern every other day."),
        (["Fern care", "Soil"], "Use peat with a little bark."),
    ]
    assert [MANUAL[item["start"] : item["end"]] for item in found] == [item["text"] for item in found]


def test_a_line_in_a_block_of_code_is_no_heading() -> None:
    found = list(passages(markdown_sections("# One\n```\n# comment\n```\n")))
    assert [item["headings"] for item in found] == [["One"]]


def test_front_matter_is_no_heading() -> None:
    found = list(passages(markdown_sections("---\nname: fern\ndescription: How to water.\n---\n\n# Water\nDaily.")))
    assert [(item["headings"], item["text"]) for item in found] == [
        ([], "---\nname: fern\ndescription: How to water.\n---"),
        (["Water"], "# Water\nDaily."),
    ]


def test_a_heading_is_named_as_a_reader_sees_it() -> None:
    text = "# `run()` [![build](https://a.example/b.svg)](https://a.example)\nIt runs.\n# [The **end**](x)\nOver."
    assert [item["headings"] for item in passages(markdown_sections(text))] == [["run()"], ["The end"]]


@pytest.mark.parametrize("sign", ["\f", "\v", "\u2028", "\x85"])
def test_only_a_newline_ends_a_line_of_markdown(sign: str) -> None:
    found = list(passages(markdown_sections(f"# Care\none{sign}two\n# Water\nDaily.\n")))
    assert [(item["headings"], item["text"]) for item in found] == [
        (["Care"], f"# Care\none{sign}two"),
        (["Water"], "# Water\nDaily."),
    ]


def test_a_heading_with_nothing_below_it_begins_the_next_part() -> None:
    markdown = list(passages(markdown_sections("# Care\n\n## Water\nDaily.\n## Soil\n## Light\n")))
    assert [(item["headings"], item["text"]) for item in markdown] == [
        (["Care", "Water"], "# Care\n\n## Water\nDaily."),
        (["Care", "Soil"], "## Soil"),
        (["Care", "Light"], "## Light"),
    ]
    html = list(passages(html_sections("<h1>Care</h1><h2>Water</h2><p>Daily.</p><h2>Soil</h2>")))
    assert [(item["headings"], item["text"]) for item in html] == [
        (["Care", "Water"], "Care\nWater\nDaily."),
        (["Care", "Soil"], "Soil"),
    ]


def test_html_leaves_out_what_stands_beside_the_text() -> None:
    page = (
        '<div role="navigation">Menu</div><h1>Wa&shy;ter<a href="#water">¶</a></h1>'
        '<dl><dt>fill(jug)<a href="#fill">¶</a><dd>It fills <a href="#jug">the jug</a>.</dl>'
        '<p hidden>Not shown.<p hidden="until-found">Folded.<div role="search"><h3>Quick search</h3></div>'
    )
    assert [(item["headings"], item["text"]) for item in passages(html_sections(page))] == [
        (["Water"], "Water\nfill(jug)\nIt fills the jug.\nFolded.")
    ]


def test_html_keeps_the_lines_of_code() -> None:
    page = "<pre><code><b>def</b> f():\n    return 1\n</code></pre><p>one\ntwo</p>"
    assert [item["text"] for item in passages(html_sections(page))] == ["def f():\n    return 1\none two"]


@pytest.mark.parametrize(
    ("media_type", "charset", "file"),
    [
        ("text/html", "", '<meta charset="ISO-8859-1"><p>“Fenêtre”'.encode("cp1252")),
        ("text/html", "", '<meta content="text/html; charset=koi8-r"><p>Папоротник'.encode("koi8-r")),
        ("text/html", "", '<meta charset="utf-16"><p>Fenêtre'.encode()),
        ("text/html", "", '<meta charset="none-such"><p>Fenêtre'.encode()),
        ("text/html", "koi8-r", '<meta charset="utf-8"><p>Папоротник'.encode("koi8-r")),
        ("text/html", "utf-8", '<meta charset="iso-8859-1"><p>Fenêtre'.encode()),
        ("text/html", "", '\ufeff<meta charset="iso-8859-1"><p>Fenêtre'.encode()),
        ("text/plain", "", "\ufeffFenêtre".encode("utf-16-be")),
        ("text/plain", "", "\ufeffFenêtre".encode()),
        ("text/plain", "iso-8859-1", "“Fenêtre”".encode("cp1252")),
        ("text/plain", "utf-16le", "Fenêtre".encode("utf-16-le")),
        ("text/plain", "none-such", "Fenêtre".encode()),
        ("text/plain", "rot13", "Fenêtre".encode()),
        ("text/plain", "raw-unicode-escape", "Fenêtre\\ud83d".encode("latin-1")),
    ],
)
def test_a_text_is_read_in_the_encoding_that_it_names(
    media_type: str, charset: str, file: bytes, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(file)
    sections = extract.sections_of(media_type, str(tmp_path / "file"), {}, charset)
    found = [item["text"] for item in passages(sections)]
    assert found in (["Fenêtre"], ["“Fenêtre”"], ["Папоротник"], ["Fenêtre?"])


def test_an_underlined_line_of_a_text_is_a_heading() -> None:
    text = "CARE\n====\n\nKeep it warm.\n\nWater\n-----\nDaily.\n\nOr more,\nif it is hot.\n-----\n\nSOIL\n====\nPeat."
    found = list(passages(text_sections(text)))
    assert [(item["headings"], item["text"].splitlines()[1:]) for item in found] == [
        (["CARE"], ["====", "", "Keep it warm."]),
        (["CARE", "Water"], ["-----", "Daily.", "", "Or more,", "if it is hot.", "-----"]),
        (["SOIL"], ["====", "Peat."]),
    ]
    assert [text[item["start"] : item["end"]] for item in found] == [item["text"] for item in found]


def test_a_text_in_another_encoding_is_refused_and_one_broken_character_is_not(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("Größe äöü".encode("latin-1"))
    with pytest.raises(FileUnreadable, match="not text in UTF-8"):
        list(extract.sections_of("text/plain", str(tmp_path / "latin"), {}))
    (tmp_path / "cut").write_bytes(b"a" * 200 + b"\xff")
    (found,) = passages(extract.sections_of("text/plain", str(tmp_path / "cut"), {}))
    assert found["text"] == "a" * 200 + "\ufffd"


def test_html_has_what_a_reader_sees() -> None:
    page = (
        "<nav>Menu</nav><h1>Care</h1><p>Keep it <b>warm</b>.</p><script>x()</script><h2>Water</h2><ul><li>a<li>b</ul>"
    )
    found = list(passages(html_sections(page)))
    assert [(item["headings"], item["text"]) for item in found] == [
        (["Care"], "Care\nKeep it warm."),
        (["Care", "Water"], "Water\na\nb"),
    ]


def test_a_page_that_is_nested_deep_is_read() -> None:
    assert [item["text"] for item in passages(html_sections("<div>" * 5_000 + "deep"))] == ["deep"]


def test_a_pdf_has_pages_and_bookmarks(tmp_path: pytest.TempPathFactory) -> None:
    file, figures = io.BytesIO(pdf("Water it daily.", "", "Cut it in May.", title="Ferns")), dict[str, object]()
    found = list(passages(pdf_sections(file, figures)))
    assert [(item["page"], item["headings"], item["text"]) for item in found] == [
        (1, ["Ferns"], "Water it daily."),
        (3, ["Ferns"], "Cut it in May."),
    ]
    assert figures == {"pages": 3, "empty_pages": 1}


def test_a_ligature_of_a_pdf_is_its_letters() -> None:
    found = list(pdf_sections(io.BytesIO(pdf("Open the \\256le.")), {}))
    assert [section.text for section in found] == ["Open the file."]


def test_a_scanned_pdf_says_that_it_has_no_text() -> None:
    with pytest.raises(FileUnreadable, match="no text"):
        list(pdf_sections(io.BytesIO(pdf("", "")), {}))


@given(st.text(st.sampled_from("ab .\n。!é"), max_size=6_000))
def test_passages_hold_all_of_a_text_in_order_and_none_is_long(text: str) -> None:
    found = list(passages(iter([TextSection(text)])))
    assert all(0 < len(item["text"]) <= MOST for item in found)
    assert [text[item["start"] : item["end"]] for item in found] == [item["text"] for item in found]
    assert all(one["start"] < other["start"] for one, other in pairwise(found))
    ends = [0, *(item["end"] for item in found)]
    starts = [*(item["start"] for item in found), len(text)]
    assert all(not text[end:start].strip() for end, start in zip(ends, starts, strict=True))


def test_a_text_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MOST_CHARACTERS", 100)
    with pytest.raises(FileUnreadable, match="more than 100 characters"):
        list(passages(iter([TextSection("a " * 100)])))


@pytest.mark.parametrize(
    ("media_type", "size", "seconds"),
    [("text/html", 1_000, 6), ("text/html", 10 << 20, 16), ("text/markdown", 10 << 20, 60), ("application/pdf", 9, 60)],
)
def test_a_file_has_time_by_its_size(
    media_type: str, size: int, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 nested elements take a minute of the parser, and other files wait for it."""
    limits = dict[int, tuple[int, int]]()
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(extract, "sections_of", lambda *_: iter(()))
    file = tmp_path / "file"
    with file.open("wb") as sized:
        sized.truncate(size)
    extract.main(media_type, str(file))
    assert limits[resource.RLIMIT_CPU] == (seconds, seconds)
