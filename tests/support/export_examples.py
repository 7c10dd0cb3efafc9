"""Write app/api/data/openapi_examples.json: what a running service answers in the conversation of conversation.py.

Run `python -m tests.support.export_examples`, and scripts/export_openapi.py after it, when a test says that an example
is missing or does not fit.
"""

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx

from app.api.openapi import EXAMPLES
from app.main import create_app
from app.settings import Settings
from tests.support.contract import Contract
from tests.support.conversation import Talk, whole_conversation
from tests.support.model import scripted_model
from tests.support.server import serving


async def answers(address: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        talk = Talk(client, Contract(create_app(Settings(_env_file=None))))
        await whole_conversation(talk)
    return {name: shortened(answer) for name, answer in talk.answers.items() if name != "Alive"}


def shortened(answer: Any) -> Any:
    """Lists by their first item, numbers to three places, the model without its hash."""
    if isinstance(answer, dict):
        return {name: shortened(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [shortened(item) for item in answer[:1]]
    if isinstance(answer, float):
        return round(answer, 3)
    return re.sub(r"(onnx-int8)-\w+", r"\1", answer) if isinstance(answer, str) else answer


if __name__ == "__main__":
    with (
        scripted_model() as model,
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "data", RECALLD_LLM_BASE_URL=model.server.url) as server,
    ):
        found = asyncio.run(answers(str(server.client.base_url)))
    EXAMPLES.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(EXAMPLES)
