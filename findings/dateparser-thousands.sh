#!/bin/sh
# dateparser reads a number with a thousands separator from its last group: "1,000 days ago" is
# yesterday, and "1 000 days ago" is now. Number words end at ninety-nine: "one hundred and twenty
# days ago" is None.
# Versions: dateparser==1.5.0.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check dateparser==1.5.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from datetime import datetime

import dateparser

now = datetime(2026, 11, 27, 12)
for text in ("1000 days ago", "1,000 days ago", "1 000 days ago", "ninety nine days ago", "one hundred and twenty days ago"):
    read = dateparser.parse(text, languages=["en"], settings={"RELATIVE_BASE": now})
    print(text, "->", read and (now - read).days)
PY
diff - "$dir/seen" <<'SEEN'
1000 days ago -> 1000
1,000 days ago -> 1
1 000 days ago -> 0
ninety nine days ago -> 99
one hundred and twenty days ago -> None
SEEN
echo "as seen"
