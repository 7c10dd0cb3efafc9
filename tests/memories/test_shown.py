import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.memories.documents import new_memory
from app.memories.schemas import render
from app.memories.shown import Shown

NOW = "2026-11-21T08:30:00.000Z"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(
    texts, st.dictionaries(texts, st.none() | texts | st.floats(allow_nan=False, allow_infinity=False)), st.floats(0, 1)
)
def test_it_is_what_the_memory_is_served_as(content: str, metadata: dict[str, object], importance: float) -> None:
    fields = {"memory_type": "fact", "content": content, "metadata": metadata, "importance": 0.5}
    doc = new_memory(fields, {}, NOW, unique=False)
    shown = orjson.loads(orjson.dumps({"memory": Shown(doc).json(importance)}))
    assert shown == {"memory": orjson.loads(orjson.dumps(render(doc, importance)))}
