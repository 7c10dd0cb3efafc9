"""Every setting, described once: the help of the commands and the docs are made from this. They are read from
`RECALLD_…` or `.env`."""

import os
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from typing_extensions import TypedDict

from app.core.schemas import shown
from app.core.workers import MOST_WORKERS
from app.errors import did_you_mean
from app.validation_words import in_words

# --- Groups of settings -----------------------------------------------------------------------------------------------

LONGEST_HOST = 255


def is_loopback(host: str) -> bool:
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
        description="Requests a second for each key and worker, with bursts of twice that, unless the key has a "
        "limit of its own. 0: no limit.",
    )
    cost_per_second: float = Field(
        4_000,
        ge=0,
        description="Units of work a second for each key and worker: a unit is about a millisecond of one core, "
        "such as embedding 32 characters. 30 seconds' worth may be used at once, then 429. 0: no "
        "limit.",
    )
    wrong_keys: int = Field(
        20,
        ge=0,
        description="Wrong keys of one address within a minute that are answered with 401, for each worker; "
        "further ones get 429. Right keys are served all the same. 0: no limit.",
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
        description="What becomes of keys, passwords, cards and IBANs in texts. `flag`: they are stored, and the "
        "answer warns. `redact`: the kind is stored in their place. `block`: 422. `off`: nobody "
        "looks.",
    )
    tenants: str = Field("", description="Tenants with a policy of their own: `acme=redact beta=off`.")
    patterns: str = Field(
        "",
        description="Patterns of your own, each with the name of its kind: `badge=EMP-\\d{6} "
        "order=[A-Z]{3}\\d{5,8}`, of characters, `\\d`, `\\w`, `\\s` and classes, each with `{n}` or "
        "`{n,m}`.",
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
        description="Model that turns texts into vectors: `recalld-minilm-1`, `multilingual` (an extra), the "
        "folder of an ONNX model, a model hub's name, `sentence-transformers:NAME` or `openai:NAME`. "
        "`auto`: `recalld-minilm-1`.",
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
        description="Seconds that a search waits for RECALLD_RERANKER; then the hits keep their first order.",
    )
    model: str = Field(
        "",
        max_length=200,
        description="Model that a request to a `/rerank` endpoint names, as Jina and Cohere want it; empty: none "
        "is named.",
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
        description="Model for merges of facts and texts for days of actions; empty: RECALLD_LLM_MODEL.",
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
        description="Ask the model a second time which of its items their quotes do not support. Off: what is "
        "worded otherwise than its quote is stored as the quoted sentence.",
    )
    tokens_per_day: int = Field(
        0, ge=0, description="Most tokens of one tenant on one UTC day, prompts included; 0: any number."
    )

    @property
    def most_answer_tokens(self) -> int:
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
        description="OpenID Connect issuer whose tokens are accepted in addition to API keys, exactly as its "
        "tokens name it; empty: none.",
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


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@?#,*]+")
_PREFIX = "RECALLD_"
_NO_SETTINGS = frozenset({"URL", "KEY", "API_KEY", "AGENT", "USER", "MIGRATE_TO", "STRESS", "CALLED_FROM"})
"""Variables that commands, examples and tests read, without the prefix."""


