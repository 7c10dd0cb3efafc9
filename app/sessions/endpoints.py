"""Endpoints of sessions and their messages."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.strict import Answer, Cursor, InListing, Limit, RecordQuery, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.schemas import MAX_SEQ, Identifier, Page
from app.jobs.queue import Operation
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.schemas import Deleted
from app.sessions import schemas
from app.sessions.repository import SessionRepository
from app.sessions.service import MAX_LAST, MessageEdits, SessionService, Window, Windows
from app.writes.executor import InPrecondition, Writer


async def session_service(request: Request) -> SessionService:
    """Creates the session service of the request's caller."""
    resources, principal = get_caller(request)
    sessions = SessionRepository(resources.store, principal.scope)
    memories = MemoryRepository(resources.store, principal.scope)
    learns = resources.llm is not None
    return SessionService(sessions, memories, Embeddings(resources.embedder), resources.clock, learns=learns)


async def windows(request: Request) -> Windows:
    """Creates the message windows of the request's caller."""
    resources, principal = get_caller(request)
    return Windows(SessionRepository(resources.store, principal.scope), resources.clock)


async def message_edits(request: Request) -> MessageEdits:
    """Creates the service that edits and deletes messages of the request's caller."""
    resources, principal = get_caller(request)
    sessions = SessionRepository(resources.store, principal.scope)
    memories = MemoryRepository(resources.store, principal.scope)
    embeddings = Embeddings(resources.embedder)
    return MessageEdits(sessions, memories, embeddings, resources.clock)


Sessions = Annotated[SessionService, Depends(session_service)]
InWindows = Annotated[Windows, Depends(windows)]


router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)

SessionId = Annotated[Identifier, Path(examples=["chat-1"])]
Edits = Annotated[MessageEdits, Depends(message_edits)]
MessageNumber = Annotated[int, Path(ge=0, le=MAX_SEQ, description="The number of the message.")]
Seq = Annotated[int | None, Query(ge=0, le=MAX_SEQ)]
Tokens = Annotated[int | None, Query(ge=0, le=10_000_000, description="At most so many o200k tokens.")]


@router.post("", status_code=201, responses=problems(404, 409, 412, *BODY))
async def create_session(
    body: schemas.SessionCreate, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Session]:
    """Begin a conversation. Appending messages under a new id does the same."""
    return await write(lambda: sessions.create(body, precondition))


class SessionQuery(RecordQuery):
    """The filters of a list of sessions in the query string."""

    status: schemas.SessionStatus | None = None


@router.get("", responses=problems())
async def list_sessions(
    sessions: Sessions,
    listing: InListing,
    query: Annotated[SessionQuery, Query()],
) -> Answer[Page[schemas.Session]]:
    """List the sessions, newest first."""
    return answer(await sessions.page(query.asked(schemas.SESSION_FIELDS), listing))


@router.get("/{session_id}", responses=problems(404))
async def get_session(session_id: SessionId, sessions: Sessions) -> Answer[schemas.Session]:
    """Get one session, without its messages."""
    session = await sessions.get(session_id)
    return answer(session, {"ETag": etag(session)})


@router.patch("/{session_id}", responses=problems(404, 409, 412, *BODY))
async def update_session(
    session_id: SessionId, body: schemas.SessionPatch, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Session]:
    """Change a session: what is absent stays, null clears."""
    return await write(lambda: sessions.patch(session_id, body, precondition))


@router.delete("/{session_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_session(
    session_id: SessionId, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Response:
    """Delete a session and its messages. The long-term memories made of it stay."""
    return await write(lambda: sessions.delete(session_id, precondition))


@router.post(
    "/{session_id}/messages",
    status_code=201,
    responses=problems(404, 409, 412, *BODY),
)
async def append_messages(
    session_id: SessionId, body: schemas.MessagesAppend, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Appended]:
    """Append messages in order, all or none. A new session is made on the way; an ended one answers 409."""
    return await write(lambda: sessions.append(session_id, body, precondition))


@router.get("/{session_id}/messages", responses=problems(404))
async def list_messages(
    session_id: SessionId,
    windows: InWindows,
    limit: Limit = 20,
    cursor: Cursor = None,
    last: Annotated[int | None, Query(ge=1, le=MAX_LAST, description="The last so many.")] = None,
    max_tokens: Tokens = None,
    before_seq: Seq = None,
    after_seq: Seq = None,
) -> Answer[Page[schemas.Message]]:
    """List the messages, oldest first: paged onwards, or a window on the end by `last` and `max_tokens`."""
    window = Window(last, max_tokens, before_seq, after_seq)
    return answer(await windows.messages(session_id, window, limit, cursor))


@router.delete("/{session_id}/messages", responses=problems(404, 412))
async def clear_messages(
    session_id: SessionId, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[Deleted]:
    """Delete the messages of a session: short-term memory is emptied, long-term memory stays."""
    return await write(lambda: sessions.clear(session_id, precondition))


@router.patch("/{session_id}/messages/{seq}", responses=problems(404, 409, 412, *BODY))
async def update_message(
    session_id: SessionId,
    seq: MessageNumber,
    body: schemas.MessagePatch,
    edits: Edits,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[schemas.Message]:
    """Edit a message: what is absent stays, null clears. Its memory says the new text, and what was learned from it is
    judged again. `If-Match` names the version of the session."""
    return await write(lambda: edits.edit(session_id, seq, body, precondition))


@router.delete(
    "/{session_id}/messages/{seq}", status_code=204, response_class=Response, responses=problems(404, 409, 412)
)
async def delete_message(
    session_id: SessionId, seq: MessageNumber, edits: Edits, write: Writer, precondition: InPrecondition
) -> Response:
    """Delete a message. A tombstone keeps its number; its memory goes, and what was learned from it is judged again.
    `If-Match` names the version of the session."""
    return await write(lambda: edits.delete(session_id, seq, precondition))


@router.get("/{session_id}/context", responses=problems(404))
async def get_session_context(
    session_id: SessionId,
    windows: InWindows,
    max_messages: Annotated[int, Query(ge=1, le=MAX_LAST)] = 10,
    max_tokens: Tokens = None,
) -> Answer[schemas.SessionContext]:
    """Get the last messages as text for a prompt, within a token budget."""
    return answer(await windows.context(session_id, max_messages, max_tokens))


@router.post("/{session_id}/end", status_code=202, responses=problems(404, 409, 412))
async def end_session(
    session_id: SessionId, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[Operation]:
    """End the conversation: it takes no more messages. The answer is the operation that learns from it: with a language
    model memories, profile, experience and a summary; without one what can be done without. Ending it twice is fine."""
    return await write(lambda: sessions.end(session_id, precondition))


@router.post("/{session_id}/reopen", responses=problems(404, 409, 412))
async def reopen_session(
    session_id: SessionId, sessions: Sessions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Session]:
    """Make an ended session take messages again. Reopening an active one changes nothing."""
    return await write(lambda: sessions.reopen(session_id, precondition))


@router.get("/{session_id}/stats", responses=problems(404))
async def get_session_stats(session_id: SessionId, sessions: Sessions) -> Answer[schemas.SessionStats]:
    """Count the messages by role, their tokens and the memories formed, with first and last message."""
    return answer(await sessions.stats(session_id))
