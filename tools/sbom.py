"""Makes the software bill of materials of what is shipped: CycloneDX 1.6 as JSON, the same for the same content.

    .venv/bin/python tools/sbom.py >recalld.cdx.json

It lists the packages of `requirements/runtime.txt` with the hashes of all their released files, the embedding model and
the token vocabulary in `app/`, and the console's vendored libraries (`app/console/libraries.json`). Licences are what
the packages installed beside this program declare, so it runs in the project's own environment. It ends with exit code
1 and a list if a package has no known licence or one that may not be shipped.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app import VERSION

ROOT = Path(__file__).resolve().parent.parent
Component: TypeAlias = dict[str, Any]

IDS = frozenset(
    "0BSD AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 BSD-2-Clause BSD-3-Clause BSD-3-Clause-Open-MPI CC0-1.0 "
    "CNRI-Python GPL-2.0-only GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later ISC LGPL-2.1-or-later LGPL-3.0-only "
    "LGPL-3.0-or-later MIT MIT-0 MPL-2.0 PSF-2.0 Zlib".split()
)
"""SPDX identifiers that are written as such. Another one is written as a name until it is added here."""
WORDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What packages say without SPDX, as its identifiers."""
ELSEWHERE = {"colorama": "BSD-3-Clause", "httpx2-jsfetch": "BSD-3-Clause", "pywin32": "PSF-2.0"}
"""Licences of packages that other platforms need, as their released files declare them."""
GCC_EXCEPTION = "GPL-3.0-or-later WITH GCC-exception-3.1"
BUNDLED = {
    "numpy": {
        "libgfortran": GCC_EXCEPTION,
        "libquadmath": "LGPL-2.1-or-later",
        "libscipy_openblas64_": "BSD-3-Clause AND BSD-3-Clause-Open-MPI",
    },
    "simsimd": {"libgomp": GCC_EXCEPTION},
}
"""Shared libraries that wheels for Linux carry beside their package, which the package's metadata does not declare."""
STATED = frozenset({"libgfortran", "libgomp", "libquadmath"})
"""Components whose licence of the GPL family is accepted; `docs/contributing/releasing.md` says why."""
MODEL = "app/embedding/data"
VOCABULARY = "app/core/data/o200k_base.bin.zlib"


def locked(text: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yields name, version, condition ("" for none) and SHA-256 digests of each package in the text of a lock."""
    for line in text.replace("\\\n", " ").splitlines():
        if found := re.match(r"([A-Za-z0-9][\w.-]*)==([^\s;]+)\s*(?:;\s*(.*?))?\s*(?=--hash|$)", line):
            name = re.sub(r"[-_.]+", "-", found[1]).lower()
            yield name, found[2], found[3] or "", sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))


def declared(about: "Message[str, str]") -> str:
    """Returns the licence of a package's metadata: its expression, else its text's first line, else its classifiers.
    "" if it says nothing."""
    said = about.get("License-Expression") or (about.get("License") or "").strip().partition("\n")[0].strip()
    if not said:
        given = [value for name, value in about.items() if name == "Classifier" and value.startswith("License ::")]
        said = " AND ".join(sorted(WORDS.get(one, one) for one in (value.rpartition(" :: ")[2] for value in given)))
    return WORDS.get(said, said)


def licences(said: str) -> list[dict[str, Any]]:
    """Returns CycloneDX's form of a licence: an SPDX identifier, an expression of several, or a name."""
    if said in IDS:
        return [{"license": {"id": said}}]
    known = {*IDS, "AND", "OR", "WITH", "GCC-exception-3.1"}
    if known.issuperset(re.findall(r"[^\s()]+", said)) and said:
        return [{"expression": said}]
    return [{"license": {"name": said}}] if said else []


def package(name: str, version: str, condition: str, digests: list[str]) -> Component:
    """Returns the component of a locked package."""
    about: Any = None
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        said = ELSEWHERE.get(name, "")
    else:
        said = declared(about)
    purl = f"pkg:pypi/{name}@{quote(version)}"
    notes = {"recalld:condition": condition}
    if about is not None and about["Version"] != version:
        notes["recalld:licence-of-version"] = about["Version"]
    made: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        "licenses": licences(said),
        "purl": purl,
        "properties": [{"name": key, "value": value} for key, value in notes.items() if value],
    }
    made["components"] = [
        {"type": "library", "bom-ref": f"{purl}#{library}", "name": library, "licenses": licences(said)}
        for library, said in BUNDLED.get(name, {}).items()
    ]
    return {key: value for key, value in made.items() if value != []}


