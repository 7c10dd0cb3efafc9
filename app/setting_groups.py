"""Groups of settings, each with its fields described once. `app/settings.py` reads them from the environment."""

import re
from functools import cached_property, lru_cache
from ipaddress import ip_address
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, ValidationInfo, field_validator

LONGEST_HOST = 255


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine."""
    return len(host) <= LONGEST_HOST and _is_loopback(host)


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Returns whether a host is an IP address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def safe_address(address: str) -> bool:
    """True for an https address, and for http on this machine: what comes over plain http could be anybody's."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def without_secrets(given: str) -> str:
    """Returns a text as it may be printed, since it may be an address with a password or a key in it: without what
    stands before an `@`, and without a query. `https://ada:secret@host/v1?key=1` → `https://…@host/v1?…`"""
    scheme = _SCHEME.match(given)
    start = scheme[0] if scheme else ""
    before, at, rest = given.removeprefix(start).rpartition("@")
    place, question, query = rest.partition("?")
    return f"{start}{before and '…'}{at}{place}{question}{query and '…'}"


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
MOST_WORKERS = 64
OPERATOR: dict[str, JsonValue] = {"operator": True}
"""Marks a setting that is shown to no key of a tenant: it names this machine or servers behind it, not what callers may
do. Used as `Field(…, json_schema_extra=OPERATOR)`."""