def usable_cores() -> int:
    """Returns how many cores this process may use: those that it may run on, fewer where a control group limits it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, -(-int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or `max`: no limit
        pass
    return max(1, cores)


def _list(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]


class JobSettings(SettingGroup):
    enabled: bool = Field(True, description="Run background work in the server; off where `recalld worker` does it.")


class ReflectionSettings(SettingGroup):
    policy: Literal["off", "propose", "auto"] = Field(
        "propose",
        description="What becomes of findings. `propose`: they wait until somebody decides. `auto`: insights are "
        "stored at once, which can be undone; the others wait. `off`: the daily job does not run.",
    )


class ProcedureSettings(SettingGroup):
    share: bool = Field(
        True,
        description="Procedures learned from one user serve the agent's other users if nothing in them names a "
        "user. Off: they stay with their user.",
    )


class RetentionSettings(SettingGroup):
    action_days: float = Field(
        30,
        gt=0,
        description="Days for which each action is kept; older ones are rolled up into one memory for each day.",
    )
    message_days: float = Field(
        365,
        gt=0,
        description="Days after which a memory that is a message as said is archived, if nobody has read it in that"
        " time.",
    )
    archive_days: float = Field(
        30, gt=0, description="Days for which what was forgotten can be brought back; then it is deleted."
    )
    audit_days: float = Field(365, gt=0, description="Days that the audit trail goes back.")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="RECALLD_",
        env_file=".env",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="ignore",
    )

    host: str = Field("127.0.0.1", description="Address to serve on.", json_schema_extra=OPERATOR)
    port: int = Field(
        8000, ge=0, le=65535, description="Port to serve on; 0 takes a free one.", json_schema_extra=OPERATOR
    )
    workers: str = Field(
        "1",
        description="Processes that serve the address, 1 to 64, or `auto`: one for each core. Each has the limits "
        "for itself.",
    )
    store: SecretStr = Field(
        SecretStr("embedded"), description="`embedded`, or the mongodb:// or mongodb+srv:// URI of a replica set."
    )
    data_dir: Path = Field(Path(".recalld"), description="Directory of the embedded store.", json_schema_extra=OPERATOR)
    store_key: SecretStr = Field(
        SecretStr(""),
        description="Key of an encrypted embedded store: 64 hexadecimal digits; empty: none. It needs "
        "`scripts/extra encryption`.",
    )
    store_key_file: str = Field(
        "",
        description="File with the key of an encrypted embedded store, in place of RECALLD_STORE_KEY; empty: none.",
        json_schema_extra=OPERATOR,
    )
    erasure_key: SecretStr = Field(
        SecretStr(""),
        description="Secret that seals the marks of erased users (tombstones): at least 32 characters, the same "
        "for all processes of a store; empty: the file `erasure.key` in the data directory.",
    )
    auth: Literal["on", "off"] = Field(
        "on",
        description="`on`: requests need an API key from the first key on, and until then come from this machine "
        "alone. `off`: nobody needs a key; all are tenant `default`.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which the service may be called with RECALLD_AUTH=off (the header `Host`), in "
        "addition to those of this machine: `recalld,memory.lan`. `*`: any name; then a web page that "
        "somebody here has open can call the service.",
        json_schema_extra=OPERATOR,
    )
    cors_origins: str = Field(
        "",
        description="Origins of the web pages that may call the service, such as `https://app.example`, separated "
        "by commas; `*`: any page, with an API key; empty: no page of another site.",
    )
    metrics: Literal["open", "admin", "off"] = Field(
        "open",
        description="Who reads `/metrics`. `open`: anybody. `admin`: an admin key without bindings. `off`: nobody "
        "(404).",
    )
    docs: Literal["open", "off"] = Field("open", description="`off`: `/docs` and `/openapi.json` are not served (404).")
    console: Literal["on", "off"] = Field("on", description="`off`: `/console` is not served (404).")
    mcp_instructions: Literal["on", "off"] = Field(
        "off",
        description="`on`: models may store, change and delete rules over MCP: instructions and pinned memories. "
        "They are in every prompt, and a web page that a model reads could plant one.",
    )
    public_url: str = Field(
        "",
        pattern=r"^(https?://[^\s@/?#]+)?$",
        description="Address by which clients reach the service, such as `https://memory.example.com`; empty: as "
        "the request says. Clients that log in with OpenID Connect compare it.",
    )
    trusted_proxies: str = Field(
        "",
        description="Addresses or networks of reverse proxies, separated by commas. `X-Forwarded-For` and "
        "`X-Forwarded-Proto` are believed from these alone; empty: from nobody.",
        json_schema_extra=OPERATOR,
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe lines that are logged: with `warning` there are warnings and errors."
    )
    cache_bytes: int = Field(
        256 << 20,
        ge=1 << 20,
        description="Bytes of main memory for copies of what was searched lately, of all workers together.",
    )
    disk_reserve_bytes: int = Field(
        16 << 20,
        ge=0,
        description="Bytes of the disk that the embedded store keeps back, so that records can be deleted when "
        "the disk is full; new data are refused (503) unless as many bytes again are free. An erasure "
        "then waits for room for a copy of the database. 0: nothing is kept back.",
    )
    reranker: str = Field(
        "",
        description="Model that sorts the best hits of a hybrid search again: the folder of an ONNX "
        "cross-encoder, or the address of a `/rerank` endpoint; empty: none.",
        json_schema_extra=OPERATOR,
    )
    limits: LimitSettings = LimitSettings()
    quotas: QuotaSettings = QuotaSettings()
    secrets: SecretSettings = SecretSettings()
    connections: ConnectionSettings = ConnectionSettings()
    changes: ChangeSettings = ChangeSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()
    llm: LLMSettings = LLMSettings()
    jobs: JobSettings = JobSettings()
    reflection: ReflectionSettings = ReflectionSettings()
    procedures: ProcedureSettings = ProcedureSettings()
    retention: RetentionSettings = RetentionSettings()
    mongodb: MongodbSettings = MongodbSettings()
    oidc: OidcSettings = OidcSettings()

    @field_validator("workers")
    @classmethod
    def _number(cls, given: str) -> str:
        if given != "auto" and not (given.isdecimal() and 1 <= int(given) <= MOST_WORKERS):
            raise ValueError(f"It must be a number from 1 to {MOST_WORKERS}, or `auto`")
        return given

    @field_validator("erasure_key")
    @classmethod
    def _long_enough(cls, key: SecretStr) -> SecretStr:
        if 0 < len(key.get_secret_value()) < 32:
            raise ValueError("It must have at least 32 characters")
        return key

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: str) -> str:
        for proxy in filter(None, map(str.strip, proxies.split(","))):
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"{without_secrets(proxy)!r} is no address or network, such as 10.0.0.7 or 10.0.0.0/24"
                ) from None
        return proxies

    @field_validator("reranker")
    @classmethod
    def _without_password(cls, reranker: str) -> str:
        if reranker.startswith(("http://", "https://")) and not re.fullmatch(r"https?://[^\s@]+", reranker):
            raise ValueError("An address holds neither spaces nor a password: the key is RECALLD_RERANK_API_KEY")
        return reranker

    @field_validator("cors_origins")
    @classmethod
    def _of_pages(cls, given: str) -> str:
        origins = _list(given)
        if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in origins):
            raise ValueError("An origin is a scheme and a host, with a port where it has one: https://app.example")
        if "*" in origins and len(origins) > 1:
            raise ValueError("`*` stands alone: it allows every origin")
        return given

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, given: str) -> str:
        if not all(re.fullmatch(r"\*|[A-Za-z0-9._-]+", host) for host in _list(given)):
            raise ValueError("A host is a name, without scheme and port: memory.example")
        return given

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The hosts of `allowed_hosts`, in lower case."""
        return frozenset(map(str.lower, _list(self.allowed_hosts)))

    @cached_property
    def origins(self) -> frozenset[str]:
        return frozenset(_list(self.cors_origins))

    @property
    def worker_count(self) -> int:
        """How many processes serve the address."""
        return min(MOST_WORKERS, usable_cores()) if self.workers == "auto" else int(self.workers)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host.strip("[]"))


