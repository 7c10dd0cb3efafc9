"""The flow by the models of datamodel-codegen, over httpx."""

import os

import httpx
import models as made

OWNER = {"agent_id": "support", "user_id": "datamodel-codegen"}

with httpx.Client(base_url=os.environ["RECALLD_URL"]) as http:

    def post(path: str, body: made.BaseModel) -> str:
        sent = body.model_dump_json(exclude_unset=True)
        return http.post(path, content=sent, headers={"content-type": "application/json"}).raise_for_status().text

    body = made.MemoryCreate(
        **OWNER, content="Ada prefers tea", memory_type=made.MemoryType.MEMORY_TYPE_PREFERENCE, metadata={"a.b": 1}
    )
    kept = made.MemoryCreated.model_validate_json(post("/v1/memories", body))
    print("kept", kept.content, kept.memory_type.value, kept.metadata.model_dump())
    message = made.MessageIn(role="user", name="Ada", content="I moved to Boston in May.")
    append = made.MessagesAppend(**OWNER, messages=[message])
    said = made.Appended.model_validate_json(post("/v1/sessions/by-datamodel/messages", append))
    print("said", said.items[0].seq, getattr(said.items[0].content, "root", said.items[0].content))
    search = made.SearchRequest(**OWNER, query="What does Ada drink?")
    found = made.SearchResult.model_validate_json(post("/v1/memories/search", search))
    print("found", found.items[0].memory.content, found.items[0].score > 0)
    ask = made.ContextRequest(**OWNER, query="Which city?", token_budget=500)
    prompt = made.Context.model_validate_json(post("/v1/context", ask))
    print("context", "Boston" in prompt.text, prompt.tokens <= 500)
    missing = made.Problem.model_validate_json(http.get("/v1/memories/mem_nothere").text)
    print("missing", missing.status, missing.code)
