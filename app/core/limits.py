"""The sizes of what callers send and store. They are part of the contract, which clients are written for; the limit of
a whole body is a setting (`RECALLD_LIMITS_BODY_BYTES`)."""

from dataclasses import dataclass

OBJECT_BYTES = 256 << 10
"""Largest context of a task, or profile, as JSON, after all patches: a body alone may be small each time."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a JSON body may hold."""

    text_chars: int = 32_000
    """Longest text of a memory or message. What is longer is a document, and sent as one."""
    batch_items: int = 500
    """Most items in a batch, or messages in one append."""
    json_depth: int = 32
    """Deepest nesting."""
    json_values: int = 250_000
    """Most values, of all levels together: 4 MiB of `[[],[],…` would be two million objects."""
    object_keys: int = 256
    """Most keys in a metadata or context object."""


BODY_LIMITS = BodyLimits()
