"""The files of a user, with the commands of Anthropic's memory tool."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from recalld_client import _generated as models
from recalld_client._async.pages import items
from recalld_client._errors import Problem
from recalld_client._file_texts import ROOT, FileRefused, inserted, listed, numbered, path_of, replaced
from recalld_client._generated import AsyncOperations

ATTEMPTS = 4
"""How often a change is made again where another one came between reading and writing."""


class AsyncUserFiles:
    """Texts under paths below /memories, which no search sees. `AsyncUserMemory.files` makes it.

    Each method answers in the words of the tool and raises FileRefused, whose words are for the model, too.
    """

    def __init__(self, client: AsyncOperations, user_id: str, agent_id: str) -> None:
        self.client, self.user_id, self.agent_id = client, user_id, agent_id
        self._owner: dict[str, Any] = {"user_id": user_id, "agent_id": agent_id, "memory_type": "file"}

    async def view(self, path: str, view_range: list[int] | None = None) -> str:
        """A file with line numbers, or the names and sizes of what is in a folder."""
        where = path_of(path)
        if (file := await self._file(where)) is not None:
            return numbered(path, file["content"], view_range)
        sizes = {str(one["key"]): len(one["content"].encode()) async for one in self._below(where)}
        if not sizes and where != ROOT:
            raise FileRefused(f"The path {path} does not exist. Please provide a valid path.")
        return listed(path, where, sizes)

    async def create(self, path: str, file_text: str) -> str:
        """A new file. Raises FileRefused where there is one already."""
        where = path_of(path)
        if where == ROOT or await self._is_folder(where):
            raise FileRefused(f"File {path} already exists")
        await self._require_folders(where)
        try:
            await self._write(where, file_text, if_none_match="*")
        except Problem as problem:
            raise FileRefused(f"File {path} already exists" if problem.status == 412 else str(problem)) from problem
        return f"File created successfully at: {path}"

    async def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replaces a text that stands in the file exactly once."""
        return await self._edit(path, lambda content: replaced(path, content, old_str, new_str))

    async def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Inserts lines behind the line with that number; 0 is the beginning."""
        said = f"The file {path} has been edited."
        return await self._edit(path, lambda content: (inserted(content, insert_line, insert_text), said))

    async def delete(self, path: str) -> str:
        """Deletes a file, or a folder with all that is in it."""
        where = path_of(path)
        if where == ROOT:
            raise FileRefused(f"Cannot delete the {ROOT} directory itself")
        if (file := await self._file(where)) is not None:
            await self.client.delete_memory(file["memory_id"])
        elif not (await self._delete_below(where))["deleted"]:
            raise FileRefused(f"The path {path} does not exist")
        return f"Successfully deleted {path}"

    async def rename(self, old_path: str, new_path: str) -> str:
        """Moves a file or a folder to a path where nothing is."""
        old, new = path_of(old_path), path_of(new_path)
        if old == ROOT:
            raise FileRefused(f"Cannot rename the {ROOT} directory itself")
        if new == ROOT or await self._file(new) is not None or await self._is_folder(new):
            raise FileRefused(f"The destination {new_path} already exists")
        if new.startswith(f"{old}/"):
            raise FileRefused(f"Cannot move {old_path} into itself")
        file = await self._file(old)
        moved = [file] if file is not None else [one async for one in self._below(old)]
        if not moved:
            raise FileRefused(f"The path {old_path} does not exist")
        await self._require_folders(new)
        for one in moved:
            await self.client.update_memory(
                one["memory_id"], {"key": path_of(f"{new}{str(one['key']).removeprefix(old)}")}
            )
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self) -> str:
        """Deletes all files."""
        await self._delete_below(ROOT)
        return "All memory cleared"

    async def _file(self, key: str) -> models.Memory | None:
        page = await self.client.list_memories(**self._owner, key=key, limit=1)
        return page["items"][0] if page["items"] else None

    async def _require_folders(self, path: str) -> None:
        """Raises FileRefused where one of the folders of a path is a file."""
        while (path := path.rpartition("/")[0]) != ROOT:
            if await self._file(path) is not None:
                raise FileRefused(f"{path} is a file, and no folder")

    async def _is_folder(self, path: str) -> bool:
        page = await self.client.list_memories(**self._owner, key_prefix=f"{path}/", limit=1)
        return bool(page["items"])

    def _below(self, path: str) -> AsyncIterator[models.Memory]:
        return items(self.client.list_memories, **self._owner, key_prefix=f"{path}/", limit=100)

    async def _delete_below(self, path: str) -> models.Deleted:
        return await self.client.delete_memories(**self._owner, key_prefix=f"{path}/")

    async def _write(self, key: str, content: str, **headers: Any) -> None:
        body: models.MemoryCreate = {"agent_id": self.agent_id, "user_id": self.user_id, "content": content}
        await self.client.create_memory({**body, "memory_type": "file", "key": key}, **headers)

    async def _edit(self, path: str, change: Callable[[str], tuple[str, str]]) -> str:
        """Writes what `change` makes of the content, over just the version that it was made of."""
        where = path_of(path)
        for attempt in range(ATTEMPTS):
            file = await self._file(where)
            if file is None:
                is_folder = where == ROOT or await self._is_folder(where)
                there = "is not a file." if is_folder else "does not exist. Please provide a valid path."
                raise FileRefused(f"The path {path} {there}")
            content, said = change(file["content"])
            try:
                await self._write(where, content, if_match=file["version"])
            except Problem as problem:
                if problem.status == 412 and attempt + 1 < ATTEMPTS:
                    continue
                raise FileRefused(str(problem)) from problem
            return said
        raise AssertionError
