"""`recalld add`, `search`, `list`, `show`, `context`, `sessions` and `forget` on the local store and on a service."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.command import Ended
from tests.support.documents import pdf
from tests.support.server import Server, serving

Recalld = Callable[..., Ended]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("service") / "data") as made:
        yield made


@pytest.fixture(params=["local", "service"])
def recalld(request: pytest.FixtureRequest, run: Run) -> Recalld:
    """`recalld("list")`: on an empty local store, or on a service that other tests use, too."""
    if request.param == "local":
        request.getfixturevalue("new_store")
        return run
    url = str(request.getfixturevalue("server").client.base_url)
    return lambda *arguments, **settings: run(*arguments, RECALLD_URL=url, **settings)


def printed(ended: Ended) -> Any:
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_what_is_added_is_found_listed_and_shown(recalld: Recalld) -> None:
    added = recalld("add", "Ada moved to Boston in May", "--user", "ada", "--tag", "home", "--type", "experience")
    assert (added.returncode, added.stderr) == (0, "")
    memory_id = added.stdout.strip()
    assert memory_id.startswith("mem_")

    found = recalld("search", "Which city does Ada live in?", "--user", "ada")
    assert found.stdout.splitlines()[0].split() == ["score", "memory", "type", "when", "content"]
    assert memory_id in found.stdout
    assert "Ada moved to Boston in May" in found.stdout
    (hit,) = printed(recalld("search", "Boston", "--user", "ada", "--json"))["items"]
    assert hit["memory"]["memory_id"] == memory_id

    (listed,) = recalld("list", "--user", "ada").stdout.splitlines()[1:]
    assert listed.split()[:3] == [memory_id, "*/ada", "experience"]
    assert printed(recalld("list", "--user", "ada", "--tag", "work", "--json"))["items"] == []

    shown = dict(line.split(maxsplit=1) for line in recalld("show", memory_id).stdout.splitlines())
    assert (shown["content"], shown["tags"], shown["user_id"]) == ("Ada moved to Boston in May", "home", "ada")
    assert "expires_at" not in shown, "it has none"
    assert printed(recalld("show", memory_id, "--json"))["importance"] == 0.5


def test_without_an_owner_it_is_about_me(recalld: Recalld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("I drink my coffee black\n"))
    memory = printed(recalld("add", "-", "--json"))
    assert (memory["content"], memory["user_id"], memory["agent_id"]) == ("I drink my coffee black", "me", None)
    assert memory["memory_id"] in recalld("search", "coffee").stdout
    context = recalld("context", "How do I take my coffee?")
    assert context.stdout.startswith("<recalld_context>")
    assert "coffee black" in context.stdout
    assert "of 2,000 tokens: 1 memories" in context.stderr


def test_filters_narrow_what_is_found_and_listed(recalld: Recalld) -> None:
    recalld("add", "likes tea", "--user", "fay", "--tag", "food")
    recalld("add", "likes trains", "--user", "fay", "--type", "preference")
    for command, wanted in (
        (("search", "likes", "--user", "fay"), '{"tags": "food"}'),
        (("list", "--user", "fay"), '{"tags": "food"}'),
        (("search", "likes"), '{"user_id": "fay", "NOT": {"memory_type": "preference"}}'),
    ):
        shown = recalld(*command, "--filters", wanted).stdout
        assert "likes tea" in shown
        assert "trains" not in shown
    assert "JSON object" in recalld("search", "likes", "--filters", "topic=x").stderr
    assert "cannot be sent" in recalld("list", "--filters", "x" * 70_000).stderr


def test_a_listing_goes_over_pages_and_says_that_there_is_more(recalld: Recalld) -> None:
    for number in range(3):
        recalld("add", f"Item {number}", "--user", "paged")
    assert len(recalld("list", "--user", "paged").stdout.splitlines()) == 4
    cut = recalld("list", "--user", "paged", "-n", "2")
    assert len(cut.stdout.splitlines()) == 3
    assert "--limit" in cut.stderr
    assert printed(recalld("list", "--user", "paged", "-n", "2", "--json"))["more"] is True


def test_a_listing_of_more_than_one_page(run: Run, server: Server) -> None:
    items = [{"user_id": "many", "content": f"Fact {number}"} for number in range(130)]
    assert server.client.post("/v1/memories/batch", json={"items": items}).status_code == 201
    listed = printed(run("list", "--user", "many", "-n", "120", "--json", RECALLD_URL=str(server.client.base_url)))
    assert len({memory["memory_id"] for memory in listed["items"]}) == 120
    assert listed["more"] is True


def test_sessions_are_listed_and_shown(run: Run, server: Server) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "image_url", "image_url": {"url": "https://a.example/b"}}]
    said = [{"role": "user", "name": "Ada", "content": "Hello"}, {"role": "user", "content": parts}]
    body = {"agent_id": "a", "user_id": "u", "messages": said}
    assert server.client.post("/v1/sessions/mon day/messages", json=body).status_code == 201
    url = str(server.client.base_url)
    (row,) = run("sessions", "--user", "u", "--url", url).stdout.splitlines()[1:]
    assert row.split()[:3] == ["mon", "day", "a/u"]
    first, second = run("sessions", "mon day", "--url", url).stdout.splitlines()[1:]
    assert first.split()[2:] == ["Ada", "Hello"]
    assert second.endswith("What is [image_url]")


def test_control_characters_of_stored_text_do_not_reach_the_terminal(recalld: Recalld) -> None:
    memory_id = recalld("add", "red \x1b[31m alert \x9b2J \u202eabc", "--user", "steer").stdout.strip()
    for arguments in (("list", "--user", "steer"), ("show", memory_id), ("context", "alert", "--user", "steer")):
        ended = recalld(*arguments)
        assert "alert" in ended.stdout
        assert not {"\x1b", "\x9b", "\u202e"} & set(ended.stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "mem_none"), "There is no such memory."),
        (("add", " "), "/content"),
        (("add", "x", "--type", "rumour"), "/memory_type"),
        (("add", "x", "--importance", "7"), "/importance"),
        (("search", "x", "--user", "a/b"), "/user_id"),
        (("list", "--user", "a/b"), "/query/user_id"),
    ],
)
def test_a_refused_call_is_a_sentence(recalld: Recalld, arguments: tuple[str, ...], says: str) -> None:
    ended = recalld(*arguments)
    assert ended.returncode == 1
    assert ended.stderr.startswith("recalld: ")
    assert ended.stderr.count(says) == 1
    assert ended.stderr.count("\n") == 1, "it is told once"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--url", "http://127.0.0.1:9"), "http://127.0.0.1:9 cannot be reached"),
        (("--url", "nowhere"), "http://nowhere cannot be reached"),
        (("--url", "http://127.0.0.1:9", "--key", "ü"), "--key: must be an API key"),
        (("--key", "rk_none_none"), "API key"),
    ],
)
@pytest.mark.usefixtures("new_store")
def test_a_wrong_address_or_key_is_a_sentence(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ended = run("list", *arguments)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_key_gives_its_rights(run: Run, data: Path) -> None:
    key = run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "n", "--user", "ada").stdout.strip()
    assert run("add", "Ada likes tea", "--user", "ada", "--key", key).returncode == 0
    assert run("add", "x", "--user", "bob", RECALLD_API_KEY=key).returncode == 1
    assert "Nothing was found." in run("list").stderr, "that is tenant default"
    with serving(data) as server:
        url = str(server.client.base_url)
        assert "Ada likes tea" in run("list", "--url", url, "--key", key).stdout
        assert "(unauthorized)" in run("list", "--url", url).stderr
        assert run("add", "Ada keeps bees", "--user", "ada", "--key", key).returncode == 0, "the store is shared"
        assert "bees" in run("search", "bees", "--user", "ada", "--url", url, "--key", key).stdout


def test_a_terminal_shows_in_grey_what_hardly_fits(recalld: Recalld, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("Ada keeps bees", "The invoice of March was paid"):
        recalld("add", text, "--user", "greyed")
    asked = ("search", "What animals does Ada keep?", "--user", "greyed")
    scores = {hit["memory"]["content"]: hit["score"] for hit in printed(recalld(*asked, "--json"))["items"]}
    assert scores["The invoice of March was paid"] < 0.01 < scores["Ada keeps bees"]
    assert "\x1b[2m" not in recalld(*asked).stdout, "that is a pipe"
    for name, value in {"TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    grey = [line for line in recalld(*asked).stdout.splitlines() if "\x1b[2m" in line]
    assert [text for text in scores if any(text in line for line in grey)] == ["The invoice of March was paid"]


def test_forget_shows_and_with_apply_forgets(recalld: Recalld) -> None:
    recalld("add", "Ada likes tea", "--user", "forgotten")
    asked = ("forget", "--user", "forgotten", "--older-than-days", "0")
    assert "1 memories would be forgotten; --apply forgets them." in recalld(*asked).stdout
    assert printed(recalld(*asked, "--dry-run", "--json"))["total"] == 1
    assert len(printed(recalld("list", "--user", "forgotten", "--json"))["items"]) == 1
    operation = printed(recalld(*asked, "--apply", "--json"))
    assert (operation["status"], operation["result"]) == ("succeeded", {"archived": 1})
    assert printed(recalld("list", "--user", "forgotten", "--json"))["items"] == []
    assert "0 memories are archived" in recalld(*asked, "--apply").stdout


def test_an_address_needs_no_scheme(run: Run, server: Server) -> None:
    address = str(server.client.base_url).removeprefix("http://").rstrip("/")
    assert run("list", "--url", address).returncode == 0
    assert run("list", RECALLD_URL=address).returncode == 0


def test_a_file_is_uploaded_and_found(recalld: Recalld, tmp_path: Path) -> None:
    (tmp_path / "fern.md").write_text("# Water\nWater a fern every other day.")
    uploaded = recalld("upload", str(tmp_path / "fern.md"), "--user", "gardener")
    assert (uploaded.returncode, uploaded.stderr) == (0, "")
    assert uploaded.stdout.endswith(": 1 passages\n")
    (hit,) = printed(recalld("search", "How often does a fern get water?", "--user", "gardener", "--json"))["items"]
    assert hit["memory"]["context"] == "fern.md › Water"
    (tmp_path / "scan.pdf").write_bytes(pdf("", ""))
    refused = recalld("upload", str(tmp_path / "scan.pdf"), "--user", "gardener")
    assert refused.returncode == 1
    assert "its pages are pictures" in refused.stderr
