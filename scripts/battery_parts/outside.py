"""Parts that other programs run: schemathesis, and the crash test."""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from app.main import create_app
from app.settings import Settings
from scripts.battery_parts.row import Row
from tests.api.contract import Contract
from tests.api.conversation import Talk, whole_conversation
from tests.llm.model import scripted_model
from tests.server import ROOT, recalld, serving

OPEN_METRIC = re.compile(r'recalld_http_requests_total\{method="(\w+)",route="([^"]+)",status="(\d+)"\} (\S+)')
PER_OPERATION = 105
"""Roughly how many operations share the requests."""


async def schemathesis(requests: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="recalld-battery-") as made:
        data = Path(made) / "data"
        key = json.loads(
            recalld(
                data, "keys", "create", "--tenant", "t", "--name", "st", "--verbs", "read,write,admin", "--json"
            ).stdout
        )["key"]
        quiet = {"RECALLD_LOG_LEVEL": "error", "RECALLD_LIMITS_REQUESTS_PER_SECOND": "0"}
        with scripted_model() as llm, serving(data, **quiet, RECALLD_LLM_BASE_URL=llm.server.url) as server:
            url, total, failures = str(server.client.base_url), 0, 0
            await _talk(url, key)
            output: list[str] = []
            while total < requests:
                code, said = await _st(url, key, max(2, (requests - total) // (2 * PER_OPERATION)))
                output.append(said)
                failures += code != 0
                counted = _counted(server.client.get("/metrics").text)
                grown = sum(counted.values())
                if code != 0 or grown == total:
                    break
                total = grown
            counted = _counted(server.client.get("/metrics").text)
            total = sum(counted.values())
    five = sum(number for (_, _, status), number in counted.items() if status == "500")
    unreached = _unreached(counted)
    figures: dict[str, Any] = {"requests": total, "500s": five, "runs with failures": failures}
    figures["operations without a 2xx"] = len(unreached)
    details = [line for said in output for line in said.splitlines() if line.startswith(("- ", "____", "[5"))]
    return Row(
        "schemathesis, all phases and checks",
        figures,
        five + failures + len(unreached),
        await _st_sees(),
        details + unreached,
    )


async def _talk(url: str, key: str) -> None:
    """Every operation as it is meant: what no generated request could guess is reached."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
        app = create_app(Settings(_env_file=None))
        await whole_conversation(Talk(client, Contract(app)))
        said = {"messages": [{"role": "user", "content": "I prefer tea."}], "agent_id": "a", "user_id": "u"}
        await client.post("/v1/sessions/spoken/messages", json=said)
        await client.post("/v1/sessions/spoken/summarize")
        await client.post("/v1/memories/extract", json=said)


async def _st(url: str, key: str, examples: int) -> tuple[int, str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url),
        *("-H", f"Authorization: Bearer {key}", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
        *("-n", str(examples), "--no-color", "--no-shrink", "--continue-on-failure", "--generation-database", "none"),
        *("--suppress-health-check", "all", "--request-timeout", "30", "--warnings", "off"),
    ]
    pipe = asyncio.subprocess.PIPE
    hooks = {**os.environ, "SCHEMATHESIS_HOOKS": "scripts.battery_parts.fitting", "PYTHONPATH": str(ROOT)}
    started = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=hooks
    )
    said, _ = await started.communicate()
    return started.returncode or 0, said.decode()


def _counted(metrics: str) -> dict[tuple[str, str, str], int]:
    """(method, path as the document has it, status) → requests."""
    found = OPEN_METRIC.finditer(metrics)
    return {(m[1], m[2].replace(":path}", "}"), m[3]): int(float(m[4])) for m in found}


def _unreached(counted: dict[tuple[str, str, str], int]) -> list[str]:
    good = {(method, route) for (method, route, status) in counted if status.startswith("2")}
    operations = Contract(create_app(Settings(_env_file=None))).operations()
    return [f"no 2xx: {op.name}" for op in operations if (op.method, op.path) not in good]


async def _st_sees() -> bool:
    """A service that breaks, refuses what its document allows, and names methods that it has not."""
    code, said = await _st_planted()
    seen = ("Server error", "Schema-valid request rejected", "Allow header mismatch")
    return code != 0 and all(name in said for name in seen)


async def _st_planted() -> tuple[int, str]:
    planted = ROOT / "scripts" / "battery_parts" / "planted.py"
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, str(planted), stdout=pipe, cwd=ROOT)
    assert server.stdout is not None
    try:
        address = (await server.stdout.readline()).decode().strip()
        return await _st(address, "none", 5)
    finally:
        server.terminate()
        await server.wait()


async def kill(rounds: int) -> Row:
    report = await _crash_test("--rounds", str(rounds), "--longest", "6")
    planted = await _crash_test("--rounds", "1", "--plant-fault")
    faults = sum(int(report.get(name, 0)) for name in ("lost", "torn", "doubled", "double"))
    acknowledged = sum(int(value) for name, value in report.items() if name.startswith("acknowledged"))
    figures = {"rounds": report.get("rounds", 0), "acknowledged": acknowledged, "faults": faults}
    failed = int(report["exit code"] != 0)
    return Row("kill -9 under writes", figures, faults + failed, bool(planted.get("lost")), report.get("details", []))


async def _crash_test(*options: str) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "scripts" / "crash_test.py"), "--json", "--max-ready", "60", *options]
    if options[1] in ("1", "2"):
        command.append("--no-wait-for-leases")
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=ROOT)
    out, err = await started.communicate()
    found: dict[str, Any] = json.loads(out) if out.strip() else {"details": [err.decode()[-500:]]}
    return found | {"exit code": started.returncode}
