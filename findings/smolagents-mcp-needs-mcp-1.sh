#!/bin/sh
# smolagents[mcp] asks for any version of mcp. Installed today it gets mcp 2, which has no
# streamablehttp_client, and MCPClient cannot be used; with mcp<2 it works. Its warning says that a
# default changes "in version 1.25"; this is 1.26, and it has not.
# Versions: smolagents[mcp]==1.26.0, mcp==2.3.0, mcpadapt==0.1.19.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check 'smolagents[mcp]==1.26.0' mcp==2.3.0 mcpadapt==0.1.19
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import warnings

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    try:
        from smolagents import MCPClient

        MCPClient({"url": "http://127.0.0.1:9/mcp", "transport": "streamable-http"})
    except ImportError as error:
        print("ImportError", "streamablehttp_client" in str(error))
print(any("in version 1.25, the default will change" in str(warning.message) for warning in told))
PY
diff - "$dir/seen" <<'SEEN'
ImportError True
True
SEEN
echo "as seen"
