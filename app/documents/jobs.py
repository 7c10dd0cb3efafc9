"""The job that reads a file and makes a memory of each passage."""

import asyncio
import base64
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryFile
from typing import Any

import orjson

import app
from app import metrics
from app.core.clock import Clock, rfc3339
from app.core.schemas import differing
from app.core.secret_text import PRIVATE, Secret, redacted, secrets_of
from app.core.work import in_turn
from app.documents.extract import FileUnreadable
from app.documents.schemas import DOCUMENTS, PARTS, DocumentRecord
from app.documents.service import PassageRepository
from app.embedding.embedder import Embedder
from app.errors import QuotaExceeded
from app.jobs.runner import Done, Run
from app.memories.repository import Embeddings, new_memory, text_to_index
from app.memories.schemas import MEMORIES, MemoryRecord
from app.settings import SecretPolicy, Settings
from app.storage.changes import Change, CommitConflict, DeleteWhere, Update
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Eq
from app.storage.scope import Scope
from app.writes.executor import quota_of

SECONDS = 120.0
"""How long the process that reads a file may take."""
STDIN = "/dev/stdin"
AT_ONCE = 64
MOVED = ("context", "source", "metadata", "metadata_terms", "identity_hash")
"""Fields of a passage that stays and stands elsewhere in the new file."""


