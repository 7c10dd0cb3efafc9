"""Documents of the embedded store as JSON text, and compressed by zstd with a dictionary: file size, cost of reads.

The store is built as `benchmark scale` builds it. Two copies of its file are made: one as it is, one whose documents
are compressed with a dictionary trained on some of them. Reads of both take turns: a page of ten documents by their
rows, as a search reads them, parsed as the service parses them; with the file in the cache of the system, and dropped.
"""

import argparse
import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import zstandard

from app.storage.sqlite.store import FILE_NAME
from benchmarks.harness import Row, Section, alternate, folder, p50_p95
from benchmarks.scale_data import Size, build
from benchmarks.scale_service import drop_pages

TABLE = "agent_memories"
DICTIONARY_BYTES, SAMPLES, LEVEL = 16_384, 20_000, 3
PAGE = 10
NAMES = ("text", "compressed")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=200_000)
    parser.add_argument("--reads", type=int, default=2_000)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as path:
        size = Size(options.memories, options.memories // 100)
        build(Path(path), size)
        built = Path(path) / size.name / FILE_NAME
        files = {name: Path(path) / name / FILE_NAME for name in NAMES}
        for file in files.values():
            file.parent.mkdir()
            _copy(built, file)
        decoder = _compress(files["compressed"], size.total)
        sizes = {name: _vacuumed(file) for name, file in files.items()}
        documents = {name: _document_bytes(file) for name, file in files.items()}
        yield Section(
            f"{size.total:,} memories",
            [
                {"": "file, bytes a memory", **{name: round(total / size.total) for name, total in sizes.items()}},
                {"": "documents, bytes each", **{name: round(total / size.total) for name, total in documents.items()}},
            ],
        )
        yield Section(f"pages of {PAGE} documents", _reads(files, decoder, size.total, options.reads))


def _opened(file: Path) -> apsw.Connection:
    """A connection that neither writes page checksums nor verifies them, since VACUUM writes none."""
    return apsw.Connection(str(file), vfs="unix")


def _copy(source: Path, target: Path) -> None:
    connection = _opened(source)
    connection.execute("VACUUM INTO ?", (str(target),))
    connection.close()


def _compress(file: Path, total: int) -> zstandard.ZstdDecompressor:
    connection = _opened(file)
    step = max(1, total // SAMPLES)
    some = connection.execute(f"SELECT doc FROM {TABLE} WHERE row % {step} = 0")
    samples: list[Any] = [str(doc).encode() for (doc,) in some]
    words = zstandard.train_dictionary(DICTIONARY_BYTES, samples)
    encoder = zstandard.ZstdCompressor(level=LEVEL, dict_data=words, write_checksum=False)
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')  # they count bytes

    def compressed(*texts: Any) -> Any:
        return encoder.compress(str(texts[0]).encode())

    connection.create_scalar_function("compressed", compressed, 1, deterministic=True)
    connection.execute(f"UPDATE {TABLE} SET doc = compressed(doc)")
    connection.close()
    return zstandard.ZstdDecompressor(dict_data=words)


def _vacuumed(file: Path) -> int:
    connection = _opened(file)
    connection.execute("VACUUM")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return file.stat().st_size


def _document_bytes(file: Path) -> int:
    connection = _opened(file)
    found = connection.execute(f"SELECT sum(octet_length(doc)) FROM {TABLE}").fetchone()
    connection.close()
    return int(found[0]) if found else 0


def _reads(files: dict[str, Path], decoder: zstandard.ZstdDecompressor, total: int, reads: int) -> list[Row]:
    chosen = random.Random(7)
    pages = [[chosen.randint(1, total) for _ in range(PAGE)] for _ in range(4 * reads)]
    statement = f"SELECT doc FROM {TABLE} WHERE row IN ({', '.join('?' * PAGE)})"
    connections = {name: _opened(file) for name, file in files.items()}

    def text(number: int) -> object:
        return [orjson.loads(doc) for (doc,) in connections["text"].execute(statement, pages[number])]

    def compressed(number: int) -> object:
        found = connections["compressed"].execute(statement, pages[number])
        return [orjson.loads(decoder.decompress(doc)) for (doc,) in found]

    calls = {"text": text, "compressed": compressed}
    rows: list[Row] = []
    for dropped in (False, True):
        if dropped:
            for file in files.values():
                drop_pages(file.parent)
        times = asyncio.run(alternate(calls, reads, warm_up=0 if dropped else reads))
        state = "first read after the file was dropped" if dropped else "file in the cache"
        rows += [{"": f"{name}, {state}", **p50_p95([1000 * one for one in taken])} for name, taken in times.items()]
    return [{"": row[""], "p50 µs": row["p50 ms"], "p95 µs": row["p95 ms"]} for row in rows]
