"""The docs say what the code says: every error, metric, route of health and name, and every path and link exists."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from app import errors
from app.embedding.factory import DEFAULT_MODEL
from app.errors import RecalldError
from app.operations import endpoints as operations
from app.retrieval.model_weights import Blend, CalibrationFactors, weights_for
from app.retrieval.ranking import FEATURES
from app.storage.protocol import Reembedding, Store
from app.storage.transfer import MovableStore

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CODE_PATH = re.compile(
    r"(?<![\w/.~$-])((?:app|benchmarks|clients|deploy|docs|examples|openapi|requirements|scripts|tests|tools)/"
    r"[\w./*-]*[\w*/])"
)
"""A path that begins with a folder of the project, in prose or in a command."""
CODE_FOLDERS = ("app", "benchmarks", "examples", "scripts", "tests", "tools")
DOC_PATH = re.compile(r"docs/[\w/-]+\.md")


def _paths(pages: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for page in pages:
        for path in CODE_PATH.findall(page.read_text(encoding="utf-8")):
            yield str(page.relative_to(ROOT)), path


def _links(page: Path) -> set[Path]:
    """The files that a page links, outside and anchors left out."""
    found = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in found}


def test_the_readme_leads_to_every_page_and_links_lead_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *PAGES,
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "clients").rglob("*.md"),
    ]
    assert [(page.name, str(link)) for page in pages for link in _links(page) if not link.exists()] == []
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += _links(page)
    assert {page for page in PAGES if page.parent != DOCS / "decisions"} <= reached


def test_each_path_that_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
    named = list(_paths(pages))
    assert len(named) > 100
    assert [(page, path) for page, path in named if "*" not in path and not (ROOT / path).exists()] == []
    assert [(page, path) for page, path in named if "*" in path and not any(ROOT.glob(path))] == []


def test_each_page_that_the_code_names_exists() -> None:
    files = [
        *(path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")),
        *(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix),
        *(ROOT / name for name in ("docker-compose.yml", "openapi/openapi.json", ".env.example")),
    ]
    named = {
        (str(path.relative_to(ROOT)), page) for path in files for page in DOC_PATH.findall(path.read_text("utf-8"))
    }
    assert named
    assert [(path, page) for path, page in sorted(named) if not (ROOT / page).exists()] == []


def test_each_term_of_the_glossary_is_defined_where_the_page_says() -> None:
    page = (DOCS / "contributing" / "glossary.md").read_text(encoding="utf-8")
    places = re.findall(r"`(app/[\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", page)
    assert len(places) > 60
    missing = [
        (path, name)
        for path, names in places
        for name in re.findall(r"`(\w+)`", names)
        if not re.search(rf"^(?:class |def |async def )?{name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_the_names_that_contributors_are_given_exist() -> None:
    """Classes, private functions and constants in code quotes; what is written in capitals may be a setting."""
    code = "\n".join(
        path.read_text(encoding="utf-8") for folder in ("app", "tests") for path in (ROOT / folder).rglob("*.py")
    )
    known = set(re.findall(r"\w+", code))
    for page in (ROOT / "CONTRIBUTING.md", DOCS / "contributing" / "architecture.md"):
        quoted = re.findall(r"`(\w+(?:\.\w+)*)(?:\(…\))?`", page.read_text(encoding="utf-8"))
        names = {part for name in quoted if name != "CHANGELOG.md" for part in name.split(".")}
        named = {name for name in names if re.match(r"_?[A-Z]|_[a-z]", name) and not name.startswith("RECALLD_")}
        assert len(named) > 15
        assert sorted(named - known) == []


def test_the_layers_of_the_architecture_page_are_those_of_the_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["containers"] == ["app"])
    declared = [[part.strip() for part in layer.split("|") if "(" not in part] for layer in layers]
    page = (DOCS / "contributing" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", packages) for _, packages in rows] == declared
    assert [int(number) for number, _ in rows] == list(range(len(declared), 0, -1))


def test_the_decision_on_the_storage_protocol_names_each_method() -> None:
    page = (DOCS / "decisions" / "0004-storage-protocol.md").read_text(encoding="utf-8")
    rows = page.split("| Group | Methods |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", rows))
    protocols = (Store, Reembedding, MovableStore)
    methods = {name for protocol in protocols for name in vars(protocol) if not name.startswith("_")}
    assert methods <= named


# --- The site ---------------------------------------------------------------------------------------------------------


def _nav(entries: Any) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from _nav([below] if isinstance(below, str) else below)


def _build(project: Path) -> subprocess.CompletedProcess[str]:
    """`zensical build --strict` of a project, in a process of its own that can reach no host through a proxy."""
    nowhere = "http://127.0.0.1:9"
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), nowhere)
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(project / "zensical.toml")],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1", **proxies},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the site is built from, where a build leaves nothing in the checkout."""
    for name in ("zensical.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    return tmp_path


def test_the_site_has_every_page_in_its_order_of_reading() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    read = list(_nav(settings["nav"]))
    assert sorted(read) == sorted(str(page.relative_to(DOCS)) for page in PAGES)
    assert [next(iter(section)) for section in settings["nav"]] == [
        "Start",
        "Concepts",
        "Guides",
        "Reference",
        "Operations",
        "Contributing",
    ]


def test_the_site_builds_strictly_with_its_diagrams(project: Path) -> None:
    built = _build(project)
    assert built.returncode == 0, built.stdout + built.stderr
    made = {page: (project / "site" / page.relative_to(DOCS).with_suffix(".html")).read_text("utf-8") for page in PAGES}
    for page, html in made.items():
        assert "mermaid" not in page.read_text("utf-8"), "the site would fetch a script from elsewhere"
        assert re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', html) == []
        if page.parent == DOCS / "concepts":
            assert html.count("assets/pictures/") == 1


def test_a_concept_takes_five_minutes() -> None:
    words = {page.name: len(page.read_text("utf-8").split()) for page in (DOCS / "concepts").glob("*.md")}
    assert [(name, number) for name, number in words.items() if number > 900] == []


def test_a_link_that_leads_nowhere_fails_the_build(project: Path) -> None:
    page = project / "docs" / "contributing" / "glossary.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](reference/gone.md)\n", encoding="utf-8")
    assert _build(project).returncode != 0


