"""Dashboards and alerts beside a real Prometheus that scrapes a service under load: every query of a panel finds
numbers, every metric exists, and every rule can be computed. Grafana itself is not run.

Skipped where there is no Prometheus; with `RECALLD_TEST_PROMETHEUS=required`, as in CI, it fails then.
"""

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import yaml
from prometheus_client import REGISTRY

from app import metrics
from tests.support.memories import OWNER
from tests.support.model import scripted_model
from tests.support.scripted import free_port
from tests.support.server import ROOT, Server, serving

DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
RULES = DEPLOY / "prometheus" / "alerts.yml"
OF_PROMETHEUS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
"""What Prometheus and its client library count by themselves."""
EMPTY_IN_HEALTH = {
    "Errors by route",
    "Second stage by outcome",
    "Jobs that failed, records left out",
    "Answers with 503 and 507",
    "Searches without their index",
}
"""Panels without numbers here: nothing fails, no reranker is set, and no scope is large."""
QUIET_ALERTS = {"RecalldErrors", "RecalldStorageFull", "RecalldJobsFail", "RecalldModelFails", "RecalldSearchIndex"}
"""Alerts whose left side has no series in a healthy service."""
SECONDS = 12
"""How long the service is asked things, with a scrape each second."""
_NAME = re.compile(r"\b(?:recalld|process|python)_[a-z_]+|\bup\b")
_THRESHOLD = re.compile(r"\s*(?:>|==|<)\s*[0-9.e]+\s*$")

Found: TypeAlias = list[dict[str, Any]]
Ask = Callable[[str], Found]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("RECALLD_TEST_PROMETHEUS") == "required":
        pytest.fail(f"{name} is not installed")
    pytest.skip(f"{name} is not installed")


