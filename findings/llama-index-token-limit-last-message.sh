#!/bin/sh
# The token_limit of ChatMemoryBuffer and of Memory is no upper bound: the last message is returned
# whole, however long it is, without an error. In ChatMemoryBuffer that holds for an assistant message
# as well, so that the history then begins with the assistant.
# Versions: llama-index-core==0.14.25, pydantic==2.13.5, aiosqlite==0.22.1.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llama-index-core==0.14.25 pydantic==2.13.5 aiosqlite==0.22.1
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import asyncio

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, Memory

long = ChatMessage(role="user", content="one two three four five six seven")
buffer = ChatMemoryBuffer.from_defaults(chat_history=[long], token_limit=3, tokenizer_fn=str.split)
print("ChatMemoryBuffer(3):", sum(len(message.content.split()) for message in buffer.get()), "tokens")
memory = Memory.from_defaults(session_id="ada", token_limit=3, tokenizer_fn=str.split)
asyncio.run(memory.aput(long))
print("Memory(3):", sum(len(message.content.split()) for message in asyncio.run(memory.aget())), "tokens")
said = [ChatMessage(role="user", content="a b"), ChatMessage(role="assistant", content="c d"), ChatMessage(role="assistant", content="e f")]
buffer = ChatMemoryBuffer.from_defaults(chat_history=said, token_limit=5, tokenizer_fn=str.split)
print([(message.role.value, message.content) for message in buffer.get()])
PY
diff - "$dir/seen" <<'SEEN'
ChatMemoryBuffer(3): 7 tokens
Memory(3): 7 tokens
[('assistant', 'e f')]
SEEN
echo "as seen"
