"""Write docs/reference/settings.md and .env.example from app/settings.py. A test fails while they differ."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.settings import by_subject  # noqa: E402

DOC = ROOT / "docs" / "reference" / "settings.md"
ENV = ROOT / ".env.example"

INTRODUCTION = """# Settings

The service reads settings from the environment, or from a file `.env` in the working directory. The environment wins
over the file, and `--host` and `--port` of `recalld serve` win over both. A wrong value stops the start with a sentence
that names it. An unknown `RECALLD_…` is warned of at the start, with the nearest setting.

```sh
RECALLD_LOG_LEVEL=warning RECALLD_CONSOLE=off scripts/serve
```
"""
HEAD = "| Variable | Default | What it does |\n|---|---|---|\n"


def doc_rendered() -> str:
    return INTRODUCTION + "".join(f"\n## {subject}\n\n{HEAD}{_table(rows)}" for subject, rows in by_subject())


def _table(rows: list[tuple[str, str, str]]) -> str:
    return "".join(f"| `{name}` | `{default}` | {text} |\n" for name, default, text in rows)


def env_rendered() -> str:
    head = "# Copy to .env and uncomment what you change. Made by scripts/export_settings.py.\n"
    return head + "".join(f"\n## {subject}\n{_lines(rows)}" for subject, rows in by_subject())


def _lines(rows: list[tuple[str, str, str]]) -> str:
    return "".join(f"\n# {text}\n#{name}={default}\n" for name, default, text in rows)


if __name__ == "__main__":
    DOC.write_text(doc_rendered(), encoding="utf-8")
    ENV.write_text(env_rendered(), encoding="utf-8")
    print(DOC, ENV)
