#!/bin/sh
# Mastra's Memory.recall() takes `include` (messages by id with their neighbours) and leaves it out of what it asks its
# storage: the messages do not come, and nothing is said. listMessages() of the same storage gives them.
# Versions: @mastra/core 1.71.0, @mastra/memory 1.31.0, @mastra/libsql 1.23.1 (npm, Node.js 20).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm init -y >/dev/null
npm install --no-audit --no-fund --silent @mastra/core@1.71.0 @mastra/memory@1.31.0 @mastra/libsql@1.23.1
cat >store.mjs <<'JS'
import { Memory } from "@mastra/memory";
import { InMemoryStore } from "@mastra/core/storage";
import { LibSQLStore } from "@mastra/libsql";

const at = (day) => new Date(Date.UTC(2026, 0, day));
for (const storage of [new LibSQLStore({ id: "sql", url: "file:memory.db" }), new InMemoryStore({ id: "ram" })]) {
  const memory = new Memory({ storage });
  await memory.saveThread({
    thread: { id: "t", resourceId: "ada", title: "t", createdAt: at(1), updatedAt: at(1), metadata: {} },
  });
  await memory.saveMessages({
    messages: [1, 2, 3, 4, 5, 6, 7].map((day) => ({
      id: `${day}`, threadId: "t", resourceId: "ada", role: "user", createdAt: at(day),
      content: { format: 2, parts: [{ type: "text", text: `${day}` }] },
    })),
  });
  const asked = { threadId: "t", perPage: 1, include: [{ id: "3", withPreviousMessages: 1, withNextMessages: 1 }] };
  const store = await storage.getStore("memory");
  const ids = ({ messages }) => messages.map((message) => message.id).join(" ");
  console.log(storage.constructor.name, "recall:", ids(await memory.recall(asked)), "listMessages has 2 3 4:",
    ids(await store.listMessages(asked)).includes("2 3 4"));
}
process.exit(0);
JS
node store.mjs >seen
diff - seen <<'SEEN'
LibSQLStore recall: 7 listMessages has 2 3 4: true
InMemoryStore recall: 7 listMessages has 2 3 4: true
SEEN
echo "as seen"
