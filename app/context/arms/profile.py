"""Who the user is: each entry of the profile."""

from collections.abc import Iterator

import orjson

from app.context.items import Arm, Asked, Item
from app.profiles.models import USERS
from app.storage.collection import Doc
from app.storage.repository import Repository


async def gather(asked: Asked) -> list[Item]:
    if asked.body.user_id is None:
        return []
    user = await Repository(asked.held.store, asked.scope, USERS).find_one(asked.body.user_id)
    return (
        [] if user is None else [Item(f"profile:{name}", "profile", text) for name, text in _entries(user["profile"])]
    )


def _entries(profile: Doc) -> Iterator[tuple[str, str]]:
    """Lists and objects entry by entry, so that a long one does not push the rest out. Callers' keys are no names."""
    for name, value in profile.items():
        if isinstance(value, list):
            yield from ((f"{name}/{index}", f"{name}: {one}") for index, one in enumerate(value))
        elif isinstance(value, dict):
            entries = enumerate(value.items())
            yield from ((f"{name}/{index}", f"{name}: {key}: {_plain(one)}") for index, (key, one) in entries)
        elif value is not None:
            yield name, f"{name}: {value}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


PROFILE = Arm("profile", "Profile", 0.15, {"general": 40, "recall": 40, "execute": 40}, gather)
