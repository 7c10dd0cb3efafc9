"""Prefixed, time-sortable ids: `mem_` and the 32 hex digits of a UUIDv7."""

import uuid_utils


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid_utils.uuid7().hex}"
