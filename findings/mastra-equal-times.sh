#!/bin/sh
# Of messages with one time, as those saved together have, Mastra's InMemoryStore gives the FIRST two for "the newest
# two", and the later before the earlier. LibSQLStore gives the last two, in the order in which they were saved.
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

const createdAt = new Date("2026-01-02T00:00:00Z");
for (const storage of [new LibSQLStore({ id: "sql", url: "file:memory.db" }), new InMemoryStore({ id: "ram" })]) {
  const memory = new Memory({ storage });
  await memory.saveThread({
    thread: { id: "t", resourceId: "ada", title: "t", createdAt, updatedAt: createdAt, metadata: {} },
  });
  await memory.saveMessages({
    messages: ["one", "two", "three", "four"].map((text, at) => ({
      id: `${at}`, threadId: "t", resourceId: "ada", role: "user", createdAt, content: { format: 2, parts: [{ type: "text", text }] },
    })),
  });
  const { messages } = await memory.recall({ threadId: "t", perPage: 2 });
  console.log(storage.constructor.name, messages.map((message) => message.content.parts[0].text).join(", "));
}
process.exit(0);
JS
node store.mjs >seen
diff - seen <<'SEEN'
LibSQLStore three, four
InMemoryStore two, one
SEEN
echo "as seen"
