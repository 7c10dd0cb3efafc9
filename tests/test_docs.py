"""The docs say what the code says: every error, every metric, every route of health."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from app import errors
from app.api import health
from app.errors import RecalldError
from app.retrieval.calibration import DEFAULT_CALIBRATION, Terms
from app.retrieval.features import FEATURES
from app.retrieval.ranking import DEFAULT_WEIGHTS, Blend

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_readme_leads_to_every_page_and_links_lead_somewhere() -> None:
    root = DOCS.parent
    pages = [
        root / "README.md",
        *DOCS.rglob("*.md"),
        *(root / "examples").glob("*.md"),
        *(root / "clients").rglob("*.md"),
    ]
    links = {page: re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")) for page in pages}
    dead = [(page.name, link) for page, found in links.items() for link in found if not (page.parent / link).exists()]
    assert dead == []
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= set(links[root / "README.md"])


def tree(kind: type[RecalldError]) -> Iterator[type[RecalldError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def told() -> set[tuple[str, str]]:
    """(status, code) of every error; private ones carry their base's."""
    return {(str(kind.status), kind.code) for kind in tree(RecalldError)}


def test_the_error_page_lists_every_code() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", page, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == told()


def test_the_tree_in_errors_is_the_tree() -> None:
    drawn = re.findall(r"(\w+) (\d{3}) (\w+)", errors.__doc__ or "")
    ours = [kind for kind in tree(RecalldError) if kind.__module__ == errors.__name__ and kind is not RecalldError]
    assert [(kind.__name__, str(kind.status), kind.code) for kind in ours] == drawn


def table(of: Mapping[str, object], rows: Sequence[str], *, turned: bool = False) -> str:
    """The fields of these objects as Markdown: one column for each object, or one row."""
    cells = {name: [_shown(getattr(one, name, 0.0)) for one in of.values()] for name in rows}
    if turned:
        lines = [["", *(f"`{name}`" for name in rows)]]
        lines += [[label, *(cells[name][at] for name in rows)] for at, label in enumerate(of)]
    else:
        lines = [["", *of], *([f"`{name}`", *cells[name]] for name in rows)]
    head, *rest = ["| " + " | ".join(line).strip() + " |" for line in lines]
    made = [head, "|---|" + "--:|" * (len(lines[0]) - 1), *rest]
    return "\n".join(re.sub(" {2,}", " ", line) for line in made)


def _shown(value: float) -> str:
    return f"{value:g}".replace("-", "\u2212") if value else ""


@pytest.mark.parametrize("name", ["weights", "calibration"])
def test_the_page_of_retrieval_has_the_numbers_that_the_code_has(name: str) -> None:
    weights, calibration = DEFAULT_WEIGHTS, DEFAULT_CALIBRATION
    kinds = {"person": weights.person, "assistant": weights.assistant, "plain": weights.plain}
    places = {"turns": calibration.turn, "plain memories": calibration.plain}
    expected = {
        "weights": table({**kinds, "foreign": weights.foreign}, [field.name for field in fields(Blend)]),
        "calibration": table(places, [field.name for field in fields(Terms)], turned=True),
    }
    page = (DOCS / "retrieval.md").read_text(encoding="utf-8")
    found = page.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0]
    assert found == expected[name], f"the table to paste:\n{expected[name]}"


def test_the_page_of_retrieval_names_every_feature() -> None:
    page = (DOCS / "retrieval.md").read_text(encoding="utf-8").split("## Features")[1].split("## Kinds of memory")[0]
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [*FEATURES, "when", "latest", "echo", "filler"]


def test_the_operating_page_names_every_metric_and_route_of_health() -> None:
    page = (DOCS / "operating.md").read_text(encoding="utf-8")
    metrics = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("recalld_")}
    metrics = {name for name in metrics if not name.endswith("_created")}
    named = set(re.findall(r"`(recalld_\w+?)(?:_total)?`", page))
    assert named == metrics
    for route in health.router.routes:
        assert f"`{getattr(route, 'path', '')}`" in page
