"""Write openapi/openapi.json: scripts/export_openapi.py. A test fails while it differs from the service."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.main import create_app  # noqa: E402
from app.settings import Settings  # noqa: E402

TARGET = ROOT / "openapi" / "openapi.json"


def rendered() -> str:
    document = create_app(Settings(_env_file=None)).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered(), encoding="utf-8")
    print(TARGET)
