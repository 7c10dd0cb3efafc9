"""docker-compose.yml and what it mounts: valid, bounded, checked for health, and without a secret of its own."""

import re
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

each_service = pytest.mark.parametrize("name", SERVICES)


def test_it_is_a_compose_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_starts_the_service_on_a_mongodb_and_prometheus_only_if_asked() -> None:
    assert set(SERVICES) == {"recalld", "mongodb", "prometheus"}
    assert SERVICES["mongodb"]["image"].startswith("mongodb/mongodb-atlas-local:")
    assert [name for name in SERVICES if SERVICES[name].get("profiles")] == ["prometheus"]


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
    assert tag not in ("", "latest") or "build" in SERVICES[name]
    assert "no-new-privileges:true" in SERVICES[name]["security_opt"]


@each_service
def test_what_is_kept_is_in_a_named_volume_and_what_is_mounted_is_there(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
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
