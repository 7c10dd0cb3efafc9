#!/bin/sh
# A Date in a filter is no date to Mastra's LibSQLVector, though one in metadata is kept, as a text: {at: date} finds
# every vector, those without the field, too; $eq finds none, and $gt finds all dates, also those before. Nothing is
# said. With the time as a text each of them is right.
# Versions: @mastra/libsql 1.23.1 beside @mastra/core 1.71.0 (npm, Node.js 20).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm init -y >/dev/null
npm install --no-audit --no-fund --silent @mastra/core@1.71.0 @mastra/libsql@1.23.1
cat >vector.mjs <<'JS'
import { LibSQLVector } from "@mastra/libsql";

const store = new LibSQLVector({ id: "v", url: "file:vector.db" });
await store.createIndex({ indexName: "days", dimension: 2 });
const [first, second] = [new Date("2026-01-01T00:00:00Z"), new Date("2026-06-01T00:00:00Z")];
await store.upsert({
  indexName: "days", ids: ["january", "june", "none"], vectors: [[1, 0], [0.9, 0.1], [0.5, 0.5]],
  metadata: [{ at: first }, { at: second }, {}],
});
const ask = async (name, filter) => {
  const found = await store.query({ indexName: "days", queryVector: [1, 0], topK: 3, filter });
  console.log(name, "->", found.map((one) => one.id).join(" ") || "none found");
};
const late = new Date("2030-01-01T00:00:00Z");
await ask("a Date", { at: second });
await ask("$eq a Date", { at: { $eq: second } });
await ask("$gt a Date in 2030", { at: { $gt: late } });
await ask("a text", { at: second.toISOString() });
await ask("$gt a text in 2030", { at: { $gt: late.toISOString() } });
process.exit(0);
JS
node vector.mjs >seen
diff - seen <<'SEEN'
a Date -> january june none
$eq a Date -> none found
$gt a Date in 2030 -> january june
a text -> june
$gt a text in 2030 -> none found
SEEN
echo "as seen"
