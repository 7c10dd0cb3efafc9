"""Make the synchronous Python client of the asynchronous one: each module of _async, without `await`.

scripts/generate_clients.py python writes it; a test fails where the two differ.
"""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "clients" / "python" / "recalld_client"
HEAD = "# Made from _async/{name} by scripts/generate_clients.py; do not edit.\n"
WORDS = [
    (r"\bimport anyio\n\n?", ""),
    (r"\banyio\.sleep\b", "time.sleep"),
    (r"\bAwaitable\[([^\[\]]+(?:\[[^\[\]]*\])?)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncGenerator\[Any, None\]", "Generator[Any, None, None]"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"_async\b", "_sync"),
    (r"\basynchronous\b", "synchronous"),
]


def rendered() -> dict[Path, str]:
    """The modules of _sync."""
    return {PACKAGE / "_sync" / source.name: _sync(source) for source in sorted((PACKAGE / "_async").glob("*.py"))}


def _sync(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if source.name == "__init__.py":
        return HEAD.format(name=source.name) + '"""The synchronous client."""\n'
    slept = "anyio.sleep" in text
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text)
    if slept:
        first = "import copy\n" if "import copy\n" in text else "from collections.abc import Iterator\n"
        text = text.replace(first, f"{first}import time\n" if "copy" in first else f"import time\n{first}", 1)
    return HEAD.format(name=source.name) + text


def write() -> None:
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
        print(path)
