"""How the generated methods reach the service."""

import os
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = 90.0
"""Seconds: more than the service gives one call of its language model (`RECALLD_LLM_TIMEOUT_SECONDS`, 60)."""


class Problem(Exception):
    """What the service answers instead of doing it (RFC 9457). `code` is stable; `errors` name the fields at fault."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: float | None) -> None:
        self.status, self.code = status, str(body.get("code", ""))
        self.detail = str(body.get("detail", f"The service answered {status}."))
        self.errors: list[dict[str, str]] = body.get("errors", [])
        self.request_id, self.retry_after = body.get("request_id"), retry_after
        super().__init__(f"{status} {self.code}: {self.detail}")


def path(template: str, *names: Any) -> str:
    return template.format(*(quote(str(name), safe="") for name in names))


class _Base:
    @staticmethod
    def _asked(
        method: str, where: str, query: dict[str, Any] | None, body: Any, headers: dict[str, Any] | None
    ) -> dict[str, Any]:
        params = {name: _worded(value) for name, value in (query or {}).items() if value is not None}
        sent = {name: _tagged(value) for name, value in (headers or {}).items() if value is not None}
        return {"method": method, "url": where, "params": params, "json": body, "headers": sent}

    @staticmethod
    def _read(response: httpx.Response) -> Any:
        kind = response.headers.get("content-type", "").split(";")[0].strip()
        is_json = kind == "application/json" or kind.endswith("+json")
        if response.is_error:
            body = response.json() if is_json else {}
            after = response.headers.get("retry-after", "")
            raise Problem(response.status_code, body, float(after) if after.isdigit() else None)
        if not response.content:
            return None
        return response.json() if is_json else response.text


def _worded(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _tagged(value: str | int) -> str:
    """A record's `version` as `If-Match` wants it."""
    return f'"{value}"' if isinstance(value, int) else value


def _settings(url: str | None, key: str | None) -> dict[str, Any]:
    key = key or os.environ.get("RECALLD_KEY")
    return {
        "base_url": url or os.environ.get("RECALLD_URL", DEFAULT_URL),
        "headers": {"Authorization": f"Bearer {key}"} if key else {},
    }


class SyncBase(_Base):
    """`http`: a client of your own, with its own retries, proxies or tests' transport; it stays open."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        http: httpx.Client | None = None,
    ) -> None:
        self._owned = http is None
        self._http = http or httpx.Client(**_settings(url, key), timeout=timeout)

    def _call(self, method: str, where: str, query: Any = None, body: Any = None, headers: Any = None) -> Any:
        return self._read(self._http.request(**self._asked(method, where, query, body, headers)))

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncBase(_Base):
    """`http`: a client of your own, with its own retries, proxies or tests' transport; it stays open."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._owned = http is None
        self._http = http or httpx.AsyncClient(**_settings(url, key), timeout=timeout)

    async def _call(self, method: str, where: str, query: Any = None, body: Any = None, headers: Any = None) -> Any:
        return self._read(await self._http.request(**self._asked(method, where, query, body, headers)))

    async def aclose(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()
