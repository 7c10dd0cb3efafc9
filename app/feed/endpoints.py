"""The HTTP endpoint of the change feed."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import JsonValue
from typing_extensions import TypeAliasType

from app.api.errors import problems
from app.api.strict import StrictRoute, answer
from app.auth.dependencies import get_caller, header, still_admitted
from app.core.schemas import Identifier
from app.errors import Busy, did_you_mean, invalid
from app.feed.service import NOW, PAGE_EXAMPLE, ChangedKind, ChangeFeed, ChangePage, RecordChangeType, Wanted

ChangeFormat = TypeAliasType("ChangeFormat", Literal["json", "events"])
ChangeInclude = TypeAliasType("ChangeInclude", Literal["record"])
KINDS: tuple[str, ...] = ChangedKind.__value__.__args__
TYPES: tuple[str, ...] = RecordChangeType.__value__.__args__


EVENTS = "text/event-stream"
ChangeCursor = Annotated[
    str | None,
    Query(max_length=512, description=f"`cursor` of a change or a page, or `{NOW}`; absent: from the oldest."),
]
_MANY = "separated by commas; absent: all."


def _words_schema(words: Sequence[str]) -> dict[str, JsonValue]:
    word = f"({'|'.join(words)})"
    return {"pattern": f"^{word}(,{word})*$"}


def _read_words(name: str, given: str | None, known: Sequence[str]) -> tuple[str, ...]:
    if given is None:
        return ()
    words = tuple(dict.fromkeys(given.split(",")))
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known) or f": use {', '.join(known)}, separated by commas"
            raise invalid(f"/query/{name}", f"names something unknown{hint}")
    return words


router = APIRouter(prefix="/v1/changes", tags=["changes"], route_class=StrictRoute)


@router.get(
    "",
    response_model=ChangePage,  # or a stream
    responses={
        **problems(409, 410),
        200: {
            "content": {
                "application/json": {"example": PAGE_EXAMPLE},
                EVENTS: {  # no schema: OpenAPI 3.1 has none for the events of a stream
                    "example": 'id: q0H8bWd3tW9bMTcsIjVmMWMwYTJlOWI3ZCJd\ndata: {"kind": "memory", …}\n\n',
                },
            }
        },
    },
)
async def list_changes(
    request: Request,
    after: ChangeCursor = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most changes on a page. A stream has no limit.")] = 100,
    format: Annotated[
        ChangeFormat | None,
        Query(description="`events`: a stream; `json`: a page; absent: as the header Accept says, else a page."),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(max_length=512, description="The last `id` of a stream, to go on behind it; before `after`.")
    ] = None,
    agent_id: Annotated[Identifier | None, Query(description="Changes of records of exactly this agent.")] = None,
    user_id: Annotated[Identifier | None, Query(description="Changes of records of exactly this user.")] = None,
    kind: Annotated[
        str | None,
        Query(max_length=256, description=f"Kinds of record, {_MANY}", json_schema_extra=_words_schema(KINDS)),
    ] = None,
    type: Annotated[
        str | None,
        Query(max_length=64, description=f"Types of change, {_MANY}", json_schema_extra=_words_schema(TYPES)),
    ] = None,
    include: Annotated[
        ChangeInclude | None, Query(description="`record`: each change comes with the record as it is now.")
    ] = None,
) -> Response:
    """List changes of records, the oldest first, as a page or, with `Accept: text/event-stream`, as a stream."""
    resources, principal = get_caller(request)
    kinds, types = _read_words("kind", kind, KINDS), _read_words("type", type, TYPES)
    wanted = Wanted(agent_id, user_id, kinds, types, records=include == "record")
    feed = ChangeFeed(resources.store, principal.scope, resources.clock)
    position = await feed.position(last_event_id or after)
    is_stream = format == "events" if format else EVENTS in (header(request, b"accept") or "").lower()
    if not is_stream:
        return answer(await feed.page(position, wanted, limit))
    if resources.store.change_log.watch.readers(principal.scope.tenant) >= resources.tuning.streams:
        raise Busy("Too many streams of changes are open.", retry_after=5)
    await feed.page(position, wanted, 1)  # a lost position is a problem, not a stream
    admitted = still_admitted(request)
    stream = feed.events(position, wanted, ending=lambda: resources.lifecycle.ends, allowed=admitted)
    return StreamingResponse(
        stream, media_type=EVENTS, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
