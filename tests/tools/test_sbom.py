"""The bill of materials holds all that is shipped, in the form of CycloneDX 1.6, under licences that allow it.

CycloneDX's JSON schema is in no package that the tests install, so the form is checked by hand here: the members that
the schema requires, and the shapes of references, purls, digests and licences.
"""

import json
import re
import uuid
from copy import deepcopy
from email.message import Message
from importlib import metadata
from typing import Any

import pytest

from tools.sbom import BUNDLED, IDS, ROOT, bill, declared, every, faults, licences, locked

LOCK = (ROOT / "requirements/runtime.txt").read_text(encoding="utf-8")
TYPES = {"library", "file", "machine-learning-model", "data"}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return bill(LOCK)


def missing(bill_: dict[str, Any], lock: str) -> set[str]:
    """Packages of the lock (`name==version`) that the bill does not have, by another reading of the lock."""
    wanted = {line.split(" ")[0] for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))}
    return wanted - {f"{one['name']}=={one.get('version')}" for one in bill_["components"]}


def test_it_has_every_package_of_the_lock_with_all_digests(made: dict[str, Any]) -> None:
    assert missing(made, LOCK) == set()
    listed = [digest["content"] for one in made["components"] if "pypi" in one["bom-ref"] for digest in one["hashes"]]
    assert sorted(listed) == sorted(re.findall(r"sha256:(\w+)", LOCK))
    less = {**made, "components": [one for one in made["components"] if one["name"] != "apsw"]}
    assert {name.partition("==")[0] for name in missing(less, LOCK)} == {"apsw"}, "one that is missing is noticed"


def test_it_has_the_model_and_the_console_libraries_with_their_digests(made: dict[str, Any]) -> None:
    files = {one["name"]: one for one in every(made["components"]) if one["bom-ref"].startswith("file:")}
    shipped = {"recalld-minilm-1.onnx", "tokenizer.json"}
    assert {f"app/embedding/data/{name}" for name in shipped} <= set(files)
    stated = (ROOT / "app/embedding/data/README.md").read_text()
    for name, one in files.items():
        if name.endswith((".onnx", "tokenizer.json")):
            assert one["hashes"][0]["content"] in stated
    recorded = json.loads((ROOT / "app/console/libraries.json").read_text())
    served = {f"{one['folder']}/{file}": digest for one in recorded.values() for file, digest in one["sha256"].items()}
    for name, digest in served.items():
        if name.startswith("app/"):
            assert files[name]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert all((ROOT / name).is_file() for name in files)
    assert not any(name.startswith("tests/") for name in files), "what only tests use is not shipped"


def test_it_has_the_form_of_cyclonedx(made: dict[str, Any]) -> None:
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", made["serialNumber"])
    assert uuid.UUID(made["serialNumber"]).version == 5
    assert "timestamp" not in made["metadata"]
    components = [made["metadata"]["component"], *every(made["components"])]
    references = [one["bom-ref"] for one in components]
    assert len(set(references)) == len(references)
    for one in components[1:]:
        assert one["type"] in TYPES
        assert one["name"]
        for digest in one.get("hashes", ()):
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch(r"[0-9a-f]{64}", digest["content"])
        if "purl" in one:
            assert re.fullmatch(r"pkg:(pypi|npm)/[a-z0-9][a-z0-9.-]*@[\w.%-]+", one["purl"])
        for choice in one.get("licenses", ()):
            if "expression" in choice:
                words = re.findall(r"[^\s()]+", choice["expression"])
                assert {*IDS, "AND", "OR", "WITH", "GCC-exception-3.1"}.issuperset(words)
                assert len(one["licenses"]) == 1, "an expression stands alone"
            else:
                ((kind, value),) = choice["license"].items()
                assert value in IDS if kind == "id" else (kind == "name" and value not in IDS)


def test_equal_content_gives_an_equal_bill_and_other_content_another_number(made: dict[str, Any]) -> None:
    assert bill(LOCK) == made
    other = bill(LOCK.replace("apsw==", "apsw==9", 1))
    assert other["serialNumber"] != made["serialNumber"]


def test_nothing_of_the_gpl_is_shipped_but_what_is_stated(made: dict[str, Any]) -> None:
    assert faults(made) == []


@pytest.mark.parametrize(
    "said",
    [
        "GPL-3.0-only",
        "AGPL-3.0-or-later",
        "LGPL-2.1-or-later",
        "MIT AND GPL-2.0-or-later",
        "GPLv3",
        "GNU General Public License v3 (GPLv3)",
        "GNU Affero General Public License v3",
        "",
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_planted_licence_is_noticed(made: dict[str, Any], said: str, nested: bool) -> None:
    planted = deepcopy(made)
    one = {"type": "library", "bom-ref": "x", "name": "planted", "licenses": licences(said)}
    planted["components"] += [{**planted["components"][0], "components": [one]}] if nested else [one]
    (fault,) = faults(planted)
    assert fault.startswith("planted: ")


def test_a_licence_is_read_from_the_expression_the_text_or_the_classifiers() -> None:
    def of(*lines: tuple[str, str]) -> list[dict[str, Any]]:
        from_file = Message()
        for name, value in lines:
            from_file[name] = value
        return licences(declared(from_file))

    mit = ("Classifier", "License :: OSI Approved :: MIT License")
    apache = ("Classifier", "License :: OSI Approved :: Apache Software License")
    assert of(("License-Expression", "MIT"), ("License", "BSD")) == [{"license": {"id": "MIT"}}]
    assert of(("License", "MIT License\n\nCopyright (c) 2022")) == [{"license": {"id": "MIT"}}]
    assert of(mit, ("Classifier", "Topic :: Internet"), apache) == [{"expression": "Apache-2.0 AND MIT"}]
    assert of(("License", "any-OSI")) == [{"license": {"name": "any-OSI"}}]
    assert of() == []


def test_libraries_inside_wheels_are_those_of_the_table() -> None:
    installed = {str(one.metadata["Name"]).lower() for one in metadata.distributions()}
    for name, *_ in locked(LOCK):
        files = (metadata.files(name) or ()) if name in installed else ()
        carried = {file.name for file in files if file.parts[0].endswith(".libs")}
        strange = {file for file in carried if not file.startswith(tuple(BUNDLED.get(name, ())))}
        assert not strange, f"{name} carries {strange}: add them to BUNDLED with their licence"
