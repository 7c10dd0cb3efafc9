"""Files that tests send, and what becomes of them."""

import asyncio
from typing import Any

import httpx

from tests.conftest import Service
from tests.support.memories import Json
from tests.support.operations import PATIENCE_SECONDS, operation, work

MANUAL = """# Fern care
Keep ferns out of the sun.

## Water
Water a fern every other day.

## Soil
Use peat with a little bark.
"""


def pdf(*pages: str, title: str | None = None) -> bytes:
    """A PDF with one line of text on each page; an empty one has no text. `title`: a bookmark to the first page."""
    kids = [4 + 2 * number for number in range(len(pages))]
    objects = {
        1: f"<< /Type /Catalog /Pages 2 0 R{' /Outlines 90 0 R' if title else ''} >>",
        2: f"<< /Type /Pages /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] /Count {len(pages)} >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for kid, text in zip(kids, pages, strict=True):
        drawn = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET" if text else ""
        objects[kid] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {kid + 1} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects[kid + 1] = f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream"
    if title:
        objects[90] = "<< /Type /Outlines /First 91 0 R /Last 91 0 R /Count 1 >>"
        objects[91] = f"<< /Title ({title}) /Parent 90 0 R /Dest [{kids[0]} 0 R /Fit] >>"
    body, places = b"%PDF-1.4\n", {}
    for number, content in objects.items():
        places[number] = len(body)
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    size, start = max(objects) + 1, len(body)
    rows = [
        f"{places[number]:010} 00000 n \n" if number in places else "0000000000 65535 f \n" for number in range(size)
    ]
    return (
        body
        + f"xref\n0 {size}\n{''.join(rows)}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    )


async def send(
    api: httpx.AsyncClient, content: bytes | str, kind: str = "text/markdown", expect: int = 202, **query: Any
) -> Json:
    """The answer to a file of the user u."""
    params = {"name": "fern.md", "user_id": "u", **query}
    answer = await api.post(
        "/v1/documents", params=params, content=content, headers={"content-type": kind, **query.pop("headers", {})}
    )
    assert answer.status_code == expect, answer.text
    body: Json = answer.json()
    return body


async def read(service: Service, content: bytes | str, kind: str = "text/markdown", **query: Any) -> tuple[Json, Json]:
    """The ended operation and the document of a file of the user u."""
    sent = await send(service.client, content, kind, **query)
    done: Json = {"status": "queued"}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while done["status"] in ("queued", "running"):  # a runner of the service's own may have taken it
            await work(service)
            await asyncio.sleep(0)
            done = await operation(service.client, sent["operation_id"])
    document = await service.client.get(f"/v1/documents/{sent['document_id']}")
    return done, document.json()


async def passages(api: httpx.AsyncClient, **filters: Any) -> list[Json]:
    """The passages of the user u, as they stand in their document."""
    params = {"user_id": "u", "memory_type": "document", "limit": 100, **filters}
    items = (await api.get("/v1/memories", params=params)).json()["items"]
    return sorted(items, key=lambda item: (item["source"]["document"]["name"], item["source"]["document"]["start"]))
