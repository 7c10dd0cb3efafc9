#!/bin/sh
# parsedatetime takes the last word of a number for the number, and says that it parsed: "twenty-one
# days ago" is yesterday, "one hundred and twenty days ago" is 20 days ago, "half a year ago" is a
# whole year ago.
# Versions: parsedatetime==2.6.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check parsedatetime==2.6
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from datetime import datetime

import parsedatetime

now = datetime(2026, 11, 27, 12)
for text in ("two days ago", "twenty-one days ago", "one hundred and twenty days ago", "half a year ago"):
    read, status = parsedatetime.Calendar().parseDT(text, now)
    print(text, "->", (now - read).days, "status", status)
PY
diff - "$dir/seen" <<'SEEN'
two days ago -> 2 status 1
twenty-one days ago -> 1 status 1
one hundred and twenty days ago -> 20 status 1
half a year ago -> 365 status 1
SEEN
echo "as seen"