def declared() -> set[str]:
    """Every name that a query may use."""
    assert metrics.BUILD_INFO is not None
    names = set(OF_PROMETHEUS)
    for family in REGISTRY.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def panels(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Title and query of each target of each panel."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "10m").replace("$job", "recalld")


def faults(board: dict[str, Any], ask: Ask, empty: set[str] = EMPTY_IN_HEALTH) -> list[str]:
    """What is wrong with the queries of a dashboard, a sentence for each."""
    found: list[str] = []
    for title, query in panels(board):
        unknown = set(_NAME.findall(query)) - declared()
        if unknown:
            found.append(f"{title}: there is no metric {', '.join(sorted(unknown))}")
        elif not _numbers(ask(query)) and title not in empty:
            found.append(f"{title}: no numbers for {query}")
    return found


def _numbers(result: Found) -> list[float]:
    return [number for series in result if math.isfinite(number := float(series["value"][1]))]


@dataclass(frozen=True, slots=True)
class Watched:
    """A Prometheus that has scraped a service at work."""

    client: httpx.Client

    def ask(self, query: str) -> Found:
        answer = self.client.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, (query, answer.text)
        result: Found = answer.json()["data"]["result"]
        return result


def configured(folder: Path, service: str) -> Path:
    """Writes deploy/prometheus.yml for this test's service, scraped each second. Returns the file."""
    text = (DEPLOY / "prometheus.yml").read_text()
    for before, after in (
        ("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"),
        ("scrape_timeout: 10s", "scrape_timeout: 1s"),
        ("recalld:8000", service),
        ("/etc/prometheus/alerts.yml", str(RULES)),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    (folder / "prometheus.yml").write_text(text)
    return folder / "prometheus.yml"


def work(server: Server) -> None:
    """A bit of everything, for `SECONDS`."""
    api, until, number = server.client, time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        number += 1
        api.post("/v1/memories", json={**OWNER, "content": f"Ada walked {number} miles"}).raise_for_status()
        api.post("/v1/memories/search", json={**OWNER, "query": f"how far on day {number}?"}).raise_for_status()
        api.post("/v1/context", json={**OWNER, "query": "walks"}).raise_for_status()
        said = [{"role": "user", "content": f"I walked {number} miles. My card is 4242424242424242."}]
        api.post(f"/v1/sessions/s{number}/messages", json={**OWNER, "messages": said}).raise_for_status()
        api.post(f"/v1/sessions/s{number}/end").raise_for_status()
        assert api.get("/v1/memories/nowhere").status_code == 404
        wrong = {"Authorization": "Bearer rk_wrong_wrong"}
        assert api.get("/v1/memories", headers=wrong).status_code in (401, 429)
        time.sleep(0.2)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    prometheus, folder, port = program("prometheus"), tmp_path_factory.mktemp("prometheus"), free_port()
    with scripted_model() as model:
        llm = {"RECALLD_LLM_BASE_URL": model.server.url, "RECALLD_LLM_MODEL": "scripted"}
        model.says["memories"] = {"memories": []}
        with serving(folder / "data", **llm) as server:
            config = configured(folder, str(server.client.base_url).removeprefix("http://").rstrip("/"))
            command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                       f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
            with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
                try:
                    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                        _until_ready(client, process)
                        work(server)
                        yield Watched(client)
                finally:
                    process.terminate()
                    process.wait(30)


def _until_ready(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None, "Prometheus has ended"
        try:
            if client.get("/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("Prometheus is not ready within 60 s")


def board_of(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


@pytest.mark.slow
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_of_a_dashboard_finds_numbers(path: Path, watched: Watched) -> None:
    assert faults(board_of(path), watched.ask) == []


@pytest.mark.slow
def test_panels_that_may_be_empty_exist_and_a_wrong_metric_is_noticed(watched: Watched) -> None:
    titles = {title for path in DASHBOARDS for title, _ in panels(board_of(path))}
    assert titles >= EMPTY_IN_HEALTH
    text = (DEPLOY / "grafana" / "overview.json").read_text()
    wrong = json.loads(text.replace("recalld_search_seconds_bucket", "recalld_search_time_bucket"))
    found = faults(wrong, watched.ask)
    assert found == ["Search without its embedding: there is no metric recalld_search_time_bucket"] * 3
    no_label = json.loads(text.replace('route=~\\"/v1.*\\"', 'path=~\\"/v1.*\\"'))
    assert any(fault.startswith("p95 of /v1: no numbers") for fault in faults(no_label, watched.ask))


@pytest.mark.slow
def test_every_alert_can_be_computed_and_none_fires(watched: Watched) -> None:
    (group,) = watched.client.get("/api/v1/rules").json()["data"]["groups"]
    told = [(rule["name"], rule["health"], rule.get("lastError", "")) for rule in group["rules"]]
    assert told == [(rule["alert"], "ok", "") for rule in rules()]
    assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []
    for rule in rules():
        assert set(_NAME.findall(rule["expr"])) <= declared(), rule["alert"]
        left, cut = _THRESHOLD.subn("", rule["expr"])
        assert cut == 1, rule["expr"]
        assert _numbers(watched.ask(left)) or rule["alert"] in QUIET_ALERTS, rule["alert"]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_promtool_accepts_rules_and_configuration_and_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    promtool = program("promtool")
    config = configured(tmp_path, "127.0.0.1:8000")
    for command in (
        ["check", "rules", str(RULES)],
        ["check", "config", str(config)],
        ["test", "rules", str(RULES.with_name("alerts_test.yml"))],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_section_in_the_docs() -> None:
    page = (ROOT / "docs" / "operations" / "observability.md").read_text(encoding="utf-8")
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations/observability.md#{rule['alert'].lower()}"
        assert f"\n### {rule['alert']}\n" in page
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_each_metric_of_the_service_is_on_a_dashboard_or_in_an_alert() -> None:
    used = {name for path in DASHBOARDS for _, query in panels(board_of(path)) for name in _NAME.findall(query)}
    ours = {family.name for family in REGISTRY.collect() if family.name.startswith("recalld_")}
    unused = {name for name in ours if not any(one.startswith(name) for one in used)}
    assert unused == set()
