"""`If-Match`: makes any write conditional on the version that the caller knows (RFC 9110 §13.1.1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.errors import PreconditionFailed

_TAG = re.compile(r'(W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Precondition:
    header: str | None

    def check(self, doc: Mapping[str, Any] | None) -> None:
        """Raises PreconditionFailed when the document is not at a version named, or is not there."""
        if self.header is None or (self.header.strip() == "*" and doc is not None):
            return
        tags = _TAG.findall(self.header) or [("", self.header.strip())]
        named = [version for weak, version in tags if not weak]  # a weak one matches nothing here
        if doc is None or str(doc["version"]) not in named:
            raise PreconditionFailed()


def etag(doc: Mapping[str, Any]) -> str:
    return f'"{doc["version"]}"'
