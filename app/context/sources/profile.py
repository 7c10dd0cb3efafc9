"""Source of the user's profile; the entries nearest to the query come first."""

from collections import Counter
from collections.abc import Iterator

import orjson

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.profiles.models import USERS
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.text import term_ids, terms


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the profile; none if there is no user."""
    if request.body.user_id is None:
        return []
    user = await Repository(request.resources.store, request.scope, USERS).find_one(request.body.user_id)
    found = (
        []
        if user is None
        else [Candidate(f"profile:{name}", "profile", text) for name, text in _entries(user["profile"])]
    )
    return _ranked(found, request.body.query)


def _ranked(items: list[Candidate], query: str) -> list[Candidate]:
    """Sorts the entries.

    Single values (name, home, …) come first, since they are few, then entries of lists by the words that they share
    with the query. Rare words weigh more.
    """
    wanted = set(term_ids(terms(query)).tolist())
    resources = [set(term_ids(terms(item.text)).tolist()) & wanted for item in items]
    often = Counter(term for each in resources for term in each)
    weight = [sum(1 / often[term] for term in each) for each in resources]
    order = sorted(range(len(items)), key=lambda at: ("/" in items[at].id, -weight[at], at))
    return [items[at] for at in order]


def _entries(profile: Doc) -> Iterator[tuple[str, str]]:
    """Yields (id, text) of each entry, so that a long list does not displace the rest.

    Ids contain no keys of callers.
    """
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


PROFILE = ContextSource("profile", "Profile", gather, default_limit=40, share=0.12)
