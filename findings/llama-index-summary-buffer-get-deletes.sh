#!/bin/sh
# ChatSummaryMemoryBuffer.get() is a read that deletes: what does not fit the limit leaves the chat
# store for ever, also without a language model that could summarise it. get_all() after a get() has
# only what was returned. ChatMemoryBuffer.get() leaves its store alone.
# Versions: llama-index-core==0.14.25, pydantic==2.13.5.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llama-index-core==0.14.25 pydantic==2.13.5
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer

turns = [("user", "I live in Boston"), ("assistant", "Noted"), ("user", "I drink tea"), ("assistant", "Noted too")]
for kind in (ChatMemoryBuffer, ChatSummaryMemoryBuffer):
    history = [ChatMessage(role=role, content=text) for role, text in turns]
    memory = kind.from_defaults(chat_history=history, token_limit=6, tokenizer_fn=str.split)
    print(kind.__name__, len(memory.get_all()), "get:", len(memory.get()), "get_all after it:", len(memory.get_all()))
PY
diff - "$dir/seen" <<'SEEN'
ChatMemoryBuffer 4 get: 2 get_all after it: 4
ChatSummaryMemoryBuffer 4 get: 2 get_all after it: 2
SEEN
echo "as seen"
