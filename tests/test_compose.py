"""docker-compose.yml and what it mounts: valid, bounded, checked for health, and without a secret of its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings, describe

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docker-compose.yml"
TEXT = FILE.read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

EXACT = re.compile(r"v?\d+\.\d+\.\d+(-[a-z.-]+)?")
"""A tag that names one version: 8.0.13, v3.5.0, 3.13.9-slim-bookworm."""

each_service = pytest.mark.parametrize("name", SERVICES)


def test_it_is_a_compose_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_starts_the_service_on_a_mongodb_and_prometheus_only_if_asked() -> None:
    assert set(SERVICES) == {"recalld", "mongodb", "mongodb-tests", "prometheus"}
    assert SERVICES["mongodb"]["image"].startswith("mongodb/mongodb-atlas-local:")
    profiles = {name: SERVICES[name]["profiles"] for name in SERVICES if "profiles" in SERVICES[name]}
    assert profiles == {"prometheus": ["metrics"], "mongodb-tests": ["tests"]}


def test_the_mongodb_of_the_tests_is_the_same_and_keeps_nothing() -> None:
    served, tested = SERVICES["mongodb"], SERVICES["mongodb-tests"]
    assert tested["image"] == served["image"]
    assert {volume.split(":")[1] for volume in served["volumes"]} == set(tested["tmpfs"])
    assert tested["networks"] == ["tests"]
    page = (ROOT / "docs/operations/atlas.md").read_text()
    assert "docker compose --profile tests up --detach --wait mongodb-tests" in page
    assert "mongodb://127.0.0.1:27018/?directConnection=true" in page


@each_service
def test_memory_cpus_and_logs_are_bounded(name: str) -> None:
    assert set(SERVICES[name]["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert SERVICES[name]["logging"]["options"]["max-size"]


@each_service
def test_health_is_checked_and_waited_for(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["start_period"]
    asked = SERVICES[name]["healthcheck"].get("test")
    assert asked or (name == "recalld" and "\nHEALTHCHECK " in (ROOT / "Dockerfile").read_text())
    for needed in SERVICES[name].get("depends_on", {}).values():
        assert needed["condition"] == "service_healthy"


@each_service
def test_versions_are_named_and_privileges_are_not_gained(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].partition(":")
    assert EXACT.fullmatch(tag) or "build" in SERVICES[name], "8.0 is another image next month"
    assert "no-new-privileges:true" in SERVICES[name]["security_opt"]


@each_service
def test_what_is_kept_is_in_a_named_volume_and_what_is_mounted_is_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", ()):
        source = volume.split(":")[0]
        assert (ROOT / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"], volume


@each_service
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


def test_the_database_can_be_reached_by_the_service_alone() -> None:
    assert "ports" not in SERVICES["mongodb"]
    assert SERVICES["mongodb"]["networks"] == ["store"]
    assert COMPOSE["networks"]["store"]["internal"] is True
    assert [name for name in SERVICES if "store" in SERVICES[name]["networks"]] == ["recalld", "mongodb"]
    assert SERVICES["mongodb"]["hostname"] == "mongodb", "the replica set's member is named so"


def test_no_secret_has_a_default_and_a_missing_one_is_said() -> None:
    asked = re.findall(r"\$\{(\w+)([^}]*)\}", TEXT)
    secrets = [rest for name, rest in asked if "PASSWORD" in name]
    assert secrets
    assert all(re.match(r":\?.{10,}", rest) for rest in secrets)
    assert not re.search(r"(?i)password\w*[:=] *[\"']?(?!\$\{)[\w]", _without_comments())
    assert not re.search(r"mongodb://[^$]*:[^$]*@", TEXT)


def _without_comments() -> str:
    return "\n".join(line.split(" #")[0] for line in TEXT.splitlines() if not line.lstrip().startswith("#"))


def test_every_setting_it_gives_the_service_is_one() -> None:
    known = {name for name, _, _ in describe()}
    assert set(SERVICES["recalld"]["environment"]) <= known
    assert Settings.model_config["env_prefix"] == "RECALLD_"


def test_settings_of_ones_own_reach_the_service_but_not_where_it_listens_and_stores() -> None:
    assert SERVICES["recalld"]["env_file"] == [{"path": ".env", "required": False}]
    fixed = {"RECALLD_HOST", "RECALLD_PORT", "RECALLD_DATA_DIR", "RECALLD_STORE"}
    assert fixed <= set(SERVICES["recalld"]["environment"])
    assert f":{SERVICES['recalld']['environment']['RECALLD_PORT']}" in SERVICES["recalld"]["ports"][0]


def test_the_image_is_built_on_one_version_of_python() -> None:
    (base,) = re.findall(r"^ARG BASE=python:(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert EXACT.fullmatch(base)


def test_the_image_is_built_from_locks_with_the_extras_that_are_asked_for() -> None:
    dockerfile, sent = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text().splitlines()
    assert SERVICES["recalld"]["build"]["args"] == {"EXTRAS": "${EXTRAS:-}"}
    assert re.search(r'^ARG EXTRAS=""$', dockerfile, re.MULTILINE)
    assert "for lock in runtime $EXTRAS" in dockerfile
    locks = re.findall(r"requirements/\w+\.txt", dockerfile)
    assert locks == ["requirements/runtime.txt", "requirements/encryption.txt", "requirements/otel.txt"]
    for lock in locks:
        assert (ROOT / lock).is_file()
        assert f"!{lock}" in sent


def test_prometheus_scrapes_the_service() -> None:
    (job,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"] == [{"targets": ["recalld:8000"]}]
    assert SERVICES["recalld"]["ports"][0].endswith(":8000")
    mounted = "./deploy/prometheus.yml:/etc/prometheus/prometheus.yml:ro"
    assert mounted in SERVICES["prometheus"]["volumes"]
    rules = "./deploy/prometheus/alerts.yml:/etc/prometheus/alerts.yml:ro"
    assert rules in SERVICES["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"]["command"]


# --- The one step before the first start ------------------------------------------------------------------------------

DOCKER = """#!/bin/sh
echo "$FIRST_KEY_MADE $*" >>"$CALLS"
exit "$ENDS"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the step, and a `docker` that only notes how it was called."""
    folder = tmp_path / "checkout"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "first-start", folder / "deploy")
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o700)
    return folder


def first_start(checkout: Path, ends: int = 0) -> subprocess.CompletedProcess[str]:
    outside = {"PATH": f"{checkout}:{os.environ['PATH']}", "CALLS": str(checkout / "calls"), "ENDS": str(ends)}
    step = [checkout / "deploy" / "first-start"]
    return subprocess.run(step, env=outside, capture_output=True, text=True, check=False, cwd="/")


def test_nothing_starts_before_the_one_step_that_makes_password_and_key() -> None:
    required = re.findall(r"\$\{(\w+):\?([^}]*)\}", TEXT)
    assert {name for name, _ in required} == {"MONGODB_PASSWORD", "FIRST_KEY_MADE"}
    assert all("run deploy/first-start once" in says for _, says in required)
    assert "FIRST_KEY_MADE" in str(SERVICES["recalld"]), "Compose refuses the whole file without it"
    page = (ROOT / "docs/operations/operating.md").read_text()
    assert "\ndeploy/first-start " in page


def test_the_step_makes_password_and_key_and_keeps_what_is_there(checkout: Path) -> None:
    (checkout / ".env").write_text("RECALLD_LLM_MODEL=m")  # without the end of a line
    done = first_start(checkout)
    assert done.returncode == 0, done.stderr
    kept, password, made = (checkout / ".env").read_text().splitlines()
    assert (kept, made) == ("RECALLD_LLM_MODEL=m", "FIRST_KEY_MADE=yes")
    assert re.fullmatch(r"MONGODB_PASSWORD=[0-9a-f]{48}", password)
    (call,) = (checkout / "calls").read_text().splitlines()
    assert call == "yes compose run --rm recalld keys create --tenant default --name first --verbs read,write,admin"

    before = (checkout / ".env").read_text()
    again = first_start(checkout)
    assert again.returncode == 0
    assert "made before" in again.stderr
    assert (checkout / ".env").read_text() == before
    assert len((checkout / "calls").read_text().splitlines()) == 1


def test_a_step_that_failed_goes_on_with_the_same_password(checkout: Path) -> None:
    assert first_start(checkout, ends=1).returncode == 1
    (password,) = (checkout / ".env").read_text().splitlines()
    assert (checkout / ".env").stat().st_mode & 0o077 == 0
    assert first_start(checkout).returncode == 0
    assert (checkout / ".env").read_text().splitlines() == [password, "FIRST_KEY_MADE=yes"]
