"""Schemathesis makes requests from the OpenAPI document, with all checks: examples, random requests and chains of
them, and before a release ten thousand that come to the edge of each thing declared.

Before that, a conversation calls every operation as it is meant.
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.stress.size import is_full, size
from tests.support.contract import Contract
from tests.support.conversation import Talk, whole_conversation
from tests.support.model import scripted_model
from tests.support.server import ROOT, recalld, serving

pytestmark = [pytest.mark.anyio, pytest.mark.stress, pytest.mark.timeout(7_200)]

OPEN_METRIC = re.compile(r'recalld_http_requests_total\{method="(\w+)",route="([^"]+)",status="(\d+)"\} (\S+)')
PER_OPERATION = 105
"""Roughly how many operations share the requests."""
RANDOM, EDGES = "examples,fuzzing,stateful", "coverage"
VERBS = ("--verbs", "read,write,admin")


@pytest.mark.parametrize("phases", [RANDOM, pytest.param(EDGES, marks=pytest.mark.release)])
async def test_all_that_fits_the_document_is_answered_as_it_says(tmp_path: Path, phases: str) -> None:
    data, requests = tmp_path / "data", size(1_000, 20_000)
    key = json.loads(recalld(data, "keys", "create", "--tenant", "t", "--name", "st", *VERBS, "--json").stdout)["key"]
    quiet = {"RECALLD_LOG_LEVEL": "error", "RECALLD_LIMITS_REQUESTS_PER_SECOND": "0", "RECALLD_LIMITS_WRONG_KEYS": "0"}
    with scripted_model() as llm, serving(data, **quiet, RECALLD_LLM_BASE_URL=llm.server.url) as server:
        url, total, found = str(server.client.base_url), 0, dict[tuple[str, str, str], int]()
        await converse(url, key)
        server.client.get("/openapi.json", timeout=120)  # built once; schemathesis waits ten seconds for it
        while total < requests:
            code, said = await schemathesis(url, key, phases, max(2, (requests - total) // (2 * PER_OPERATION)))
            assert code == 0, said
            found = counted(server.client.get("/metrics").text)
            assert sum(found.values()) > total
            total = sum(found.values())
    assert [route for route in found if route[2] == "500"] == []
    assert unreached(found) == []


async def test_a_service_that_breaks_its_document_is_found_out() -> None:
    """It breaks, refuses what its document allows, and names methods that it has not."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.stress.planted", stdout=pipe, cwd=ROOT)
    assert server.stdout is not None
    try:
        code, said = await schemathesis(
            (await server.stdout.readline()).decode().strip(), "none", f"{RANDOM},{EDGES}", 5
        )
    finally:
        server.terminate()
        await server.wait()
    assert code != 0
    for name in ("Server error", "Schema-valid request rejected", "Allow header mismatch"):
        assert name in said


async def converse(url: str, key: str) -> None:
    """Every operation as it is meant: what no generated request could guess is reached."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
        app = create_app(Settings(_env_file=None))
        await whole_conversation(Talk(client, Contract(app)))
        said = {"messages": [{"role": "user", "content": "I prefer tea."}], "agent_id": "a", "user_id": "u"}
        await client.post("/v1/sessions/spoken/messages", json=said)
        await client.post("/v1/sessions/spoken/summarize")
        await client.post("/v1/memories/extract", json=said)


async def schemathesis(url: str, key: str, phases: str, examples: int) -> tuple[int, str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url),
        *("-H", f"Authorization: Bearer {key}", "--checks", "all", "--phases", phases),
        *("-n", str(examples), "--no-color", "--no-shrink", "--continue-on-failure", "--generation-database", "none"),
        *(() if is_full() else ("--seed", "1")),  # CI meets the same requests at each run
        *("--suppress-health-check", "all", "--request-timeout", "30", "--warnings", "off"),
    ]
    pipe = asyncio.subprocess.PIPE
    hooks = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.stress.fitting", "PYTHONPATH": str(ROOT)}
    started = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=hooks
    )
    said, _ = await started.communicate()
    return started.returncode or 0, said.decode()


def counted(metrics: str) -> dict[tuple[str, str, str], int]:
    """(method, path as the document has it, status) → requests."""
    found = OPEN_METRIC.finditer(metrics)
    return {(m[1], m[2].replace(":name}", "}"), m[3]): int(float(m[4])) for m in found}


def unreached(counted: dict[tuple[str, str, str], int]) -> list[str]:
    good = {(method, route) for (method, route, status) in counted if status.startswith("2")}
    operations = Contract(create_app(Settings(_env_file=None))).operations()
    return [f"no 2xx: {op.name}" for op in operations if (op.method, op.path) not in good]
