"""Write deploy/search-indexes.js, which makes the search indexes by hand, from the collections. A test fails while they
differ."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.lifespan import COLLECTIONS  # noqa: E402
from app.storage.mongo.search_indexes import models  # noqa: E402

FILE = ROOT / "deploy" / "search-indexes.js"
DEFAULT_DIM = 384

HEAD = """// The search indexes of Recalld, the ones that matter most first, for a user who may make them:
//   mongosh "mongodb+srv://…/recalld" deploy/search-indexes.js
// For another embedding model, set `dimensions` to its own. Made by scripts/export_search_indexes.py.
const dimensions = 384;
"""


def rendered() -> str:
    return HEAD + "".join(
        f"db.{collection.name}.createSearchIndex({_shown(model.document)});\n"
        for collection in COLLECTIONS
        if collection.searched
        for model in models(collection, DEFAULT_DIM)
    )


def _shown(document: Mapping[str, Any]) -> str:
    shown = json.dumps(document, indent=2)
    return shown.replace(f'"numDimensions": {DEFAULT_DIM}', '"numDimensions": dimensions')


if __name__ == "__main__":
    FILE.write_text(rendered(), encoding="utf-8")
    print(FILE)
