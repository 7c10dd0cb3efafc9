// The flow by what hey-api makes.
import { client } from "./made/client.gen";
import { appendMessages, assembleContext, createMemory, getMemory, searchMemories } from "./made/sdk.gen";
import type { MemoryType } from "./made/types.gen";

declare const process: { env: Record<string, string | undefined> };

client.setConfig({ baseUrl: process.env.RECALLD_URL! });
const owner = { agent_id: "support", user_id: "hey-api" };
const kind: MemoryType = "preference";

const kept = await createMemory({
  body: { ...owner, content: "Ada prefers tea", memory_type: kind, metadata: { "a.b": 1 } },
  headers: { "Idempotency-Key": "hey" },
  throwOnError: true,
});
console.log("kept", kept.data.content, kept.data.memory_type, JSON.stringify(kept.data.metadata));
const said = await appendMessages({
  path: { session_id: "by-hey-api" },
  body: { ...owner, messages: [{ role: "user", name: "Ada", content: "I moved to Boston in May." }] },
  throwOnError: true,
});
console.log("said", said.data.items[0].seq, said.data.items[0].content);
const found = await searchMemories({ body: { ...owner, query: "What does Ada drink?" }, throwOnError: true });
console.log("found", found.data.items[0].memory.content, found.data.items[0].score > 0);
const prompt = await assembleContext({ body: { ...owner, query: "Which city?", token_budget: 500 }, throwOnError: true });
console.log("context", prompt.data.text.includes("Boston"), prompt.data.tokens <= 500);
const missing = await getMemory({ path: { memory_id: "mem_nothere" } });
console.log("missing", missing.response!.status, missing.error!.code);
