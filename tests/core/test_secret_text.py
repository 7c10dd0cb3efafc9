"""What is a secret in a text, and where; and what only looks like one. Values are made here or documented examples."""

import random
import re
import string
from zlib import crc32

import pytest

from app.core.secret_text import FORMS, redacted, secrets_of
from tests.support.processor_time import processor_time

ALNUM = string.ascii_letters + string.digits
DRAWN = random.Random(7)


def drawn(length: int, letters: str = ALNUM) -> str:
    return "aB3xZ9" + "".join(DRAWN.choices(letters, k=length - 6))


def hexed(length: int) -> str:
    return "a1b2c3d4e5" + "".join(DRAWN.choices("0123456789abcdef", k=length - 10))


def github(prefix: str, *, right: bool = True) -> str:
    body = drawn(30)
    number, digits = crc32(body.encode()) + (not right), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = (string.digits + string.ascii_uppercase + string.ascii_lowercase)[digit] + digits
    return prefix + body + digits


def pem(kind: str) -> str:
    return f"-----BEGIN {kind}-----\n{drawn(64)}\n{drawn(64)}\n-----END {kind}-----"


SECRETS = [
    ("openai_key", "sk-" + "proj-" + drawn(74)),
    ("openai_key", "sk-" + drawn(48)),
    ("anthropic_key", "sk-" + "ant-api03-" + drawn(95)),
    ("google_key", "AI" + "za" + drawn(35)),
    ("huggingface_token", "hf" + "_" + drawn(34, string.ascii_letters)),
    ("aws_key_id", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("azure_key", "AccountKey=" + drawn(86) + "=="),
    ("github_token", github("gh" + "p_")),
    ("github_token", "github" + "_pat_" + drawn(22) + "_" + drawn(59)),
    ("gitlab_token", "gl" + "pat-" + drawn(20)),
    ("npm_token", github("npm_")),
    ("pypi_token", "pypi-" + "AgEIcHlwaS5vcmc" + drawn(120)),
    ("slack_token", "xo" + "xb-" + "123456789012-1234567890123-" + drawn(24)),
    ("webhook", "https://hooks.slack" + ".com/services/T0000/B0000/" + drawn(24)),
    ("telegram_token", "1234567890:" + "AA" + drawn(33)),
    ("sendgrid_key", "SG" + "." + drawn(22) + "." + drawn(43)),
    ("stripe_key", "sk" + "_live_" + drawn(24)),
    ("digitalocean_token", "dop" + "_v1_" + hexed(64)),
    ("databricks_token", "da" + "pi" + hexed(32)),
    ("shopify_token", "shp" + "at_" + hexed(32)),
    ("google_oauth", "1//" + "0g" + drawn(60)),
    ("cloud_token", "LT" + "AI" + drawn(20)),
    ("paypal_token", "access_token$production$" + drawn(16).lower() + "$" + hexed(32)),
    ("recalld_key", "rk_" + hexed(16) + "_" + drawn(43)),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9." + "eyJ" + drawn(40) + "." + drawn(43)),
    ("private_key", pem("OPENSSH PRIVATE KEY")),
    ("private_key", pem("PGP PRIVATE KEY BLOCK")),
    ("card", "4242 4242 4242 4242"),
    ("card", "378282246310005"),
    ("card", "5555-5555-5555-4444"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "gb82west12345698765432"),
    ("iban", "MT84MALT011000012345MTLCAST001S"),
    ("private", "<private>my diary</private>"),
]


@pytest.mark.parametrize(("kind", "value"), SECRETS)
@pytest.mark.parametrize("around", ["{}", "It is {}, keep it.", '{{"key": "{}"}}', "密钥{}。", "1\\n{}\\n2"])
def test_a_secret_is_found_where_it_stands(kind: str, value: str, around: str) -> None:
    text = around.format(value)
    (found,) = secrets_of(text)
    assert (found.kind, text[found.start : found.end]) == (kind, value)


def test_the_password_of_an_address_is_found_and_nothing_else_of_it() -> None:
    text = "postgres://app:" + "07FxCp_fi2@db.internal:5432/shop and https://git@host/x and amqp://u:$PASS@h"
    (found,) = secrets_of(text)
    assert (found.kind, text[found.start : found.end]) == ("url_password", "07FxCp_fi2")


def test_the_value_of_an_authorization_header_is_found() -> None:
    text = f"curl -H 'Authorization: Bearer {drawn(30)}' and Authorization: Bearer <token>"
    (found,) = secrets_of(text)
    assert (found.kind, found.end - found.start) == ("auth_header", 30)


def test_the_secret_key_of_aws_needs_its_name_near() -> None:
    value = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
    assert [span.kind for span in secrets_of(f"aws_secret_access_key = {value}")] == ["aws_secret_key"]
    assert secrets_of(f"The path is {value}") == []


@pytest.mark.parametrize(
    "text",
    [
        "password, secret, token, api key, thanks",
        "OPENAI_API_KEY=<your key here>",
        "sk-" + "x" * 48,
        "AKIA" + "X" * 16,
        "sk-learn-based-pipeline-with-many-words",
        github("gh" + "p_", right=False),
        "4242 4242 4242 4243",
        "5500 0000 0000 0005 9 has too many digits",
        "DE89 3704 0044 0532 0130 01",
        "EAN 4006381333931",
        "git hash e83c5163316f89bfbde7d9ab23ca2e25604af290",
        "uuid 550e8400-e29b-41d4-a716-446655440000",
        "0000 0000 0000 0000",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ6fV0mJq0y9XnqYc3b3wz2l5pPjE7w7r5mJd0qT7kq3 lena@laptop",
        "-----BEGIN PUBLIC KEY-----",
        "a mention of <private> alone",
    ],
)
def test_what_only_looks_like_one_is_none(text: str) -> None:
    assert secrets_of(text) == []


def test_several_stand_in_order_and_do_not_overlap() -> None:
    text = "card 4242 4242 4242 4242 12/29, <private>IBAN DE89370400440532013000 <private>in</private></private>, " + (
        "AKIA" + "IOSFODNN7EXAMPLE"
    )
    assert [span.kind for span in secrets_of(text)] == ["card", "private", "aws_key_id"]
    assert text[secrets_of(text)[1].start : secrets_of(text)[1].end].count("private>") == 4


def test_what_overlaps_is_one_and_nothing_of_it_is_left() -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n{drawn(40)}\n-----END RSA PRIVATE KEY-----"
    text = f"aws secret: {key} in it"
    assert redacted(text, secrets_of(text)) == "aws secret: [secret: private_key] in it"
    text = f"AB12 IBAN DE89 3704 0044 0532 0130 00 and redis://u:{'p@ss' + 'w0rd'}@host"
    assert redacted(text, secrets_of(text)) == "AB12 IBAN [secret: iban] and redis://u:[secret: url_password]@host"


def test_a_private_key_without_its_end_goes_as_far_as_it_does() -> None:
    text = pem("RSA PRIVATE KEY").partition("-----END")[0] + "\n\N{BULLET} then we had tea"
    (found,) = secrets_of(text)
    assert text[found.end :].startswith("\N{BULLET}")


def can_hang(pattern: str) -> bool:
    """Whether an expression has an open repeat, or a repeat in a repeat."""
    plain = re.sub(r"\[[^\]]*\]|\\.", "x", pattern)
    return re.search(r"[*+]|\{\d+,\}", plain) is not None or re.search(r"\{[^}]*\}[^()]*\)\{", plain) is not None


def test_no_expression_of_the_table_can_hang() -> None:
    """The time to read a text grows with its length, whatever is in it."""
    assert all(map(can_hang, ("(a{1,9}){1,9}", "a+", "[a-z]{3,}")))
    assert [form.kind for form in FORMS if can_hang(form.pattern.pattern)] == []


@pytest.mark.parametrize(
    "part", ["sk-", "eyJ-", "-----BEGIN PRIVATE KEY-----", "4242 ", "DE44 1234 ", "://a:b", "<private>"]
)
def test_hostile_texts_are_read(part: str) -> None:
    assert all(0 <= span.start < span.end for span in secrets_of(part * (32_000 // len(part))))


def test_patterns_of_the_operator_are_found() -> None:
    assert [*secrets_of("badge EMP-123456", [("badge", re.compile(r"EMP-\d{6}"))])] == [("badge", 6, 16)]


def test_the_body_of_a_private_key_that_says_where_it_ends_is_not_read() -> None:
    """1,500 keys without a body, one behind the other, take hardly longer than one with a body as long as all: behind
    each, 20,000 characters were read as its body."""

    def read(text: str) -> None:
        assert {secret.kind for secret in secrets_of(text)} == {"private_key"}

    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END -----"
    one = processor_time(lambda: read(f"{begin}{'A b' * 20_000}{end}"))
    many = processor_time(lambda: read(f"{begin}{end}" * 1_500))
    assert many < 30 * max(one, 0.002)
