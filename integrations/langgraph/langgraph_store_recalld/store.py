"""The store. Each operation is a generator of calls, which `batch` makes and `abatch` awaits."""

from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from recalld_client import AsyncRecalld, Problem, Recalld, RecalldError

from langgraph_store_recalld.filters import check, matches, namespace_matches
from langgraph_store_recalld.layout import (
    Layout,
    UserLabel,
    found,
    is_item,
    item,
    memory_key,
    namespace_of,
    refreshed,
    tag,
    value_of,
)

PAGE = 100
MOST_HITS = 100
"""What one search returns at most. Items behind come by their age, without a score."""
MOST_PUTS = 100


class Call(NamedTuple):
    """A method of the client and its arguments."""

    method: str
    arguments: dict[str, Any]


Calls = Generator[Call, Any, Any]


class Steps:
    """Runs a generator of calls. Whoever makes a call sets `answer` or `error`, which goes into the generator."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.answer: Any = None
        self.error: RecalldError | None = None
        self.results: list[Result] = []

    def next(self) -> Call | None:
        """The next call; None at the end, when `results` are there."""
        error, self.error = self.error, None
        try:
            return self._calls.send(self.answer) if error is None else self._calls.throw(error)
        except StopIteration as done:
            self.results = done.value
            return None


class RecalldStore(BaseStore):
    """LangGraph's long-term memory in Recalld.

    memory, async_memory: the service, for the methods without and with `a`; made of RECALLD_URL and RECALLD_KEY where
    they are needed and not given. agent: whose memory it is. user_label: which label of a namespace is the user,
    default the first, as in `("ada", "memories")`; -1 is the last; a function gets the namespace; None means that no
    label is. fields: paths of a value that are searched, as in LangGraph's index, default its `content`, `text`,
    `memory` or `data`, else all of it. ttl: LangGraph's settings of the time that items live, in minutes.

    Raises Problem and Unreachable of the client, ValueError for a filter with an unknown operator.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Recalld | None = None,
        async_memory: AsyncRecalld | None = None,
        *,
        agent: str = "langgraph",
        user_label: UserLabel = 0,
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._sync, self._async = memory, async_memory
        self._layout = Layout(agent, user_label, fields)
        self.ttl_config = ttl
        self._now: Callable[[], datetime] = lambda: datetime.now(UTC)  # noqa: TID251 - the service's clock rules, this one only adds a ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads see what was there before the batch; of several writes of one item the last counts."""
        if self._sync is None:
            self._sync = Recalld()
        steps = Steps(self._run(list(ops)))
        while (call := steps.next()) is not None:
            try:
                steps.answer = getattr(self._sync, call.method)(**call.arguments)
            except RecalldError as error:
                steps.error = error
        return steps.results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`, on the event loop."""
        if self._async is None:
            self._async = AsyncRecalld()
        steps = Steps(self._run(list(ops)))
        while (call := steps.next()) is not None:
            try:
                steps.answer = await getattr(self._async, call.method)(**call.arguments)
            except RecalldError as error:
                steps.error = error
        return steps.results

    def _run(self, ops: list[Op]) -> Calls:
        results: list[Result] = [None] * len(ops)
        for index, op in enumerate(ops):
            if not isinstance(op, PutOp):
                results[index] = yield from self._read(op)
        puts = {(tuple(op.namespace), str(op.key)): op for op in ops if isinstance(op, PutOp)}
        yield from self._write([op for op in puts.values() if op.value is not None])
        for op in puts.values():
            if op.value is None:
                key = memory_key(tuple(op.namespace), str(op.key))
                yield Call("delete_memories", {**self._layout.owner(tuple(op.namespace)), "key": key})
        return results

    def _read(self, op: GetOp | SearchOp | ListNamespacesOp) -> Calls:
        if isinstance(op, GetOp):
            return (yield from self._get(op))
        if isinstance(op, SearchOp):
            return (yield from self._search(op))
        return (yield from self._list_namespaces(op))

    def _get(self, op: GetOp) -> Calls:
        namespace = tuple(op.namespace)
        where = {**self._layout.owner(namespace), "key": memory_key(namespace, str(op.key)), "limit": 1}
        kept = (yield Call("list_memories", where))["items"]
        if not kept:
            return None
        yield from self._refresh(kept, op.refresh_ttl)
        return item(kept[0])

    def _write(self, puts: list[PutOp]) -> Calls:
        now = self._now()
        memories = [self._layout.memory(op._replace(namespace=tuple(op.namespace)), now) for op in puts]
        for begin in range(0, len(memories), MOST_PUTS):
            yield Call("create_memories", {"body": {"items": memories[begin : begin + MOST_PUTS]}})

    def _search(self, op: SearchOp) -> Calls:
        """What the query finds, best first; then, where more is asked for, the others that match, newest first."""
        check(op.filter)
        prefix, end = tuple(op.namespace_prefix), op.offset + op.limit
        ranked: list[tuple[float | None, Any]] = []
        kept: list[Any] | None = None
        if op.query and op.query.strip():
            owners = [self._layout.prefix_owner(prefix)]
            if not self._layout.one_owner(prefix):  # a search needs the user, so it is made for each
                kept = yield from self._listed(prefix, op.filter, None)
                owners = [
                    dict(pairs) for pairs in {tuple(self._layout.owner(namespace_of(m)).items()): 0 for m in kept}
                ]
            for owner in owners:
                ranked += yield from self._hits(op, prefix, owner)
            ranked.sort(key=lambda pair: -(pair[0] or 0))
        if len(ranked) < end:
            if kept is None:
                kept = yield from self._listed(prefix, op.filter, None if ranked else end)
            ranked_ids = {memory["memory_id"] for _, memory in ranked}
            ranked += [(None, memory) for memory in kept if memory["memory_id"] not in ranked_ids]
        page = ranked[op.offset : end]
        yield from self._refresh([memory for _, memory in page], op.refresh_ttl)
        items: list[SearchItem] = [found(memory, score) for score, memory in page]
        return items

    def _hits(self, op: SearchOp, prefix: tuple[str, ...], owner: dict[str, str]) -> Calls:
        """What one search finds. Texts in the filter narrow it there, the rest of the filter here."""
        body: dict[str, Any] = {**owner, "query": op.query, "top_k": MOST_HITS, "tags": [tag("ix", prefix)]}
        body |= {"include_shared": False, "min_importance": 0, "min_score": 0}
        exact = {f"v:{name}": wanted for name, wanted in (op.filter or {}).items() if isinstance(wanted, str)}
        hits = (yield Call("search_memories", {"body": {**body, "metadata": exact} if exact else body}))["items"]
        return [(hit["score"], hit["memory"]) for hit in hits if matches(value_of(hit["memory"]), op.filter)]

    def _listed(self, prefix: tuple[str, ...], wanted: Any, most: int | None) -> Calls:
        """The memories below a prefix that match, newest first, `most` at most."""
        kept: list[Any] = []
        where: dict[str, Any] = {**self._layout.prefix_owner(prefix), "tag": tag("ns", prefix), "limit": PAGE}
        while most is None or len(kept) < most:
            page = yield Call("list_memories", where)
            kept += [one for one in page["items"] if is_item(one) and matches(value_of(one), wanted)]
            where = {**where, "cursor": page.get("next_cursor")}
            if where["cursor"] is None:
                break
        return kept

    def _list_namespaces(self, op: ListNamespacesOp) -> Calls:
        conditions = op.match_conditions or ()
        fixed = next((c.path for c in conditions if c.match_type == "prefix" and "*" not in c.path), ())
        prefix = tuple(str(label) for label in fixed)
        kept = yield from self._listed(prefix, None, None)
        spaces = {namespace_of(one) for one in kept}
        chosen = {space[: op.max_depth] for space in spaces if all(namespace_matches(space, c) for c in conditions)}
        return sorted(chosen)[op.offset : op.offset + op.limit]

    def _refresh(self, memories: list[Any], wanted: bool) -> Calls:
        """Lets items that were read live as long again as they were put for."""
        for memory in memories if wanted else ():
            patch = refreshed(memory, self._now())
            if patch is not None:
                try:
                    yield Call("update_memory", {"memory_id": memory["memory_id"], "body": patch})
                except Problem as problem:  # deleted meanwhile
                    if problem.code != "not_found":
                        raise