# --- What the pages list ----------------------------------------------------------------------------------------------


def tree(kind: type[RecalldError]) -> Iterator[type[RecalldError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def told() -> set[tuple[str, str]]:
    """(status, code) of every error; private ones carry their base's."""
    return {(str(kind.status), kind.code) for kind in tree(RecalldError)}


def test_the_error_page_lists_every_code() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
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
    fitted = weights_for(DEFAULT_MODEL)
    weights, calibration = fitted.weights, fitted.calibration
    kinds = {"person": weights.person, "assistant": weights.assistant, "plain": weights.plain}
    places = {"turns": calibration.turn, "plain memories": calibration.plain}
    expected = {
        "weights": table({**kinds, "foreign": weights.foreign}, [field.name for field in fields(Blend)]),
        "calibration": table(places, [field.name for field in fields(CalibrationFactors)], turned=True),
    }
    page = (DOCS / "contributing" / "ranking.md").read_text(encoding="utf-8")
    found = page.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0]
    assert found == expected[name], f"the table to paste:\n{expected[name]}"


def test_the_page_of_retrieval_names_every_feature() -> None:
    page = (DOCS / "contributing" / "ranking.md").read_text(encoding="utf-8")
    features = page.split("## Features")[1].split("## Kinds of memory")[0]
    listed = re.findall(r"^\| `(\w+)` \|", features, re.MULTILINE)
    assert listed == [*FEATURES, "when", "latest", "echo", "filler", "first"]


def test_the_operations_pages_name_every_metric_and_route_of_health() -> None:
    page = (DOCS / "operations" / "observability.md").read_text(encoding="utf-8")
    metrics = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("recalld_")}
    metrics = {name for name in metrics if not name.endswith("_created")}
    named = set(re.findall(r"`(recalld_\w+?)(?:_total)?`", page))
    assert named == metrics
    page = (DOCS / "operations" / "operating.md").read_text(encoding="utf-8")
    for route in operations.health_router.routes:
        assert f"`{getattr(route, 'path', '')}`" in page


def test_no_page_overwrites_a_readers_file_or_signals_a_process_that_it_did_not_start() -> None:
    """`cp … ~/.claude/settings.json` loses the reader's settings, and `pgrep` finds another's service."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/README.md"), *ROOT.glob("deploy/*")]
    pages = [page for page in pages if page.is_file() and not {"node_modules", ".venv"} & set(page.parts)]
    assert len(pages) > 40
    for page in pages:
        for line in page.read_text().splitlines():
            assert not re.search(r"\b(cp|mv|tee)\b(?! -n).* ~/\.|[^>]> ?~/\.", line), f"{page}: {line}"
            assert not re.search(r"\b(pgrep|pkill|killall)\b", line), f"{page}: {line}"


GUIDES = [
    ROOT / "README.md",
    *DOCS.glob("*.md"),
    *(page for folder in ("concepts", "guides", "operations", "reference") for page in (DOCS / folder).glob("*.md")),
    *(page for folder in ("clients", "integrations") for page in (ROOT / folder).glob("*/README.md")),
]
SESSION = re.compile(r"""/v1/sessions/([\w-]+)/|session\("([^"]+)"\)|"?session(?:_id)?"?[:=] ?"([^"]+)\"""")


def test_no_two_pages_use_one_session_id_and_the_first_key_opens_what_was_stored_without_one() -> None:
    """A session_id is unique in a tenant: whoever tries two pages with other owners would get a 409."""
    used = dict[str, str]()
    for page in GUIDES:
        text = page.read_text(encoding="utf-8")
        blocks = "".join(re.findall(r"```.*?```", text, re.DOTALL))
        for session in {next(filter(None, found)) for found in SESSION.findall(blocks)}:
            assert session not in used, f"{page}: {session} is used in {used[session]}, too"
            used[session] = str(page)
        first = re.search(r"keys create --tenant (\w+)", text)
        assert first is None or first[1] == "default", page
    assert len(used) > 5
