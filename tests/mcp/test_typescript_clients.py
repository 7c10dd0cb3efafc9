"""The MCP clients of TypeScript on a running service: the official SDK, and the Vercel AI SDK's `@ai-sdk/mcp`.

`scripts/generators` installs them. Where one is missing its test is skipped and says so; with
`RECALLD_TEST_GENERATORS=required`, as before a release, it fails.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.mcp.tools import TOOLS
from tests.clients.test_generators import TOOLS as INSTALLED
from tests.clients.test_generators import typescript
from tests.support.server import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(600)]
SDK = f"""tools {len(TOOLS)} true
found Ada prefers green tea strong
listed 1 true
fact Boston
said 1
profile null
resource Ada
prompt What do you know about me that concerns: tea?
context true
counted 1
gone 1
missing true true"""
AI_SDK = f"""tools {len(TOOLS)}
found Ada prefers green tea strong
listed 1
profile Ada
missing true true"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("typescript") / "data") as made:
        yield made


@pytest.mark.parametrize(
    ("package", "flow", "said"),
    [("@modelcontextprotocol/sdk", "mcp_sdk.ts", SDK), ("@ai-sdk/mcp", "ai_sdk_mcp.ts", AI_SDK)],
)
def test_a_client_uses_every_kind_of_tool(server: Server, tmp_path: Path, package: str, flow: str, said: str) -> None:
    if not (INSTALLED / "node" / "node_modules" / package).exists():
        missing = f"{package} is not installed: run scripts/generators"
        if os.environ.get("RECALLD_TEST_GENERATORS") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    assert typescript(flow, server, tmp_path) == said
