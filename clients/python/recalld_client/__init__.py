"""Recalld, memory for AI agents.

`Recalld` and `AsyncRecalld` are the service; `.user("ada")` is what it knows of one user; `wrap_openai` and
`wrap_anthropic` give a client of a model a memory. Bodies and answers are typed dicts, named in `models`.
"""

from recalld_client import _generated as models
from recalld_client._async.client import AsyncRecalld
from recalld_client._async.documents import AsyncUserDocuments
from recalld_client._async.facts import AsyncUserFacts
from recalld_client._async.files import AsyncUserFiles
from recalld_client._async.profile import AsyncUserProfile
from recalld_client._async.session import AsyncUserSession
from recalld_client._async.user import AsyncUserMemory
from recalld_client._errors import InvalidUser, Problem, RecalldError, Unreachable
from recalld_client._events import MemoryEvent
from recalld_client._file_texts import FileRefused
from recalld_client._messages import Added, Hit
from recalld_client._requests import NO_RETRY, Retry
from recalld_client._sync.client import Recalld
from recalld_client._sync.documents import UserDocuments
from recalld_client._sync.facts import UserFacts
from recalld_client._sync.files import UserFiles
from recalld_client._sync.profile import UserProfile
from recalld_client._sync.session import UserSession
from recalld_client._sync.user import UserMemory
from recalld_client._wrap import wrap_anthropic, wrap_openai

__all__ = [
    "NO_RETRY",
    "Added",
    "AsyncRecalld",
    "AsyncUserDocuments",
    "AsyncUserFacts",
    "AsyncUserFiles",
    "AsyncUserMemory",
    "AsyncUserProfile",
    "AsyncUserSession",
    "FileRefused",
    "Hit",
    "InvalidUser",
    "MemoryEvent",
    "Problem",
    "Recalld",
    "RecalldError",
    "Retry",
    "Unreachable",
    "UserDocuments",
    "UserFacts",
    "UserFiles",
    "UserMemory",
    "UserProfile",
    "UserSession",
    "models",
    "wrap_anthropic",
    "wrap_openai",
]
