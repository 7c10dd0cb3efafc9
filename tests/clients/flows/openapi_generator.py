"""The flow by what openapi-generator makes for Python."""

import json
import os

import openapi_client as made

OWNER = {"agent_id": "support", "user_id": "openapi-generator-python"}

with made.ApiClient(made.Configuration(host=os.environ["RECALLD_URL"])) as http:
    memories, sessions, context = made.MemoriesApi(http), made.SessionsApi(http), made.ContextApi(http)
    kept = memories.create_memory(
        made.MemoryCreate(
            **OWNER, content="Ada prefers tea", memory_type=made.MemoryType.MEMORY_TYPE_PREFERENCE, metadata={"a.b": 1}
        ),
        idempotency_key="python",
    )
    print("kept", kept.content, kept.memory_type.value, kept.metadata)
    message = made.MessageIn(role="user", name="Ada", content=made.MessageContent("I moved to Boston in May."))
    said = sessions.append_messages("by-openapi-generator", made.MessagesAppend(**OWNER, messages=[message]))
    print("said", said.items[0].seq, said.items[0].content.actual_instance)
    found = memories.search_memories(made.SearchRequest(**OWNER, query="What does Ada drink?"))
    print("found", found.items[0].memory.content, found.items[0].score > 0)
    prompt = context.assemble_context(made.ContextRequest(**OWNER, query="Which city?", token_budget=500))
    print("context", "Boston" in prompt.text, prompt.tokens <= 500)
    try:
        memories.get_memory("mem_nothere")
    except made.ApiException as missing:
        print("missing", missing.status, json.loads(missing.body)["code"])
