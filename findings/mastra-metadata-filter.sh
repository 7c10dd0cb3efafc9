#!/bin/sh
# A filter on metadata of threads means something else in Mastra's LibSQLStore: `true` finds 1 as well, and 1 finds true,
# and null finds the threads without the field. In InMemoryStore a value is equal or not.
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
const threads = { one: { k: 1 }, yes: { k: true }, text: { k: "1" }, nothing: { k: null }, absent: {} };
for (const storage of [new LibSQLStore({ id: "sql", url: "file:memory.db" }), new InMemoryStore({ id: "ram" })]) {
  const memory = new Memory({ storage });
  for (const [id, metadata] of Object.entries(threads))
    await memory.saveThread({ thread: { id, resourceId: "ada", title: id, createdAt, updatedAt: createdAt, metadata } });
  for (const k of [1, true, "1", null]) {
    const found = await memory.listThreads({ filter: { resourceId: "ada", metadata: { k } } });
    console.log(storage.constructor.name, JSON.stringify(k), "->", found.threads.map((thread) => thread.id).sort().join(" "));
  }
}
process.exit(0);
JS
node store.mjs >seen
diff - seen <<'SEEN'
LibSQLStore 1 -> one yes
LibSQLStore true -> one yes
LibSQLStore "1" -> text
LibSQLStore null -> absent nothing
InMemoryStore 1 -> one
InMemoryStore true -> yes
InMemoryStore "1" -> text
InMemoryStore null -> nothing
SEEN
echo "as seen"
