"""The image that `scripts/image FOLDER` built is run as `docker run --read-only` would: its user, its entry point, no
capability, a read-only root, a volume at /data. RECALLD_TEST_IMAGE names the folder; without it these are skipped.

What differs from a Docker engine: the base image is Debian's Python, the network is this machine's, and namespaces are
made by `unshare`, without seccomp and cgroups.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

FOLDER = os.environ.get("RECALLD_TEST_IMAGE", "")
IMAGE = "localhost/recalld"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="RECALLD_TEST_IMAGE names no folder of scripts/image"),
]
READY_SECONDS = 90
_ENTER = """
mount --bind "$ROOT" "$ROOT" && mount -o remount,bind,ro "$ROOT"
mount --bind "$DATA" "$ROOT/data" && mount -t tmpfs tmpfs "$ROOT/tmp" && mount -t proc proc "$ROOT/proc"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
for one in null zero random urandom; do touch "$ROOT/dev/$one" && mount --bind "/dev/$one" "$ROOT/dev/$one"; done
exec setpriv --no-new-privs -- unshare --root="$ROOT" --wd="$WORKDIR" --setuid="$AS" --setgid="$AS" "$@"
"""


def buildah(*arguments: str) -> str:
    command = ["buildah", "--root", f"{FOLDER}/storage", "--runroot", f"{FOLDER}/run", *arguments]
    set_ = {**os.environ, "STORAGE_DRIVER": os.environ.get("STORAGE_DRIVER", "overlay")}
    done = subprocess.run(command, env=set_, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Container:
    """The image's files in one place, and what it says of itself."""

    def __init__(self, root: str, config: dict[str, Any], data: Path) -> None:
        self.root, self.config, self.data = root, config, data

    def start(self, command: Sequence[str], output: Path | int, **given: str) -> "subprocess.Popen[bytes]":
        inside = dict(one.split("=", 1) for one in self.config["Env"]) | {"HOME": "/"} | given
        as_env = [f"{name}={value}" for name, value in inside.items()]
        outside = {
            "ROOT": self.root,
            "DATA": str(self.data),
            "WORKDIR": self.config["WorkingDir"],
            "AS": self.config["User"],
        }
        wrapped = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-ec", _ENTER, "sh"]
        env = {"PATH": os.environ["PATH"], **outside}
        if not isinstance(output, Path):
            return subprocess.Popen([*wrapped, "env", "-i", *as_env, *command], env=env, stdout=output, stderr=output)
        with output.open("wb") as log:
            return subprocess.Popen([*wrapped, "env", "-i", *as_env, *command], env=env, stdout=log, stderr=log)

    def run(self, *command: str, **given: str) -> "subprocess.CompletedProcess[bytes]":
        process = self.start(command, subprocess.PIPE, **given)
        out, error = process.communicate(timeout=READY_SECONDS)
        return subprocess.CompletedProcess(command, process.returncode, out, error)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    name = buildah("from", "--pull-never", IMAGE)
    try:
        config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
        data = tmp_path / "volume"
        data.mkdir(mode=0o700)
        os.chown(data, int(config["User"]), int(config["User"]))
        yield Container(buildah("mount", name), config, data)
    finally:
        buildah("rm", name)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def init_of(process: "subprocess.Popen[bytes]") -> int:
    """The process that is number 1 inside."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@contextmanager
def serving(container: Container, log: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [*container.config["Entrypoint"], *container.config["Cmd"]]
    process = container.start(command, log, RECALLD_PORT=str(port))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_the_image_serves_as_nobody_on_a_read_only_root_and_drains(container: Container, tmp_path: Path) -> None:
    config, log, port = container.config, tmp_path / "log", free_port()
    assert (config["User"], config["Cmd"], list(config["Volumes"])) == ("10001", ["serve"], ["/data"])
    looked = container.run(
        "sh", "-c", "id -u; touch /srv/x || touch /venv/x || echo read-only; grep Cap /proc/self/status"
    )
    said = looked.stdout.decode().split("\n")
    assert said[:2] == ["10001", "read-only"], looked.stderr
    assert {line.split("\t")[1] for line in said if line.startswith(("CapEff", "CapPrm"))} == {"0" * 16}
    entry = config["Entrypoint"]
    refused = container.run(*entry, "serve", RECALLD_PORT=str(port))
    assert refused.returncode == 1
    assert b"make one with `recalld keys create`" in refused.stdout + refused.stderr
    made = container.run(*entry, *"keys create --tenant default --name first --verbs read,write,admin".split())
    assert made.returncode == 0, made.stderr
    key = made.stdout.decode().split()[0]
    health = config["Healthcheck"]["Test"]
    assert health[0] == "CMD"
    assert container.run(*health[1:], RECALLD_PORT=str(port)).returncode != 0, "nothing serves yet"
    with serving(container, log, port) as process:
        until = time.monotonic() + READY_SECONDS
        while container.run(*health[1:], RECALLD_PORT=str(port)).returncode != 0:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
        client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=60
        )
        body = {"agent_id": "a", "user_id": "u", "content": "Ada prefers tea to coffee"}
        assert client.post("/v1/memories", json=body).status_code == 201
        asked = {"agent_id": "a", "user_id": "u", "query": "what does she drink?"}
        (hit,) = client.post("/v1/memories/search", json=asked).json()["items"]
        assert hit["memory"]["content"] == body["content"]
        answers: list[int] = []
        many = {"items": [{**body, "content": f"note {number} " + "of many words " * 40} for number in range(60)]}
        under_way = threading.Thread(
            target=lambda: answers.append(client.post("/v1/memories/batch", json=many).status_code)
        )
        under_way.start()
        time.sleep(0.2)
        os.kill(init_of(process), signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
        under_way.join()
        client.close()
        assert answers == [201], "the request that was under way was answered"
    counted = container.run(*entry, "doctor", "--json")
    assert json.loads(counted.stdout)["ok"], counted.stdout
    assert {one.stat().st_uid for one in container.data.iterdir()} == {10001}
