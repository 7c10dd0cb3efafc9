import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Forbidden
from app.storage.schema import matches
from app.storage.scope import ANY_AGENT, Partition, Scope

names = st.none() | st.sampled_from(["a", "b", "c"])
bindings = st.none() | st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1)
scopes = st.builds(Scope, st.just("t"), bindings, bindings)
owners = st.fixed_dictionaries({"agent_id": names, "user_id": names})


@given(scopes, owners)
def test_the_filter_of_what_is_visible_means_sees(scope: Scope, doc: dict[str, str | None]) -> None:
    assert matches(doc, scope.visible()) == scope.sees(doc)


@given(scopes, owners)
def test_the_filter_of_what_is_writable_means_require_write(scope: Scope, doc: dict[str, str | None]) -> None:
    def allowed() -> bool:
        try:
            scope.require_write(doc["agent_id"], doc["user_id"])
        except Forbidden:
            return False
        return True

    assert matches(doc, scope.writable()) == allowed()


@given(scopes, owners)
def test_what_may_be_written_may_be_seen(scope: Scope, doc: dict[str, str | None]) -> None:
    assert not matches(doc, scope.writable()) or scope.sees(doc)


@given(scopes, names, names, st.booleans())
def test_every_partition_of_a_search_may_be_seen(
    scope: Scope, agent: str | None, user: str | None, shared: bool
) -> None:
    for partition in scope.partitions(agent, user, shared):
        if partition.agent is ANY_AGENT:
            assert scope.agents is None
        else:
            assert scope.sees({"agent_id": partition.agent, "user_id": partition.user})


@pytest.mark.parametrize(
    ("agent", "user", "shared", "partitions"),
    [
        ("a", "u", True, [("a", "u"), ("a", None), (None, "u")]),
        ("a", "u", False, [("a", "u")]),
        (None, "u", True, [(ANY_AGENT, "u")]),
        (None, "u", False, [(ANY_AGENT, "u")]),
        ("a", None, True, [("a", None)]),
    ],
)
def test_a_search_covers_what_the_names_say(
    agent: str, user: str, shared: bool, partitions: list[tuple[str, str]]
) -> None:
    assert Scope("t").partitions(agent, user, shared) == tuple(Partition(*partition) for partition in partitions)


def test_bindings_cut_a_search_and_never_widen_it() -> None:
    bound = Scope("t", agents=frozenset({"a", "b"}), users=frozenset({"u"}))
    assert bound.partitions("a", "u", True) == (Partition("a", "u"), Partition("a", None), Partition(None, "u"))
    assert bound.partitions("x", "u", True) == (Partition(None, "u"),)
    assert bound.partitions("x", "u", False) == ()
    assert bound.partitions(None, "u", True) == (Partition("a", "u"), Partition("b", "u"), Partition(None, "u"))
    assert bound.partitions("a", "other", True) == (Partition("a", None),)
    assert bound.partitions(None, "other", True) == ()


def test_a_bound_key_reads_what_is_shared_and_does_not_write_it() -> None:
    bound = Scope("t", users=frozenset({"u"}))
    assert bound.sees({"agent_id": "a", "user_id": None})
    with pytest.raises(Forbidden):
        bound.require_write("a", None)
    bound.require_write("a", "u")