def describe() -> list[tuple[str, str, str]]:
    """(environment variable, default, description) of every setting."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, SettingGroup):
            rows += [
                (f"RECALLD_{name}_{inner}".upper(), str(f.default), f.description or "")
                for inner, f in nested.model_fields.items()
            ]
        else:
            rows.append((f"RECALLD_{name}".upper(), _shown(field.default), field.description or ""))
    return rows


FIRST = (
    "RECALLD_HOST",
    "RECALLD_PORT",
    "RECALLD_DATA_DIR",
    "RECALLD_STORE",
    "RECALLD_WORKERS",
    "RECALLD_AUTH",
    "RECALLD_PUBLIC_URL",
    "RECALLD_LLM_BASE_URL",
    "RECALLD_LLM_API_KEY",
    "RECALLD_LLM_MODEL",
)
"""The settings to know: where the service listens and stores, who may call it, and the model that it learns by."""
SUBJECTS = {
    "limits": "Limits of requests",
    "quotas": "Quotas of each tenant",
    "secrets": "Secrets and personal data",
    "connections": "Connections",
    "changes": "Changes",
    "embedding": "Embedding",
    "rerank": "Reranking",
    "llm": "The language model",
    "jobs": "Background work",
    "reflection": "Reflection",
    "procedures": "Procedures",
    "retention": "How long things are kept",
    "mongodb": "MongoDB",
    "oidc": "OpenID Connect",
}


def by_subject() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Returns the rows of `describe()` as people read them: the ten to know, then the others by subject."""
    rows = {row[0]: row for row in describe()}
    by_subject: dict[str, list[tuple[str, str, str]]] = {"The ten to know": [rows.pop(name) for name in FIRST]}
    for name, row in rows.items():
        group = name.removeprefix(_PREFIX).lower().partition("_")[0]
        by_subject.setdefault(SUBJECTS.get(group, "The service"), []).append(row)
    return list(by_subject.items())


