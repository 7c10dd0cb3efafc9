#!/bin/sh
# llama-index-core asks for pydantic of at least 2.8. With pydantic 2.14 its SimpleChatStore cannot be
# written any more, whatever is in it: persist(), json() and model_dump() raise
# PydanticSerializationError, because the store hands the serialization info to a handler that now
# takes an index or a key there. With pydantic 2.13 the same store is written and read back.
# Versions: llama-index-core==0.14.25, pydantic==2.14.4.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llama-index-core==0.14.25 pydantic==2.14.4
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store import SimpleChatStore

store = SimpleChatStore()
store.add_message("ada", ChatMessage(role="user", content="I drink tea."))
print(len(store.get_messages("ada")), "message")
try:
    store.persist("chats.json")
except Exception as error:
    print("persist:", type(error).__name__, "index_key" in str(error))
PY
diff - "$dir/seen" <<'SEEN'
1 message
persist: PydanticSerializationError True
SEEN
echo "as seen"
