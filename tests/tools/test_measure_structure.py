"""The figures of the structure count what a reader has to know."""

from pathlib import Path

from tools.measure_structure import PAST, declared_twice, imported_names, measure


def test_each_imported_name_of_another_own_module_counts() -> None:
    source = "import re\nfrom typing import Any\nfrom app.errors import NotFound, invalid\nfrom app.core import clock\n"
    assert imported_names(source) == 3


def test_an_answer_is_declared_twice_when_the_fields_are_the_same() -> None:
    typed = "class Rate(TypedDict):\n    low: float\n    high: float\n"
    model = "class Base(Schema):\n    low: float\nclass RateShown(Base):\n    k: ClassVar[int] = 1\n    high: float\n"
    page = "class Rates(TypedDict):\n    items: list[RateShown]\ndef get() -> Answer[schemas.Rates]: ...\n"
    assert declared_twice([typed, model, page]) == [("Rate", "RateShown")]
    assert declared_twice([typed, model.replace("high", "higher"), page]) == []
    body = page.replace("Answer[schemas.Rates]", "Answer[None]").replace("def get()", "def add(rate: RateShown)")
    assert declared_twice([typed, model, body]) == [], "a request body is no answer"


def test_versions_before_the_first_release_are_found_and_those_of_a_record_are_not() -> None:
    assert PAST.search("Stores of earlier versions are counted at their first start.")
    assert PAST.search("until now each was named")
    for text in ("an earlier version of a memory", "procedures and their earlier versions", "the former version stays"):
        assert not PAST.search(text)


def test_a_checkout_is_measured(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text("from app.b import c, d\n# of an older release\n" + "x = 1\n" * 98)
    assert measure(tmp_path) == {
        "modules of app/": "1",
        "lines of app/": "100",
        "own names imported for 100 lines": "2.00",
        "answers declared twice": "0",
        "words about versions before the first release": "1",
    }
