"""The files of a user, with the commands of Anthropic's memory tool."""

from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
from recalld_client import AsyncRecalld, AsyncUserFiles, FileRefused

pytestmark = pytest.mark.anyio

VIEW = "Here's the content of {} with line numbers:\n"


@pytest.fixture
async def files(api: httpx.AsyncClient) -> AsyncIterator[AsyncUserFiles]:
    async with AsyncRecalld(http=api) as memory:
        yield memory.user("ada", agent="claude").files


async def refused(command: Any) -> str:
    with pytest.raises(FileRefused) as error:
        await command
    return str(error.value)


async def test_a_file_is_created_viewed_edited_renamed_and_deleted(files: AsyncUserFiles) -> None:
    path = "/memories/notes/plan.md"
    assert await files.create(path, "one\ntwo\nthree\n") == f"File created successfully at: {path}"
    assert await refused(files.create(path, "")) == f"File {path} already exists"
    assert await refused(files.create("/memories/notes", "")) == "File /memories/notes already exists"
    assert "is a file" in await refused(files.create(f"{path}/deeper", ""))
    lines = "     1\tone\n     2\ttwo\n     3\tthree\n     4\t"
    assert await files.view(path) == VIEW.format(path) + lines
    assert await files.view(path, [2, -1]) == VIEW.format(path) + lines.partition("\n")[2]
    edited = await files.str_replace(path, "two", "2")
    assert edited.startswith("The memory file has been edited. Here is the snippet")
    assert edited.endswith("     1\tone\n     2\t2\n     3\tthree\n     4\t")
    assert "did not appear verbatim" in await refused(files.str_replace(path, "two", "2"))
    assert "in lines: 1, 3, 3. Please" in await refused(files.str_replace(path, "e", "E"))
    assert await files.insert(path, 0, "zero\n") == f"The file {path} has been edited."
    assert "within the range [0, 4]" in await refused(files.insert(path, 5, "x"))
    assert await files.view(path, [1, 2]) == f"{VIEW.format(path)}     1\tzero\n     2\tone"
    assert await files.rename(path, "/memories/plan.md") == f"Successfully renamed {path} to /memories/plan.md"
    assert await files.delete("/memories/plan.md") == "Successfully deleted /memories/plan.md"
    assert await refused(files.view(path)) == f"The path {path} does not exist. Please provide a valid path."
    assert await refused(files.delete(path)) == f"The path {path} does not exist"


async def test_folders(files: AsyncUserFiles) -> None:
    assert (await files.view("/memories")).endswith("excluding hidden items:\n0B\t/memories")
    for path, text in (("b.md", "é"), ("a/b/c/d.md", "x" * 1536), ("a/.hidden", "x"), ("a/z.md", ""), ("ab.md", "yy")):
        await files.create(f"/memories/{path}", text)
    assert (await files.view("/memories")).splitlines()[1:] == [
        "1.5K\t/memories",
        "1.5K\t/memories/a/",
        "1.5K\t/memories/a/b/",
        "0B\t/memories/a/z.md",
        "2B\t/memories/ab.md",
        "2B\t/memories/b.md",
    ]
    assert await refused(files.insert("/memories/a", 0, "x")) == "The path /memories/a is not a file."
    assert (
        await refused(files.rename("/memories/a", "/memories/ab.md"))
        == "The destination /memories/ab.md already exists"
    )
    assert "into itself" in await refused(files.rename("/memories/a", "/memories/a/b/c2"))
    await files.rename("/memories/a", "/memories/moved")
    assert "x" * 1536 in await files.view("/memories/moved/b/c/d.md")
    assert await files.delete("/memories/moved") == "Successfully deleted /memories/moved"
    assert len((await files.view("/memories")).splitlines()) == 4
    assert await files.clear() == "All memory cleared"
    for command in (files.delete("/memories"), files.rename("/memories", "/memories/x")):
        assert "the /memories directory itself" in await refused(command)


@pytest.mark.parametrize(
    "path",
    [
        "/memories/../etc/passwd",
        "/memories/a/../../x",
        "/etc/passwd",
        "memories/x",
        "/memoriesx/y",
        "",
        "/memories/" + "x" * 300,
    ],
)
async def test_a_path_outside_is_refused_before_anything_is_sent(path: str) -> None:
    def answered(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)

    async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answered)) as http:
        files = AsyncRecalld(http=http).user("ada").files
        for command in (
            files.view(path),
            files.create(path, ""),
            files.str_replace(path, "a", "b"),
            files.insert(path, 0, ""),
            files.delete(path),
            files.rename(path, "/memories/x"),
            files.rename("/memories/x", path),
        ):
            await refused(command)


async def test_a_path_inside_is_the_same_however_it_is_written(files: AsyncUserFiles) -> None:
    await files.create("/memories/a//b/./../cafe\u0301.md", "x")
    assert "     1\tx" in await files.view("/memories/a/caf\u00e9.md")


async def test_others_see_nothing_and_a_change_between_is_not_lost(
    api: httpx.AsyncClient, files: AsyncUserFiles
) -> None:
    await files.create("/memories/a.md", "one two")
    for other in (AsyncRecalld(http=api).user("bob", agent="claude"), AsyncRecalld(http=api).user("ada", agent="b")):
        assert (await other.files.view("/memories")).endswith("0B\t/memories")
        assert await refused(other.files.delete("/memories/a.md"))
    real, between = files.client.list_memories, [True]

    async def read(**asked: Any) -> Any:
        page = await real(**asked)
        if between.pop() if between else False:
            await files.str_replace("/memories/a.md", "one", "1")
        return page

    slow = AsyncUserFiles(files.client, "ada", "claude")
    held: Any = {"list_memories": staticmethod(read), "create_memory": files.client.create_memory}
    slow.client = cast(Any, type("Slow", (), held)())
    await slow.str_replace("/memories/a.md", "two", "2")
    assert "     1\t1 2" in await files.view("/memories/a.md")
