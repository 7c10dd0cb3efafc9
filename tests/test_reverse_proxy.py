"""deploy/nginx.conf in front of the service, with real TLS. Only its addresses and certificate are replaced.

Skipped where there is no nginx; with `RECALLD_TEST_NGINX=required`, as in CI, it fails then.
"""

import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.memories import OWNER
from tests.support.scripted import free_port
from tests.support.server import ROOT, Server, recalld, serving

NAME = "memory.example.com"
CLIENT_ADDRESS = "127.0.0.2"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """The service behind nginx. `client` sends the key, and comes from an address that is not the proxy's."""

    client: httpx.Client
    plain_port: int
    server: Server


def nginx() -> str:
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is not None:
        return found
    if os.environ.get("RECALLD_TEST_NGINX") == "required":
        pytest.fail("nginx is not installed")
    pytest.skip("nginx is not installed")


def self_signed(folder: Path) -> Path:
    """Writes a certificate for the site's name and its key. Returns the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(encoding))
    return folder / "fullchain.pem"


def configured(folder: Path, service: int, secure: int, plain: int) -> Path:
    """Writes the configuration of an nginx of this test's own, with the example in it. Returns its file."""
    example = (ROOT / "deploy" / "nginx.conf").read_text()
    for before, after in (
        ("server 127.0.0.1:8000;", f"server 127.0.0.1:{service};"),
        ("listen 443 ssl http2;", f"listen {secure} ssl http2;"),
        ("listen 80;", f"listen {plain};"),
        (f"ssl_certificate /etc/ssl/{NAME}/fullchain.pem;", f"ssl_certificate {folder}/fullchain.pem;"),
        (f"ssl_certificate_key /etc/ssl/{NAME}/key.pem;", f"ssl_certificate_key {folder}/key.pem;"),
    ):
        assert example.count(before) == 1
        example = example.replace(before, after)
    (folder / "recalld.conf").write_text(example)
    own = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{own}include {folder}/recalld.conf;\n}}\n"
    )
    return main


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    program, folder = nginx(), tmp_path_factory.mktemp("nginx")
    data, secure, plain = folder / "data", free_port(), free_port()
    key = recalld(data, "keys", "create", "--tenant", "acme", "--name", "ci", "--verbs", "read,write,admin")
    trust = ssl.create_default_context(cafile=str(self_signed(folder)))
    with serving(data, RECALLD_TRUSTED_PROXIES="127.0.0.1") as server:
        main = configured(folder, server.client.base_url.port or 0, secure, plain)
        process = subprocess.Popen([program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(main)])
        try:
            transport = httpx.HTTPTransport(verify=trust, local_address=CLIENT_ADDRESS)
            client = httpx.Client(
                base_url=f"https://127.0.0.1:{secure}",
                transport=transport,
                headers={"Host": NAME, "Authorization": f"Bearer {key.stdout.strip()}"},
                timeout=60,
            )
            with client:
                wait_for(client, folder / "error.log")
                yield Site(client, plain, server)
        finally:
            process.terminate()
            process.wait(60)


def get(client: httpx.Client, path: str, **headers: str) -> httpx.Response:
    return client.get(path, headers=headers, extensions={"sni_hostname": NAME})


def post(client: httpx.Client, path: str, body: object, **headers: str) -> httpx.Response:
    return client.post(path, json=body, headers=headers, extensions={"sni_hostname": NAME})


def wait_for(client: httpx.Client, log: Path) -> None:
    for _ in range(600):
        try:
            assert get(client, "/readyz").status_code == 200
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


def test_a_memory_goes_in_and_out_over_tls(site: Site) -> None:
    made = post(site.client, "/v1/memories", {**OWNER, "content": "Ada prefers tea"})
    assert (made.status_code, made.http_version) == (201, "HTTP/1.1")
    assert made.headers["strict-transport-security"] == "max-age=31536000"
    found = post(site.client, "/v1/memories/search", {**OWNER, "query": "what does Ada drink?"})
    assert found.json()["items"][0]["memory"]["content"] == "Ada prefers tea"


def test_a_certificate_that_is_not_trusted_is_noticed(site: Site) -> None:
    refused = pytest.raises(httpx.ConnectError, match="certificate verify failed")
    with httpx.Client(base_url=site.client.base_url) as other, refused:
        get(other, "/readyz")


def test_plain_http_is_sent_to_https(site: Site) -> None:
    answer = httpx.get(f"http://127.0.0.1:{site.plain_port}/v1/users?limit=5", headers={"Host": NAME})
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://{NAME}/v1/users?limit=5")


def test_metrics_are_not_served_outside(site: Site) -> None:
    assert get(site.client, "/metrics").status_code == 404
    assert site.server.client.get("/metrics").status_code == 200


def test_a_body_over_the_limit_gets_the_answer_of_the_service(site: Site) -> None:
    body = {**OWNER, "content": "x" * (4 * MIB)}
    answer = post(site.client, "/v1/memories", body)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert post(site.client, "/v1/memories", {**body, "content": "x" * (5 * MIB)}).status_code == 413
    accepted = {"items": [{**OWNER, "content": f"{number} " + "x" * 30_000} for number in range(40)]}
    assert post(site.client, "/v1/memories/batch", accepted).status_code == 201


def test_the_request_id_of_the_proxy_is_in_the_answer(site: Site) -> None:
    first, second = (get(site.client, "/v1/memories").headers["x-request-id"] for _ in range(2))
    assert len(first) == len(second) == 32
    assert first != second


def test_mcp_works_through_it(site: Site) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = "application/json, text/event-stream"
    answer = post(site.client, "/mcp?agent_id=a&user_id=u", body, Accept=accept)
    assert answer.status_code == 200, answer.text
    assert '"serverInfo"' in answer.text


def test_wrong_keys_count_for_the_client_and_not_for_the_address_it_claims(site: Site) -> None:
    """Last: the address is over its limit afterwards."""
    wrong = {"Authorization": "Bearer rk_0000000000000000_" + "x" * 43, "X-Forwarded-For": "6.6.6.6"}
    statuses = [get(site.client, "/v1/memories", **wrong).status_code for _ in range(25)]
    assert (statuses[0], statuses[-1]) == (401, 429)
    assert get(site.client, "/v1/memories").status_code == 200
    log = site.server.log_text()
    assert CLIENT_ADDRESS in log
    assert "6.6.6.6" not in log