class SettingGroup(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LimitSettings(SettingGroup):
    body_bytes: int = Field(4 << 20, ge=1024, description="Largest request body, in bytes.")
    requests_per_second: float = Field(
        2_000,
        ge=0,
        description="Requests a second for each key, with bursts of twice that, unless the key has a limit of its own; "
        "each worker process counts for itself. 0: no limit.",
    )
    cost_per_second: float = Field(
        4_000,
        ge=0,
        description="Units of work a second for each key: a unit is about a millisecond of one core, such as "
        "embedding 32 characters. 30 seconds' worth may be used at once. What goes beyond it is refused"
        " (429). Each worker process counts for itself. 0: no limit.",
    )
    wrong_keys: int = Field(
        20,
        ge=0,
        description="Wrong keys of one address (of one /64 network with IPv6) that are answered with 401 within a "
        "minute; further ones get 429. Right keys are served all the same. Each worker process counts "
        "for itself. 0: no limit.",
    )


class QuotaSettings(SettingGroup):
    """What each tenant may store. A write beyond it is 507; deletion and background work go on."""

    records: int = Field(
        0,
        ge=0,
        description="Most records of each tenant: sessions, messages, memories, tasks, actions, facts, procedures, "
        "profiles, and their earlier versions; 0: no limit.",
    )
    bytes: int = Field(
        0,
        ge=0,
        description="Most bytes of those records, stored answers and API keys together, as documents, without indexes; "
        "0: no limit.",
    )


SecretPolicy: TypeAlias = Literal["flag", "redact", "block", "off"]
OwnPatterns: TypeAlias = tuple[tuple[str, re.Pattern[str]], ...]
"""Kinds, each with the expression that finds it."""
_UNIT = re.compile(
    r"(?:\\[dws.\\$^+*?{}()|/\[\]-]|\[[^\s\[\]\\]{1,64}\]|[^\s\\.^$*+?{}()|\[\]])(?:\{(\d{1,3})(?:,(\d{1,3}))?\})?"
)
"""What an own pattern is a row of: a character, an escaped one or a class, and how often: `[A-Z]{2,3}`."""
MOST_PATTERNS = 20
_MOST_STEPS = 2_048
_SHORTEST = 8


class SecretSettings(SettingGroup):
    policy: SecretPolicy = Field(
        "flag",
        description="What becomes of secrets and personal data in texts that come in: keys, passwords in addresses, "
        "cards, IBANs. `flag`: they are stored, and the answer warns. `redact`: the name of the kind is stored in "
        "their place. `block`: the request is refused (422). `off`: nobody looks.",
    )
    tenants: str = Field("", description="Tenants with a policy of their own: `acme=redact beta=off`.")
    patterns: str = Field(
        "",
        description="Patterns of your own, each with the name of its kind: `badge=EMP-\\d{6} order=[A-Z]{3}\\d{5,8}`. "
        "A pattern is a row of characters, `\\d`, `\\w`, `\\s` and classes, each with `{n}` or `{n,m}`; it has no "
        "groups, no alternatives and no open repeats, so that every text is read in time.",
    )

    @field_validator("tenants")
    @classmethod
    def _pairs(cls, given: str) -> str:
        for pair in given.split():
            if not re.fullmatch("[^=]+.*=(flag|redact|block|off)", pair):
                raise ValueError(f"{without_secrets(pair[:80])!r} is not of the form tenant=policy, as acme=redact")
        return given

    @field_validator("patterns")
    @classmethod
    def _bounded(cls, given: str) -> str:
        for number, pair in enumerate(given.split()):
            kind, _, pattern = pair.partition("=")
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", kind) or number >= MOST_PATTERNS:
                raise ValueError(
                    f"There are at most {MOST_PATTERNS}, each of the form name=pattern: badge=EMP-\\d{{6}}"
                )
            at, least, most, ways = 0, 0, 0, 1
            while unit := _UNIT.match(pattern, at):
                low, high = int(unit[1] or 1), int(unit[2] or unit[1] or 1)
                at, least, most, ways = unit.end(), least + low, most + high, ways * max(high - low + 1, 1)
            if at < len(pattern):
                raise ValueError(f"{kind}: no groups, `|`, `.`, `*`, `+` or `?`, as at character {at + 1}")
            if least < _SHORTEST or most * ways > _MOST_STEPS:  # the steps at one character of a text
                raise ValueError(f"{kind}: it must match {_SHORTEST} characters or more, with few and short {{n,m}}")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{kind}: {error}") from None
        return given

    @cached_property
    def own(self) -> OwnPatterns:
        """The operator's patterns."""
        pairs = (pair.partition("=") for pair in self.patterns.split())
        return tuple((kind, re.compile(pattern)) for kind, _, pattern in pairs)

    @cached_property
    def _by_tenant(self) -> dict[str, SecretPolicy]:
        pairs = (pair.rpartition("=") for pair in self.tenants.split())
        return {tenant: cast(SecretPolicy, policy) for tenant, _, policy in pairs}

    def policy_of(self, tenant: str) -> SecretPolicy:
        """Returns the policy of a tenant."""
        return self._by_tenant.get(tenant, self.policy)


class ChangeSettings(SettingGroup):
    retention_hours: float = Field(
        72,
        ge=0,
        description="Hours that `GET /v1/changes` goes back, the same for all processes of a store; 0: no changes "
        "are logged.",
    )


class ConnectionSettings(SettingGroup):
    by_address: int = Field(
        512,
        ge=4,
        description="Most open connections of one address, such as that of a reverse proxy, to each worker process.",
    )


class EmbeddingSettings(SettingGroup):
    model: str = Field(
        "auto",
        description="Model that turns texts into vectors, by which they are found by their meaning: "
        "`recalld-minilm-1`, `multilingual` (an extra), the folder of an ONNX model, a model hub's name, "
        "`sentence-transformers:NAME` or `openai:NAME`. `auto`: `recalld-minilm-1`.",
        json_schema_extra=OPERATOR,
    )
    text_chars: int = Field(
        8192,
        ge=1,
        description="Characters that `sentence-transformers:` and `openai:` models are given at once: a longer text is "
        "embedded in up to 8 parts.",
    )
    base_url: str = Field(
        "https://api.openai.com/v1",
        pattern=r"^https?://[^\s@]+$",
        description="Server of an `openai:` model: texts are sent to its `/embeddings`.",
        json_schema_extra=OPERATOR,
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="Key for the server of RECALLD_EMBEDDING_BASE_URL; empty: none is sent."
    )
    dimensions: int = Field(
        0, ge=0, description="Length of the vectors that an `openai:` model is asked for; 0: as long as it makes them."
    )


class RerankSettings(SettingGroup):
    seconds: float = Field(
        0.3,
        gt=0,
        le=60,
        description="Seconds that a search waits for the model of RECALLD_RERANKER; when they are over, the hits "
        "stay in the order that they have without it.",
    )
    model: str = Field(
        "",
        max_length=200,
        description="Model that a request to a `/rerank` endpoint names, as Jina and Cohere want it; empty: the "
        "request is one of Text Embeddings Inference, which names none.",
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="Key for the endpoint of RECALLD_RERANKER; empty: none is sent."
    )


ANSWER_TOKENS = 4096
"""Most tokens of one answer of the language model, and at most a quarter of its context."""


class LLMSettings(SettingGroup):
    base_url: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="OpenAI-compatible server of the language model, with its `/v1`; empty: work without one.",
        json_schema_extra=OPERATOR,
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="Key for the server of RECALLD_LLM_BASE_URL; empty: none is sent."
    )
    model: str = Field(
        "gpt-4.1-mini",
        min_length=1,
        max_length=200,
        description="Model that the server of RECALLD_LLM_BASE_URL is asked for.",
    )
    small_model: str = Field(
        "",
        max_length=200,
        description="Model for simpler work, such as the summary of a session of which nothing else is learned, and"
        " the text for a day of actions; empty: RECALLD_LLM_MODEL.",
    )
    timeout_seconds: float = Field(
        60, gt=0, le=600, description="Seconds that one call of the language model may take."
    )
    context_tokens: int = Field(
        16_384,
        ge=4096,
        description="Tokens of the model's context, prompt and answer together. A session that is longer is read in"
        " parts that fit.",
    )
    verify: bool = Field(
        True,
        description="Ask the model a second time, which of the items that it found are not supported by the words "
        "that it quotes. Off: of an item that is worded otherwise than its quote, the quoted sentence "
        "is stored.",
    )
    tokens_per_day: int = Field(
        0, ge=0, description="Most tokens of one tenant on one UTC day, prompts included; 0: any number."
    )

    @property
    def most_answer_tokens(self) -> int:
        """Tokens that an answer may have."""
        return min(ANSWER_TOKENS, self.context_tokens // 4)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that a prompt may have, its answer fitting into the context, too."""
        return self.context_tokens - self.most_answer_tokens


class MongodbSettings(SettingGroup):
    database: str = Field(
        "recalld", min_length=1, max_length=38, description="Database of the MongoDB store.", json_schema_extra=OPERATOR
    )
    deadline_seconds: float = Field(
        5, gt=0, description="Seconds that MongoDB may take for a request; when they are over, the answer is 503."
    )


RIGHTS = ("read", "write", "admin", "all_users")
"""What a scope of a token may stand for: the verbs, and `all_users`, which lifts the binding to the token's user."""


class OidcSettings(SettingGroup):
    issuer: str = Field(
        "",
        description="OpenID Connect issuer whose tokens are accepted beside API keys, exactly as its tokens name it; "
        "https, or http on this machine; empty: none.",
    )
    audience: str = Field(
        "",
        validate_default=True,
        description="Audiences of this service, separated by spaces: a token must name one of them. Needed with an "
        "issuer.",
    )
    tenant: str = Field(
        "default", min_length=1, max_length=128, description="Tenant of all tokens, where no claim names it."
    )
    tenant_claim: str = Field(
        "", description="Claim that names the tenant; empty: all tokens have the tenant RECALLD_OIDC_TENANT."
    )
    user_claim: str = Field(
        "sub", description="Claim with the user, or users, that a token is bound to; empty: tokens are not bound."
    )
    agent_claim: str = Field(
        "", description="Claim with the agent, or agents, that a token is bound to; empty: tokens are not bound."
    )
    scope_claim: str = Field("scope", min_length=1, description="Claim with the scopes: a text or a list.")
    scopes: str = Field(
        "recalld:read=read recalld:write=write recalld:admin=admin recalld:all_users=all_users",
        description="What the scopes stand for: a verb each, or `all_users`, which lifts the binding to the user.",
    )

    @field_validator("issuer")
    @classmethod
    def _safe(cls, issuer: str) -> str:
        if issuer and (not safe_address(issuer) or re.search(r"[\s@?#]", issuer)):
            raise ValueError("It must be an https address (http only on this machine) without password and query")
        return issuer

    @field_validator("audience")
    @classmethod
    def _named(cls, audience: str, info: ValidationInfo) -> str:
        if info.data.get("issuer") and not audience.split():
            raise ValueError("Tokens of an issuer are accepted only for a named audience")
        return audience

    @field_validator("scopes")
    @classmethod
    def _known(cls, scopes: str) -> str:
        for pair in scopes.split():
            if pair.rpartition("=")[2] not in RIGHTS or not pair.rpartition("=")[0]:
                raise ValueError(
                    f"{without_secrets(pair)!r} is not of the form scope=right; rights are {', '.join(RIGHTS)}"
                )
        return scopes