class DocumentJobs:
    """Reads files."""

    def __init__(self, store: Store, embedder: Embedder, clock: Clock, settings: Settings) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock
        self._secrets, self._quotas = settings.secrets, settings.quotas

    async def handle(self, run: Run) -> Done:
        """Makes the passages of a document those of its newest file. Passages that are there already keep their ids. A
        file that cannot be read leaves them as they are."""
        document = await self._store.get(DOCUMENTS, run.tenant, run.payload["document_id"])
        if document is None or document["upload_id"] != run.payload["upload_id"]:
            return _superseded(run)
        try:
            found, figures = await self._read(run, document)
            figures["secrets"] = await in_turn(self._screen, found, self._secrets.policy_of(run.tenant))
        except FileUnreadable as error:
            return await self._ended(run, document, {"status": "failed", "error": str(error)}, 0)
        try:
            await self._store_passages(run, document, found)
            figures = {name: figures.get(name) for name in ("pages", "empty_pages", "secrets")}
            fields: DocumentRecord = {"status": "ready", "passages": len(found), **figures}  # type: ignore[typeddict-item]
            return await self._ended(run, document, fields, len(found))
        except QuotaExceeded as error:  # what is stored of it stays, as does what was there
            return await self._ended(run, document, {"status": "failed", "error": error.detail}, 0)
        except CommitConflict:
            newest = await self._store.get(DOCUMENTS, run.tenant, document["document_id"])
            if newest is not None and newest["upload_id"] == document["upload_id"]:
                raise
            return _superseded(run)

    async def _read(self, run: Run, document: DocumentRecord) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Returns the passages of the file, and the figures at the end. Raises FileUnreadable."""
        of_upload = partial(self._store.find, PARTS, run.tenant, Eq("upload_id", document["upload_id"]))
        # files without a name: a process that is killed leaves no text behind
        with TemporaryFile() as file, TemporaryFile() as printed:
            async for parts in pages(of_upload, PARTS, 1):
                for part in parts:
                    file.write(await in_turn(base64.b64decode, part["data"]))
            file.seek(0)
            # it is told nothing of the service's settings, which have keys
            environment = {"PYTHONPATH": str(Path(app.__file__).parents[1]), "PATH": os.environ.get("PATH", "")}
            # Not asyncio's: the child that uvloop forks runs Python, which closes connections of other threads to
            # SQLite and may wait for ever for a lock that one of them held; the event loop waits for its start.
            process = Popen(  # noqa: ASYNC220, S603 (it waits for the program's start, as asyncio's does)
                [sys.executable, "-m", "app.documents.extract", document["media_type"], STDIN, document["charset"]],
                stdin=file,
                stdout=printed,
                stderr=DEVNULL,
                env=environment,
            )
            try:
                await asyncio.wait_for(asyncio.to_thread(process.wait), SECONDS)
            except TimeoutError:
                raise FileUnreadable(f"The file takes more than {SECONDS:g} seconds to read.") from None
            finally:
                process.kill()
                await asyncio.to_thread(process.wait)
            printed.seek(0)
            lines = await in_turn(lambda: list(map(orjson.loads, printed.read().splitlines())))
        *found, figures = lines or [{}]
        if process.returncode or "text" in figures:
            raise FileUnreadable("The file takes too much time or memory to read.")
        if "error" in figures:
            raise FileUnreadable(figures["error"])
        if not found:
            raise FileUnreadable("The file has no text.")
        return found, figures

    def _screen(self, found: list[dict[str, Any]], policy: SecretPolicy) -> int:
        """Does with the secrets of the text what the policy says: a private key, or what is `<private>`, may go on from
        passage to passage. Returns how many there are. Raises FileUnreadable."""
        if policy == "off":
            return 0
        parts, end = list[str](), 0
        for item in found:  # the text as it was before it was cut, with line ends for what is in no passage
            parts += ["\n" * (item["start"] - end), item["text"][max(end - item["start"], 0) :]]
            end = item["end"]
        secrets = secrets_of("".join(parts), self._secrets.own)
        for secret in secrets:
            metrics.SECRETS.labels(secret.kind, policy).inc()
            if policy == "block" and secret.kind != PRIVATE:
                raise FileUnreadable(f"The file holds a secret ({secret.kind}): it is refused.")
        for item in found if policy != "flag" and secrets else ():
            start, end = item["start"], item["end"]
            here = [secret for secret in secrets if secret.start < end and start < secret.end]
            inside = [Secret(kind, max(begin, start) - start, min(last, end) - start) for kind, begin, last in here]
            item["text"] = redacted(item["text"], inside)
        found[:] = [item for item in found if item["text"].strip()]
        return len(secrets)

    async def _store_passages(self, run: Run, document: DocumentRecord, found: Sequence[Mapping[str, Any]]) -> None:
        memories = PassageRepository(self._store, Scope(run.tenant))
        embeddings, now = Embeddings(self._embedder), rfc3339(self._clock.now())
        there: defaultdict[str, list[MemoryRecord]] = defaultdict(list)  # by text
        of_document = partial(memories.find, Eq("document_id", document["document_id"]))
        async for page in pages(of_document, MEMORIES, AT_ONCE):
            for memory in page:
                there[memory["content"]].append(memory)
        for first in range(0, len(found), AT_ONCE):
            changes, fresh = list[Change](), list[MemoryRecord]()
            for item in found[first : first + AT_ONCE]:
                wanted = _passage(document, item, now)
                if kept := there[wanted["content"]]:
                    old = kept.pop()
                    moved = MEMORIES.as_record(differing(old, {name: wanted[name] for name in MOVED}))  # type: ignore[literal-required]
                    if moved:
                        update = memories.update(old, moved, now=now)
                        changes.append(replace(update, terms=text_to_index(wanted).indexed()))
                else:
                    fresh.append(wanted)
            entries = await embeddings.entries([text_to_index(memory) for memory in fresh])
            for memory, entry in zip(fresh, entries, strict=True):
                changes += (await memories.add(memory, embeddings, entry))[1]
            quota = quota_of(self._quotas, run.tenant)
            await self._commit(run, document, [*changes, *([quota] if quota else [])], {})
            await run.progress(min(first + AT_ONCE, len(found)), len(found))
        gone = list(chain.from_iterable(there.values()))
        for first in range(0, len(gone), AT_ONCE):
            await self._commit(run, document, memories.remove(gone[first : first + AT_ONCE]), {})

    async def _ended(self, run: Run, document: DocumentRecord, fields: DocumentRecord, number: int) -> Done:
        parts = DeleteWhere(PARTS, run.tenant, Eq("upload_id", document["upload_id"]))
        await self._commit(run, document, [parts], fields)
        result = {"document_id": document["document_id"], "passages": number}
        return Done(result, status="failed" if "error" in fields else "succeeded", error=fields.get("error"))

    async def _commit(
        self, run: Run, document: DocumentRecord, changes: Sequence[Change], fields: DocumentRecord
    ) -> None:
        """Commits changes, unless a newer file has come or the document was deleted: then CommitConflict."""
        newest = {"upload_id": document["upload_id"]}
        touched: DocumentRecord = {**fields, "updated_at": rfc3339(self._clock.now())}
        noted = Update(DOCUMENTS, run.tenant, document["document_id"], set=touched, expect=newest)
        await run.commit([*changes, noted])


def _superseded(run: Run) -> Done:
    """Returns the outcome where there is a newer file, or the document was deleted."""
    result = {"document_id": run.payload["document_id"], "passages": 0}
    return Done(result, status="failed", error="The document was replaced or deleted before the file was read.")


def _passage(document: DocumentRecord, item: Mapping[str, Any], now: str) -> MemoryRecord:
    """Returns the memory of a passage. Its context says where it stands: "fern.pdf › Care › Water, p. 3"."""
    fields: MemoryRecord = {
        "agent_id": document["agent_id"],
        "user_id": document["user_id"],
        "memory_type": "document",
        "content": item["text"],
        "context": " › ".join((document["name"], *item["headings"])) + (f", p. {item['page']}" if item["page"] else ""),
        "importance": 0.5,
        "metadata": document["metadata"],
    }
    place = {name: item[name] for name in ("headings", "page", "start", "end")}
    where = {"document_id": document["document_id"], "name": document["name"], **place}
    memory = new_memory(fields, {"origin": "document", "document": where}, now, unique=False)  # type: ignore[typeddict-item]
    return {**memory, "document_id": document["document_id"]}
