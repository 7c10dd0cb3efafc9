# Made from _async/files.py by scripts/generate_clients.py; do not edit.
"""The files of a user, with the commands of Anthropic's memory tool."""

from collections.abc import Iterator, Callable
from typing import Any

from recalld_client import _generated as models
from recalld_client._sync.pages import items
from recalld_client._errors import Problem
from recalld_client._file_texts import ROOT, FileRefused, inserted, listed, numbered, path_of, replaced
from recalld_client._generated import Operations

ATTEMPTS = 4
"""How often a change is made again where another one came between reading and writing."""


class UserFiles:
    """Texts under paths below /memories, which no search sees. `UserMemory.files` makes it.

    Each method answers in the words of the tool and raises FileRefused, whose words are for the model, too.
    """

    def __init__(self, client: Operations, user_id: str, agent_id: str) -> None:
        self.client, self.user_id, self.agent_id = client, user_id, agent_id
        self._owner: dict[str, Any] = {"user_id": user_id, "agent_id": agent_id, "memory_type": "file"}

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        """A file with line numbers, or the names and sizes of what is in a folder."""
        where = path_of(path)
        if (file := self._file(where)) is not None:
            return numbered(path, file["content"], view_range)
        sizes = {str(one["key"]): len(one["content"].encode()) for one in self._below(where)}
        if not sizes and where != ROOT:
            raise FileRefused(f"The path {path} does not exist. Please provide a valid path.")
        return listed(path, where, sizes)

    def create(self, path: str, file_text: str) -> str:
        """A new file. Raises FileRefused where there is one already."""
        where = path_of(path)
        if where == ROOT or self._is_folder(where):
            raise FileRefused(f"File {path} already exists")
        self._require_folders(where)
        try:
            self._write(where, file_text, if_none_match="*")
        except Problem as problem:
            raise FileRefused(f"File {path} already exists" if problem.status == 412 else str(problem)) from problem
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replaces a text that stands in the file exactly once."""
        return self._edit(path, lambda content: replaced(path, content, old_str, new_str))

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Inserts lines behind the line with that number; 0 is the beginning."""
        said = f"The file {path} has been edited."
        return self._edit(path, lambda content: (inserted(content, insert_line, insert_text), said))

    def delete(self, path: str) -> str:
        """Deletes a file, or a folder with all that is in it."""
        where = path_of(path)
        if where == ROOT:
            raise FileRefused(f"Cannot delete the {ROOT} directory itself")
        if (file := self._file(where)) is not None:
            self.client.delete_memory(file["memory_id"])
        elif not (self._delete_below(where))["deleted"]:
            raise FileRefused(f"The path {path} does not exist")
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Moves a file or a folder to a path where nothing is."""
        old, new = path_of(old_path), path_of(new_path)
        if old == ROOT:
            raise FileRefused(f"Cannot rename the {ROOT} directory itself")
        if new == ROOT or self._file(new) is not None or self._is_folder(new):
            raise FileRefused(f"The destination {new_path} already exists")
        if new.startswith(f"{old}/"):
            raise FileRefused(f"Cannot move {old_path} into itself")
        file = self._file(old)
        moved = [file] if file is not None else [one for one in self._below(old)]
        if not moved:
            raise FileRefused(f"The path {old_path} does not exist")
        self._require_folders(new)
        for one in moved:
            self.client.update_memory(
                one["memory_id"], {"key": path_of(f"{new}{str(one['key']).removeprefix(old)}")}
            )
        return f"Successfully renamed {old_path} to {new_path}"

    def clear(self) -> str:
        """Deletes all files."""
        self._delete_below(ROOT)
        return "All memory cleared"

    def _file(self, key: str) -> models.Memory | None:
        page = self.client.list_memories(**self._owner, key=key, limit=1)
        return page["items"][0] if page["items"] else None

    def _require_folders(self, path: str) -> None:
        """Raises FileRefused where one of the folders of a path is a file."""
        while (path := path.rpartition("/")[0]) != ROOT:
            if self._file(path) is not None:
                raise FileRefused(f"{path} is a file, and no folder")

    def _is_folder(self, path: str) -> bool:
        page = self.client.list_memories(**self._owner, key_prefix=f"{path}/", limit=1)
        return bool(page["items"])

    def _below(self, path: str) -> Iterator[models.Memory]:
        return items(self.client.list_memories, **self._owner, key_prefix=f"{path}/", limit=100)

    def _delete_below(self, path: str) -> models.Deleted:
        return self.client.delete_memories(**self._owner, key_prefix=f"{path}/")

    def _write(self, key: str, content: str, **headers: Any) -> None:
        body: models.MemoryCreate = {"agent_id": self.agent_id, "user_id": self.user_id, "content": content}
        self.client.create_memory({**body, "memory_type": "file", "key": key}, **headers)

    def _edit(self, path: str, change: Callable[[str], tuple[str, str]]) -> str:
        """Writes what `change` makes of the content, over just the version that it was made of."""
        where = path_of(path)
        for attempt in range(ATTEMPTS):
            file = self._file(where)
            if file is None:
                is_folder = where == ROOT or self._is_folder(where)
                there = "is not a file." if is_folder else "does not exist. Please provide a valid path."
                raise FileRefused(f"The path {path} {there}")
            content, said = change(file["content"])
            try:
                self._write(where, content, if_match=file["version"])
            except Problem as problem:
                if problem.status == 412 and attempt + 1 < ATTEMPTS:
                    continue
                raise FileRefused(str(problem)) from problem
            return said
        raise AssertionError