def shipped(path: str, digest: str) -> Component:
    """Returns the component of a file that is part of the package."""
    return {
        "type": "file",
        "bom-ref": f"file:{path}",
        "name": path,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _sha256(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


DESCRIPTIONS = {
    "recalld-minilm-1": "sentence-transformers/all-MiniLM-L6-v2, taught on what memory is asked, quantized to int8",
}


def models() -> Iterator[Component]:
    """Yields the embedding models, each with its file, and the tokenizer that they share."""
    folder = ROOT / MODEL
    for path in sorted(folder.glob("*.onnx")):
        file = path.relative_to(ROOT).as_posix()
        yield {
            "type": "machine-learning-model",
            "bom-ref": f"model:{path.stem}",
            "name": path.stem,
            "description": DESCRIPTIONS[path.stem],
            "licenses": licences("Apache-2.0"),
            "components": [shipped(file, _sha256(file))],
        }
    tokenizer = (folder / "tokenizer.json").relative_to(ROOT).as_posix()
    yield {**shipped(tokenizer, _sha256(tokenizer)), "type": "data", "licenses": licences("Apache-2.0")}


def vocabulary() -> Component:
    return {**shipped(VOCABULARY, _sha256(VOCABULARY)), "type": "data", "licenses": licences("MIT")}


def console() -> Iterator[Component]:
    """Yields the vendored libraries of the console that are shipped: those in `app/`."""
    recorded = json.loads((ROOT / "app/console/libraries.json").read_text(encoding="utf-8"))
    for name, one in recorded.items():
        if not one["folder"].startswith("app/"):
            continue  # a library of the tests
        purl = f"pkg:npm/{quote(name)}@{quote(one['version'])}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": one["version"],
            "licenses": licences(one["licence"]),
            "purl": purl,
            "components": [shipped(f"{one['folder']}/{file}", digest) for file, digest in one["sha256"].items()],
        }


def bill(lock: str) -> dict[str, Any]:
    """Returns the bill for the text of a lock. Equal content gives an equal bill: its serial number is a digest."""
    root = f"pkg:pypi/recalld@{quote(VERSION)}"
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "recalld",
                "version": VERSION,
                "licenses": licences("Apache-2.0"),
                "purl": root,
            }
        },
        "components": [*(package(*one) for one in locked(lock)), *models(), vocabulary(), *console()],
    }
    content = json.dumps(made, sort_keys=True, ensure_ascii=False)
    return {**made, "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, content).urn}


def every(components: Iterable[Component]) -> Iterator[Component]:
    """Yields the components and those inside them."""
    for one in components:
        yield one
        yield from every(one.get("components", ()))


def faults(made: Mapping[str, Any]) -> list[str]:
    """Says which components may not be shipped: those of the GPL family unless `STATED` names them, and those without a
    licence. A choice ("MIT OR GPL-3.0-only") counts as what it could be, so that somebody looks. Files have the licence
    of what they belong to."""
    found = []
    for one in every(made["components"]):
        said = json.dumps(one.get("licenses", []))
        if not one.get("licenses") and one["type"] != "file":
            found.append(f"{one['name']}: no licence is known")
        elif re.search(r"GPL|General Public|Affero", said) and one["name"] not in STATED:
            found.append(f"{one['name']}: {said} may not be shipped")
    return found


def main() -> None:
    made = bill((ROOT / "requirements/runtime.txt").read_text(encoding="utf-8"))
    print(json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False))
    if wrong := faults(made):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
