import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.storage.index.record_codec import (
    FACET,
    TERM,
    facet_id,
    head_dtype,
    model_id,
    pack,
    quantise,
    range_value,
    repack,
    sources_of,
)
from tests.support.declared import SEARCHED, at, entry_doc, random_vector, search_entry

HEAD = head_dtype(len(SEARCHED.ranges))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 400))
def test_a_quantised_vector_points_where_the_vector_does(seed: int, dim: int) -> None:
    vector = random_vector(seed, dim)
    whole = quantise(vector)
    assert np.max(np.abs(whole)) == 127
    assert float(whole @ vector) / float(np.linalg.norm(whole.astype(np.float32))) > 0.999


def test_a_record_holds_the_text_and_what_the_document_says() -> None:
    doc = entry_doc("tea", kind="a", tags=["t", "t", "u"], weight=2, event_at=at(5), pinned=True)
    packed = pack(SEARCHED, doc, search_entry("tea. tea. roses", random_vector(1)), 7)
    head = np.frombuffer(packed.head, HEAD)[0]
    assert (head["text_rev"], head["time"], head["length"], head["pinned"]) == (7, to_ms(at(5)), 3, 1)
    assert head["ranges"].tolist() == [to_ms(at(5)), to_ms(at(0)), 2]
    assert np.frombuffer(packed.terms, TERM)["count"].tolist() in ([1, 2], [2, 1])
    assert set(np.frombuffer(packed.facets, FACET).tolist()) == {
        facet_id("kind", "a"),
        facet_id("tags", "t"),
        facet_id("tags", "u"),
    }


def test_a_record_without_a_vector_has_no_model() -> None:
    packed = pack(SEARCHED, entry_doc("tea"), search_entry("tea"), 1)
    head = np.frombuffer(packed.head, HEAD)[0]
    assert (packed.vector, head["model"], head["norm"]) == (None, 0, 0)


def test_the_revision_moves_with_facets_and_place_and_stays_with_the_rest() -> None:
    doc = entry_doc("tea", kind="a", source={"session_id": "s", "message_seq": 1})
    old = pack(SEARCHED, doc, search_entry("tea", random_vector(1)), 1)

    def revision(**changed: object) -> int:
        new = repack(SEARCHED, doc | changed, old, 2)
        assert (new.vector, new.terms) == (old.vector, old.terms)
        return int(np.frombuffer(new.head, HEAD)[0]["text_rev"])

    assert revision(base_importance=1.0, anchored_at=at(3), weight=4, pinned=True) == 1
    assert revision(kind="b") == 2
    assert revision(source={"session_id": "other", "message_seq": 1}) == 2
    assert revision(source={"session_id": "s", "message_seq": 2}) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"base_importance": 1.0, "anchored_at": at(3)},
        {"kind": "b"},
        {"weight": 4, "pinned": True, "other": 1},
        {"event_at": at(9)},
        {"source": {"session_id": "s", "message_seq": 2, "speaker": "Ada"}},
        {"last_accessed": at(9), "access_count": 1},
    ],
)
def test_a_record_read_from_what_changed_is_that_read_from_all(changed: dict[str, object]) -> None:
    doc = entry_doc("tea", kind="a", tags=["t"], source={"session_id": "s", "message_seq": 1})
    old = pack(SEARCHED, doc, search_entry("tea", random_vector(1)), 1)
    new = repack(SEARCHED, doc | changed, old, 2)
    assert repack(SEARCHED, doc | changed, old, 2, changed.keys()) == new
    assert (new == old) == changed.keys().isdisjoint(sources_of(SEARCHED))


@pytest.mark.parametrize(("value", "number"), [(at(0), to_ms(at(0))), (0.5, 0.5), (3, 3.0), (0, 0.0)])
def test_ranges_hold_numbers_and_milliseconds(value: str | float, number: float) -> None:
    assert range_value(value) == number


def test_what_is_absent_lies_in_no_range() -> None:
    assert np.isnan(range_value(None))


def test_models_are_told_apart_by_name_and_dimension() -> None:
    assert len({model_id("a", 384), model_id("a", 768), model_id("b", 384), 0}) == 4


def test_facets_of_two_fields_never_meet() -> None:
    assert facet_id("a", "b") != facet_id("b", "a")
    assert facet_id("tags", "x") != facet_id("kind", "x")
