"""Prefixed, time-sortable ids: for example `mem_` and the 32 hex digits of a UUIDv7."""

import re

import uuid_utils

IDENTIFIER = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""Matches the ids that callers may give to agents, users, tenants and records."""


def new_id(prefix: str) -> str:
    """Returns a new id: the prefix, `_` and a UUIDv7."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"
