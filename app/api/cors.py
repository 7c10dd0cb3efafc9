"""Cross-origin requests: which web pages may call the service, and which headers of its answers they may read."""

import re
from collections.abc import Mapping, Set

Headers = list[tuple[bytes, bytes]]

METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED = b"ETag, Idempotency-Replayed, Retry-After, X-Request-ID"
KEPT_SECONDS = 600
"""How long a browser may keep the answer to a preflight: a change of the setting is seen after that."""

_EXPOSE = (b"access-control-expose-headers", EXPOSED)
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1024}")


class Cors:
    """The rule for the origins of the setting. With `*` every page may read what its key gives it, but a browser sends
    neither cookies nor other credentials of its own: that is for named origins."""

    def __init__(self, origins: Set[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = b"*" in self._origins

    def headers(self, origin: bytes | None) -> Headers:
        """Returns the headers that each answer gets. Caches learn that they depend on the origin."""
        if self._any:
            return [] if origin is None else [(b"access-control-allow-origin", b"*"), _EXPOSE]
        vary = (b"vary", b"Origin")
        if origin not in self._origins or origin is None:
            return [vary]
        allowed = (b"access-control-allow-origin", origin)
        return [vary, allowed, (b"access-control-allow-credentials", b"true"), _EXPOSE]

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Headers | None:
        """Returns the further headers of the answer to a preflight, or None if the request is none that may pass. A
        preflight carries no key: the request that follows it does."""
        origin = headers.get(b"origin")
        if method != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        if origin is None or not (self._any or origin in self._origins):
            return None
        asked = headers.get(b"access-control-request-headers", b"")
        named = [(b"access-control-allow-headers", asked)] if _NAMES.fullmatch(asked) else []
        kept = (b"access-control-max-age", b"%d" % KEPT_SECONDS)
        return [(b"access-control-allow-methods", METHODS), *named, kept]