@shown
class SettingInForce(TypedDict):
    """A setting of the process that answers."""

    name: Annotated[str, Field(description="Its environment variable.", examples=["RECALLD_DOCS"])]
    value: Annotated[str, Field(description="`set` for one that is not shown and differs from the default.")]
    default: str
    changed: Annotated[bool, Field(description="Whether the value differs from the default.")]
    secret: Annotated[
        bool,
        Field(
            description="Whether its value is not shown: a secret, or, to a caller with a key, an address or path "
            "of the operator's."
        ),
    ]
    description: str


def in_force(settings: Settings, *, operator: bool) -> list[SettingInForce]:
    """Returns every setting with its value. The value of a secret is `set` where it differs from the default, and to
    others than the operator of this machine so is what concerns the operator alone."""
    rows = list[SettingInForce]()
    for name, default, description in describe():
        path = name.removeprefix(_PREFIX).lower()
        given, field = _setting(settings, path)
        secret = isinstance(given, SecretStr) or (field.json_schema_extra == OPERATOR and not operator)
        changed = _shown(given) != default
        value = ("set" if changed else default) if secret else without_secrets(str(given))
        rows.append(
            {
                "name": name,
                "value": value,
                "default": default,
                "changed": changed,
                "secret": secret,
                "description": description,
            }
        )
    return rows


def _setting(settings: Settings, path: str) -> tuple[object, FieldInfo]:
    """Returns the value and the declaration of a setting by its variable, such as `data_dir` or `llm_base_url`."""
    if path in Settings.model_fields:
        return getattr(settings, path), Settings.model_fields[path]
    group, _, name = path.partition("_")
    return getattr(getattr(settings, group), name), type(getattr(settings, group)).model_fields[name]


def _shown(default: object) -> str:
    return default.get_secret_value() if isinstance(default, SecretStr) else str(default)


def unknown_variables() -> list[str]:
    """Returns a sentence for each `RECALLD_…` of the environment and of `.env` that is no setting, by name. Values
    are not told: they may be secrets."""
    file = Path(str(Settings.model_config["env_file"]))
    in_file = dotenv_values(file) if file.is_file() else {}
    return _unknown(os.environ) + _unknown(in_file, f" in {file}")


def _unknown(given: Mapping[str, str | None], where: str = "") -> list[str]:
    known = {*_names(), *_NO_SETTINGS, *(name.upper() for name in Settings.model_fields)}
    upper = sorted(name.upper() for name in given)
    ours = [name.removeprefix(_PREFIX) for name in upper if name.startswith(_PREFIX)]
    return [_no_setting(name, where) for name in ours if name not in known and not name.startswith("TEST_")]


def _names() -> list[str]:
    return [name.removeprefix(_PREFIX) for name, _, _ in describe()]


def _no_setting(name: str, where: str = "") -> str:
    hint = did_you_mean(name, _names(), "").replace("mean ", f"mean {_PREFIX}")
    return f"{_PREFIX}{name}{where} is no setting{hint or ': `recalld serve --help` lists them all.'}"


def explain(error: ValidationError | SettingsError) -> list[str]:
    """What is wrong with the settings, one sentence for each, by the names that they are set by."""
    if isinstance(error, SettingsError):
        return [str(error)]
    return [_wrong("_".join(map(str, fault["loc"])).upper(), fault) for fault in error.errors()]


def _wrong(name: str, fault: ErrorDetails) -> str:
    if fault["type"] == "extra_forbidden":
        return _no_setting(name)
    given = fault["input"]
    value = "a secret" if name.endswith("_KEY") else repr(without_secrets(given) if isinstance(given, str) else given)
    rule = in_words(fault) if fault["type"] == "value_error" else f"it {in_words(fault)}"
    return f"{_PREFIX}{name} is {value}: {rule}."
