"""Recalld for Anthropic's SDK: the memory tool's backend, and a client that remembers. Needs `anthropic`."""

from collections.abc import Awaitable, Callable
from typing import Any

from anthropic.lib.tools import (  # type: ignore[import-not-found]
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    ToolError,
)

from recalld_client._async.user import AsyncUserMemory
from recalld_client._file_texts import FileRefused
from recalld_client._sync.user import UserMemory
from recalld_client._wrap import wrap_anthropic

__all__ = ["AsyncRecalldMemoryTool", "RecalldMemoryTool", "wrap_anthropic"]


def _done(command: Callable[..., str], *arguments: Any) -> str:
    try:
        return command(*arguments)
    except FileRefused as refused:
        raise ToolError(str(refused)) from refused


async def _done_async(command: Callable[..., Awaitable[str]], *arguments: Any) -> str:
    try:
        return await command(*arguments)
    except FileRefused as refused:
        raise ToolError(str(refused)) from refused


class RecalldMemoryTool(BetaAbstractMemoryTool):  # type: ignore[misc]
    """Claude's memory tool over the files of one user: `tools=[RecalldMemoryTool(Recalld().user("ada"))]`."""

    def __init__(self, memory: UserMemory, **options: Any) -> None:
        super().__init__(**options)
        self.files = memory.files

    def view(self, command: Any) -> str:
        return _done(self.files.view, command.path, command.view_range)

    def create(self, command: Any) -> str:
        return _done(self.files.create, command.path, command.file_text)

    def str_replace(self, command: Any) -> str:
        return _done(self.files.str_replace, command.path, command.old_str, command.new_str)

    def insert(self, command: Any) -> str:
        return _done(self.files.insert, command.path, command.insert_line, command.insert_text)

    def delete(self, command: Any) -> str:
        return _done(self.files.delete, command.path)

    def rename(self, command: Any) -> str:
        return _done(self.files.rename, command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        return self.files.clear()


class AsyncRecalldMemoryTool(BetaAsyncAbstractMemoryTool):  # type: ignore[misc]
    """The same with `await`, for AsyncAnthropic and AsyncRecalld."""

    def __init__(self, memory: AsyncUserMemory, **options: Any) -> None:
        super().__init__(**options)
        self.files = memory.files

    async def view(self, command: Any) -> str:
        return await _done_async(self.files.view, command.path, command.view_range)

    async def create(self, command: Any) -> str:
        return await _done_async(self.files.create, command.path, command.file_text)

    async def str_replace(self, command: Any) -> str:
        return await _done_async(self.files.str_replace, command.path, command.old_str, command.new_str)

    async def insert(self, command: Any) -> str:
        return await _done_async(self.files.insert, command.path, command.insert_line, command.insert_text)

    async def delete(self, command: Any) -> str:
        return await _done_async(self.files.delete, command.path)

    async def rename(self, command: Any) -> str:
        return await _done_async(self.files.rename, command.old_path, command.new_path)

    async def clear_all_memory(self) -> str:
        return await self.files.clear()
