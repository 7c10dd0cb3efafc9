import numpy as np

from app.storage.search import Memo


def test_a_result_is_kept_for_the_same_sources() -> None:
    memo, array = Memo(), np.arange(3)
    made = [memo.get("sum", (array, 2.0), object) for _ in range(2)]
    assert made[0] is made[1]


def test_equal_arrays_are_not_the_same_and_equal_numbers_are() -> None:
    memo, array = Memo(), np.arange(3)
    first = memo.get("sum", (array, 2.0), object)
    assert memo.get("sum", (array, float("2")), object) is first
    assert memo.get("sum", (array.copy(), 2.0), object) is not first
    assert memo.get("sum", (array, 3.0), object) is not first
    assert memo.get("other", (array, 2.0), object) is not first


def test_more_sources_are_others() -> None:
    memo, array = Memo(), np.arange(3)
    first = memo.get("joined", (array,), object)
    assert memo.get("joined", (array, array), object) is not first
