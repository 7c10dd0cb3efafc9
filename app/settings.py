"""Every setting, described once: the help of the commands and the docs are made from this. They are read from
`RECALLD_…` or `.env`. The groups of background work are here; `app/setting_groups.py` has the others."""

import os
import re
from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from typing_extensions import TypedDict

from app import setting_groups as groups
from app.core.schemas import shown
from app.errors import did_you_mean
from app.setting_groups import MOST_WORKERS, OPERATOR, SettingGroup, is_loopback, without_secrets
from app.validation_words import in_words

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@?#,*]+")
_PREFIX = "RECALLD_"
_NO_SETTINGS = frozenset({"URL", "KEY", "API_KEY", "AGENT", "USER", "MIGRATE_TO", "STRESS"})
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
        description="Procedures learned from one user's episodes serve the agent's other users once nothing in them "
        "names a user. Off: they stay with their user.",
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
        description="Processes that serve the address, 1 to 64, or `auto`: one for each core that the service may use. "
        "Each has the limits of `RECALLD_LIMITS_…` and `RECALLD_CONNECTIONS_…` for itself.",
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
        description="Secret without which the store does not tell who was erased: it seals the marks of erased "
        "users (tombstones). At least 32 characters, the same for all processes of a store; empty: the "
        "file `erasure.key` in the data directory, which is made when the first user is erased.",
    )
    auth: Literal["on", "off"] = Field(
        "on",
        description="`on`: requests need an API key from the first key on, and until then come from this machine "
        "alone. `off`: whoever calls the address by one of the names of RECALLD_ALLOWED_HOSTS is served"
        " without a key, as tenant `default`.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which the service may be called while authentication is off (the header `Host`), "
        "beside those of this machine, separated by commas: `recalld,memory.lan`. On an address that is"
        " not a loopback one IP addresses are taken, too. `*`: any name; then a web page that somebody "
        "here has open can call the service by a name of its own.",
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
        description="`on`: models may store, change and delete rules over MCP: memories of type `instruction` and"
        " pinned ones. They stand in every prompt, so that a web page that a model reads could make it store one that"
        " all later prompts follow, or delete one.",
    )
    public_url: str = Field(
        "",
        pattern=r"^(https?://[^\s@/?#]+)?$",
        description="Address by which clients reach the service, without a path, such as "
        "`https://memory.example.com`; empty: as the request says. Clients that log in with OpenID "
        "Connect compare it with the one that they call.",
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
        description="Bytes of main memory for copies of what was searched lately; what has no room there is read "
        "from the store when it is searched again.",
    )
    disk_reserve_bytes: int = Field(
        16 << 20,
        ge=0,
        description="Bytes of the disk that the embedded store keeps for deletions, in the file "
        "`recalld.db-reserve`; new data are refused (503) unless as many bytes again are free. So "
        "records can be deleted and users erased when another program has filled the disk. An erasure "
        "ends by writing the database anew, without the bytes of the user: on a full disk this last "
        "step waits for room, unless the reserve is as large as the database. 0: nothing is kept.",
    )
    reranker: str = Field(
        "",
        description="Model that sorts the best hits of a hybrid search anew: the folder of an ONNX cross-encoder, "
        "or the http(s) address of a `/rerank` endpoint; empty: none.",
        json_schema_extra=OPERATOR,
    )
    limits: groups.LimitSettings = groups.LimitSettings()
    quotas: groups.QuotaSettings = groups.QuotaSettings()
    secrets: groups.SecretSettings = groups.SecretSettings()
    connections: groups.ConnectionSettings = groups.ConnectionSettings()
    changes: groups.ChangeSettings = groups.ChangeSettings()
    embedding: groups.EmbeddingSettings = groups.EmbeddingSettings()
    rerank: groups.RerankSettings = groups.RerankSettings()
    llm: groups.LLMSettings = groups.LLMSettings()
    jobs: JobSettings = JobSettings()
    reflection: ReflectionSettings = ReflectionSettings()
    procedures: ProcedureSettings = ProcedureSettings()
    retention: RetentionSettings = RetentionSettings()
    mongodb: groups.MongodbSettings = groups.MongodbSettings()
    oidc: groups.OidcSettings = groups.OidcSettings()

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
        """The origins of `cors_origins`."""
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
        bool, Field(description="Whether its value is not shown: a secret, or an address or path of the operator's.")
    ]
    description: str


def in_force(settings: Settings) -> list[SettingInForce]:
    """Returns every setting with its value. The value of a secret, and of what concerns the operator alone, is `set`
    where it differs from the default."""
    rows = list[SettingInForce]()
    for name, default, description in describe():
        path = name.removeprefix(_PREFIX).lower()
        given, field = _setting(settings, path)
        secret = isinstance(given, SecretStr) or field.json_schema_extra == OPERATOR
        changed = _shown(given) != default
        value = ("set" if changed else default) if secret else str(given)
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
