import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.time_expressions import when

DAY = 86_400_000
times = st.lists(st.integers(-(10**14), 10**14), max_size=20).map(lambda values: np.array(values, np.int64))


def test_inside_is_one_and_beside_falls_off_by_lengths() -> None:
    at = np.array([0, DAY - 1, -DAY, 2 * DAY - 1, 1000 * DAY], np.int64)
    assert when(at, (0, DAY)).tolist() == [1.0, 1.0, 0.25, 0.25, 0.0]


def test_beside_a_moment_an_hour_halves_it() -> None:
    assert when(np.array([3_600_000], np.int64), (0, 1)).tolist() == [0.5]


@given(times, st.integers(-(10**14), 10**14), st.integers(1, 10**13))
def test_it_lies_between_zero_and_one_and_falls_with_distance(at: np.ndarray, start: int, length: int) -> None:
    found = when(at, (start, start + length))
    assert found.dtype == np.float32
    assert ((found >= 0) & (found <= 1)).all()
    distance = np.maximum(np.maximum(start - at, at - (start + length - 1)), 0)
    assert (np.diff(found[np.argsort(distance, kind="stable")]) <= 0).all()
