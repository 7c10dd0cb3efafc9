"""`recalld keys …`: what it prints, and how it ends."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Run
from tests.support.identifiers import decomposed
from tests.support.server import serving

CREATE = ("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci")


def test_a_key_is_shown_once_and_listed_without_its_secret(run: Run, data: Path) -> None:
    made = run(*CREATE, "--verbs", "read", "--agent", "a", "--user", "u", "--expires", "90d", "--json")
    assert made.returncode == 0, made.stderr
    record = json.loads(made.stdout)
    assert re.fullmatch(r"rk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", record["key"])
    assert record["id"] in record["key"]
    assert (record["tenant"], record["name"], record["verbs"]) == ("acme", "ci", ["read"])
    assert (record["agents"], record["users"], record["revoked_at"]) == (["a"], ["u"], None)
    secret = record.pop("key").split("_", 2)[2]  # which may hold that sign itself
    listed = run("keys", "list", "--json")
    assert json.loads(listed.stdout) == {"items": [record]}
    table = run("keys", "list")
    assert record["id"] in table.stdout, "an id that is cut cannot be revoked"
    assert all(secret not in text for text in (listed.stdout, table.stdout, table.stderr))
    assert all(secret.encode() not in file.read_bytes() for file in data.rglob("*") if file.is_file())


def test_a_plain_create_prints_the_key_and_nothing_else_to_be_piped(run: Run) -> None:
    made = run(*CREATE)
    assert re.fullmatch(r"rk_\S+\n", made.stdout)
    assert "not shown again" in made.stderr


@pytest.mark.parametrize("command", ["create", "rotate"])
def test_the_data_directory_notes_that_keys_were_made(run: Run, data: Path, command: str) -> None:
    made = json.loads(run(*CREATE, "--json").stdout)
    if command == "rotate":
        (data / "keys-made").unlink()
        assert run("keys", "rotate", made["id"]).returncode == 0
    assert json.loads((data / "keys-made").read_text()) == {"stores": ["embedded"]}
    assert (data / "keys-made").stat().st_mode & 0o777 == 0o600
    assert made["id"] not in (data / "keys-made").read_text()


def test_lists_one_tenant(run: Run) -> None:
    run(*CREATE)
    assert json.loads(run("keys", "list", "--tenant", "other", "--json").stdout) == {"items": []}
    assert "acme" not in run("keys", "list", "--tenant", "other").stdout


def test_names_are_printed_as_they_are(run: Run) -> None:
    run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "[red]a\nb[/red]")
    assert "[red]a b[/red]" in run("keys", "list").stdout


def test_a_key_is_bound_to_ids_of_any_kind_in_one_spelling(run: Run) -> None:
    bound = ("--user", decomposed("J\u00f6rg M\u00fcller"), "--user", "auth0|5f7c", "--agent", "a+b@x.com")
    record = json.loads(run(*CREATE, *bound, "--json").stdout)
    assert (record["users"], record["agents"]) == (["J\u00f6rg M\u00fcller", "auth0|5f7c"], ["a+b@x.com"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*CREATE, "--verbs", "read,fly"), "verbs: must be some of read, write, admin"),
        ((*CREATE, "--verbs", ""), "verbs: must be some of read, write, admin"),
        ((*CREATE, "--expires", "soon"), "expires: must be a number of days, hours or minutes"),
        ((*CREATE, "--expires", "0d"), "expires: must lie in the future"),
        ((*CREATE, "--user", "a/b"), "users: must be 1 to 255 printable characters, not . or .., with no /"),
        ((*CREATE, "--agent", ".."), "agents: must be 1 to 255 printable characters"),
        (("keys", "create", "--tenant", "", "--name", "x"), "tenant: must be 1 to 128 characters"),
        (("keys", "create", "--tenant", "t", "--name", " "), "name: must not be empty"),
        (("keys", "revoke", "nope"), "There is no key nope."),
    ],
)
@pytest.mark.usefixtures("new_store")
def test_mistakes_are_sentences(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"recalld: {says}")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_the_last_admin_key_is_revoked_by_force_only(run: Run) -> None:
    made = json.loads(run(*CREATE, "--verbs", "read,admin", "--json").stdout)
    refused = run("keys", "revoke", made["id"])
    assert refused.returncode == 1
    assert refused.stderr.startswith("recalld: No other key with the verb admin")
    assert run("keys", "revoke", made["id"], "--force").stdout == f"{made['id']} is revoked.\n"
    assert run("keys", "revoke", made["id"]).returncode == 0, "it is revoked already"


def test_keys_work_and_are_revoked_while_the_service_runs(run: Run, data: Path) -> None:
    with serving(data) as server:
        assert server.client.get("/v1/memories").status_code == 200, "no key was ever made"
        made = json.loads(run(*CREATE, "--json").stdout)
        assert server.client.get("/v1/memories").status_code == 401

        def asked() -> httpx.Response:
            return server.client.get("/v1/memories", headers={"Authorization": f"Bearer {made['key']}"})

        assert asked().status_code == 200
        assert run("keys", "revoke", made["id"]).stdout == f"{made['id']} is revoked.\n"
        assert asked().status_code == 401
        assert json.loads(run("keys", "revoke", made["id"], "--json").stdout)["revoked_at"]
        assert server.client.get("/v1/memories").status_code == 401, "a revoked key was once made"
        doctor = run("doctor")
        assert doctor.returncode == 0, doctor.stdout


@pytest.mark.parametrize("rights", [(), ("--verbs", "read"), ("--verbs", "read,write,admin", "--user", "ada")])
def test_a_first_key_that_cannot_administer_is_refused_without_a_question(run: Run, rights: tuple[str, ...]) -> None:
    asked = ("keys", "create", "--tenant", "acme", "--name", "first", *rights)
    refused = run(*asked)  # standard input is no terminal, and nothing reads it
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--verbs read,write,admin" in refused.stderr
    assert "--no-admin" in refused.stderr
    assert json.loads(run("keys", "list", "--json").stdout) == {"items": []}
    assert run(*asked, "--no-admin").returncode == 0
    assert run(*asked).returncode == 0, "it is no first key any more"


def test_a_first_key_that_administers_is_made(run: Run) -> None:
    made = run("keys", "create", "--tenant", "acme", "--name", "first", "--verbs", "read,write,admin")
    assert made.returncode == 0, made.stderr


def test_a_key_that_does_not_open_what_was_stored_without_one_says_so_until_one_does(run: Run) -> None:
    first = run(*CREATE, "--json")
    assert "holds" not in first.stderr, "nothing was stored"
    assert run("add", "Ada keeps bees").returncode == 0
    for name in ("second", "third"):
        made = run("keys", "create", "--tenant", "acme", "--name", name)
        assert re.fullmatch(r"rk_\S+\n", made.stdout)
        assert "tenant default holds 1 records and has no key: this one does not see them" in made.stderr
        assert "recalld export default.jsonl --tenant default" in made.stderr
        assert "recalld import default.jsonl --tenant acme" in made.stderr
    assert run("export", "default.jsonl", "--tenant", "default").returncode == 0
    assert run("import", "default.jsonl", "--tenant", "acme").returncode == 0, "what it says moves them"
    assert "holds" not in run("keys", "create", "--tenant", "default", "--name", "opens").stderr
    assert "holds" not in run("keys", "create", "--tenant", "acme", "--name", "fourth").stderr
