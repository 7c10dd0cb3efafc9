"""Prefixed, time-sortable ids: `mem_` and the 32 hex digits of a UUIDv7."""

import re

import uuid_utils

IDENTIFIER = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""What callers may name agents, users, tenants and records."""


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid_utils.uuid7().hex}"
