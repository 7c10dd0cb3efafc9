#!/bin/sh
# The OpenAI Agents SDK checks by itself that a call of an MCP tool has the required arguments. If one
# is missing the server is not asked, and the model is told only that an error occurred and to try
# again, not which argument it was. An argument of a wrong type goes to the server, whose message the
# model reads.
# Versions: openai-agents==0.24.0, mcp==1.30.0.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check openai-agents==0.24.0 mcp==1.30.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import asyncio
import json
import sys
from pathlib import Path

from agents import Agent
from agents.mcp import MCPServerStdio, MCPUtil
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext

Path("server.py").write_text('''
from mcp.server.fastmcp import FastMCP

server = FastMCP("notes")


@server.tool()
def note(number: int) -> str:
    return "noted"


server.run()
''')


async def main():
    async with MCPServerStdio(params={"command": sys.executable, "args": ["server.py"]}) as server:
        tool = (await MCPUtil.get_function_tools(server, False, RunContextWrapper(None), Agent("a")))[0]
        for given in ({"number": "many"}, {}):
            text = json.dumps(given)
            context = ToolContext(None, tool_name="note", tool_call_id="1", tool_arguments=text)
            told = str(await tool.on_invoke_tool(context, text))
            print(text, "->", "names the argument" if "number" in told else told)


asyncio.run(main())
PY
diff - "$dir/seen" <<'SEEN'
{"number": "many"} -> names the argument
{} -> An error occurred while running the tool. Please try again.
SEEN
echo "as seen"
