import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, render
from app.memories.search import MemoryFragment
from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, fading_one_by_one, importance

NOW = "2026-11-21T08:30:00.000Z"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(
    texts,
    st.dictionaries(texts, st.none() | texts | st.floats(allow_nan=False, allow_infinity=False)),
    st.floats(0, 1),
    st.booleans(),
    st.integers(-1, 4_000),
)
def test_it_is_what_the_memory_is_served_as(
    content: str, metadata: dict[str, object], base: float, pinned: bool, days: int
) -> None:
    fields = {"memory_type": "fact", "content": content, "metadata": metadata, "importance": base, "pinned": pinned}
    doc = new_memory(MEMORIES.as_record(fields), {}, NOW, unique=False)
    shown, now_ms = MemoryFragment(doc), to_ms(NOW) + days * DAY_MS
    memory = orjson.loads(b"%b%r}" % (shown.head, shown.importance(fading_one_by_one(now_ms, DEFAULT_DECAY))))
    wanted = importance(doc["base_importance"], to_ms(doc["anchored_at"]), now_ms, doc["pinned"], DEFAULT_DECAY)
    assert memory == orjson.loads(orjson.dumps(render(doc, wanted)))
