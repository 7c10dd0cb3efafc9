#!/usr/bin/env python3
"""Fetches the libraries that the console, the API page and their tests serve, and writes them into the tree.

Each library is a package of npm, fetched by `npm pack` at the version below. The script compares the SHA-256 of each
file with the recorded one and stops where they differ. `--update` records the files of new versions instead.
Run it after a change of `LIBRARIES`, and commit what it wrote. It needs npm.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSOLE = ROOT / "app/console/static/console/vendor"
API_PAGE = ROOT / "app/console/static/docs"
TESTS = ROOT / "tests/console/vendor"
RECORD = ROOT / "app/console/libraries.json"


def _as_it_is(text: str) -> str:
    return text


def _without_map(text: str) -> str:
    """Removes the reference to a source map, which is not served."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//# sourceMappingURL"))


def _beside(text: str) -> str:
    """Imports preact from the file beside it: a page without a build has no names of packages."""
    return _without_map(text).replace('from"preact"', 'from"./preact.mjs"')


def _as_module(text: str) -> str:
    return f"{text.rstrip()}\nexport default uPlot;\n"


def _from_global(text: str) -> str:
    return f"{text.rstrip()}\nexport const {{ diffWordsWithSpace }} = globalThis.Diff;\n"


@dataclass(frozen=True)
class Library:
    package: str
    version: str
    licence: str
    folder: Path
    files: dict[str, tuple[str, Callable[[str], str]]]
    """The file in the package, by the name that it has here, and what is changed in it."""
    icons: tuple[str, ...] = ()
    """The pictures that become one file, `icons.svg`, which the page contains: `<use href="#icon-pin">` draws one."""


LIBRARIES = (
    Library(
        "preact",
        "11.2.0",
        "MIT",
        CONSOLE,
        {"preact.mjs": ("dist/preact.mjs", _without_map), "hooks.mjs": ("hooks/dist/hooks.mjs", _beside)},
    ),
    Library("htm", "3.1.1", "Apache-2.0", CONSOLE, {"htm.mjs": ("dist/htm.mjs", _as_it_is)}),
    Library("openapi-fetch", "0.17.0", "MIT", CONSOLE, {"openapi-fetch.mjs": ("dist/index.mjs", _without_map)}),
    Library(
        "uplot",
        "1.6.32",
        "MIT",
        CONSOLE,
        {"uplot.mjs": ("dist/uPlot.iife.min.js", _as_module), "uplot.css": ("dist/uPlot.min.css", _as_it_is)},
    ),
    Library("diff", "9.0.0", "BSD-3-Clause", CONSOLE, {"diff.mjs": ("dist/diff.min.js", _from_global)}),
    Library("cytoscape", "3.34.4", "MIT", CONSOLE, {"cytoscape.mjs": ("dist/cytoscape.esm.min.mjs", _without_map)}),
    Library(
        "swagger-ui-dist",
        "5.35.0",
        "Apache-2.0",
        API_PAGE,
        {
            "swagger-ui.js": ("swagger-ui-bundle.js", _without_map),
            "swagger-ui.css": ("swagger-ui.css", _without_map),
        },
    ),
    Library(
        "lucide-static",
        "1.62.0",
        "ISC",
        CONSOLE,
        {},
        (
            *(
                "archive",
                "archive-restore",
                "check",
                "chevron-left",
                "circle-question-mark",
                "copy",
                "gauge",
                "lightbulb",
            ),
            *("list-checks", "log-out", "menu", "messages-square", "notebook-text", "pencil", "pin", "pin-off", "plus"),
            *("search", "server-cog", "text-quote", "trash-2", "users", "x"),
        ),
    ),
    Library("axe-core", "4.14.1", "MPL-2.0", TESTS, {"axe.min.js": ("axe.min.js", _as_it_is)}),
)


def fetch(library: Library, folder: Path) -> dict[str, bytes]:
    """Returns the files of a package by the names that they get, and its licence. Raises CalledProcessError."""
    subprocess.run(
        ["npm", "pack", f"{library.package}@{library.version}", "--silent"],
        cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        found = {}
        for name, (path, change) in library.files.items():
            found[name] = change(_read(packed, path).decode()).encode()
        if library.icons:
            found["icons.svg"] = _sprite({name: _read(packed, f"icons/{name}.svg").decode() for name in library.icons})
        found[f"{library.package}.LICENSE.txt"] = _read(packed, "LICENSE")
    return found


def _sprite(pictures: dict[str, str]) -> bytes:
    """Returns one picture of symbols, each by its name. How they are drawn is in the style sheet of the page."""
    symbols = []
    for name, picture in pictures.items():
        shapes = re.search(r"<svg[^>]*>(.*)</svg>", picture, re.DOTALL)
        assert shapes is not None, name
        symbols.append(f'<symbol id="icon-{name}" viewBox="0 0 24 24">{" ".join(shapes[1].split())}</symbol>')
    return ('<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n").encode()


def _read(packed: tarfile.TarFile, path: str) -> bytes:
    member = packed.extractfile(f"package/{path}")
    assert member is not None, path
    return member.read()


def main() -> None:
    """Writes all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--update", action="store_true", help="record the files of new versions")
    update = parser.parse_args().update
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record = {}
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            files = fetch(library, Path(folder))
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        if not update and known.get(library.package, {}).get("sha256") != hashes:
            sys.exit(f"{library.package} {library.version} differs from the record: --update if you changed it.")
        library.folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (library.folder / name).write_bytes(data)
        where = str(library.folder.relative_to(ROOT))
        record[library.package] = {
            "version": library.version, "licence": library.licence, "folder": where, "sha256": hashes,
        }  # fmt: skip
        print(f"{library.package} {library.version}: {sum(map(len, files.values()))} bytes")
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
