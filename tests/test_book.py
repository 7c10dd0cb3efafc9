"""The pages for users are run as they are printed, and show what comes. `tests/support/book.py` says how."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.book import blocks, difference, faults
from tests.support.server import ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(
        page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in ("contributing", "decisions")
    ),
]
PROGRAMS = {"jq": r"\bjq\b", "node": r"^```js$"}
"""What a page may need of the system, beside a shell and curl."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_shows_what_comes(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for program, pattern in PROGRAMS.items():
        if re.search(pattern, text, re.MULTILINE) and shutil.which(program) is None:
            pytest.skip(f"the page needs {program}")
    assert faults(text, tmp_path) == []


PLANTED = {
    "another answer": ('```sh\necho \'{"a": 1}\'\n```\n\n```json\n{"a": 2}\n```\n', "/a: 2 is shown, 1 came"),
    "another line": ("```sh\necho one\n```\n\n```text\ntwo\n```\n", "did not come: two"),
    "a line too many": ("```sh\nprintf 'one\\ntwo'\n```\n\n```text\none\n```\n", "not shown: two"),
    "an error": ("```sh\ncurl -s http://127.0.0.1:8000/v1/memories/mem_1\n```\n", "not_found"),
    "a command that fails": ("```sh\nfalse\ntrue\n```\n", "failed: false"),
    "Python that fails": ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
}


def test_planted_faults_are_found(tmp_path: Path) -> None:
    page = (
        "\n".join(text for text, _ in PLANTED.values())
        + "```sh\necho mem_0190a1b2c3d4 0.71\n```\n\n```text\nmem_01…  0.5\n```\n"
    )
    found = faults(page, tmp_path)
    assert len(found) == len(PLANTED)
    for (_, says), fault in zip(PLANTED.values(), found, strict=True):
        assert says in fault


def test_a_fence_that_nothing_is_said_of_is_refused() -> None:
    for page in (
        "```yaml\na: 1\n```\n",
        "```json\n{}\n```\n",
        "<!-- tested: tests/test_gone.py -->\n```sh\ntrue\n```\n",
    ):
        with pytest.raises(ValueError, match="line "):
            list(blocks(page))
    assert list(blocks("<!-- not run: needs Atlas -->\n```sh\ntrue\n```\n")) == []


def test_what_may_differ_may_differ_and_no_more() -> None:
    assert (
        difference(
            '{"score": 0.8, "items": [{"id": "mem_0190a1b2"}, …]}',
            '{"score": 0.81, "n": 1, "items": [{"id": "mem_0290ffff"}]}',
        )
        is None
    )
    assert difference('{"score": 0.8}', '{"score": 0.7}') is not None
    assert (
        difference('{"valid_from": "2026-05-01T00:00:00.000Z"}', '{"valid_from": "2026-05-02T00:00:00.000Z"}')
        is not None
    )
    assert difference("Ada\n…\n3 memories", "Ada\nx\ny\n3 memories") is None
    assert difference("3 memories", "4 memories") is not None
    assert difference("[1] (2026-11-01) tea", "[1] (2026-11-29) tea") is None


def test_no_page_for_users_names_a_source_file() -> None:
    for page in PAGES:
        assert re.findall(r"\bapp/\w[\w/.]*", page.read_text(encoding="utf-8")) == [], name(page)


def test_each_message_of_the_page_of_problems_is_one_that_is_said() -> None:
    """Texts in bold and code quotes of three words and more; `…` and addresses stand for what differs."""
    code = [path for folder in ("app", "clients/python/recalld_client") for path in (ROOT / folder).rglob("*.py")]
    said = "".join(path.read_text(encoding="utf-8") for path in [*code, ROOT / "scripts" / "bootstrap.sh"])
    said = re.sub(r'"\s*f?"', "", said)  # a text over several lines
    bold = re.findall(r"^\*\*(.*?)\*\*", (DOCS / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)
    messages = [text for part in bold for text in re.findall(r"`([^`]+)`", part) if text.count(" ") > 1]
    assert len(messages) > 12
    parts = [part.strip() for text in messages for part in re.split(r"…|http\S+|127\S+|0\.0\.0\.0|RECALLD_\S+", text)]
    assert [part for part in parts if part and part not in said] == []


def test_the_book_for_users_has_at_most_45_000_words() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES) <= 45_000
