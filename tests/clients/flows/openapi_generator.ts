// The flow by what openapi-generator makes for TypeScript (typescript-fetch).
import { Configuration, ContextApi, MemoriesApi, MemoryType, ResponseError, SessionsApi } from "./made/index";

declare const process: { env: Record<string, string | undefined> };

const configuration = new Configuration({ basePath: process.env.RECALLD_URL });
const memories = new MemoriesApi(configuration);
const sessions = new SessionsApi(configuration);
const context = new ContextApi(configuration);
const owner = { agentId: "support", userId: "openapi-generator-typescript" };

const kept = await memories.createMemory({
  memoryCreate: {
    ...owner,
    content: "Ada prefers tea",
    memoryType: MemoryType.MEMORY_TYPE_PREFERENCE,
    metadata: { "a.b": 1 },
  },
  idempotencyKey: "typescript",
});
console.log("kept", kept.content, kept.memoryType, JSON.stringify(kept.metadata));
const said = await sessions.appendMessages({
  sessionId: "by-typescript-fetch",
  messagesAppend: { ...owner, messages: [{ role: "user", name: "Ada", content: "I moved to Boston in May." }] },
});
console.log("said", said.items[0].seq, said.items[0].content);
const found = await memories.searchMemories({ searchRequest: { ...owner, query: "What does Ada drink?" } });
console.log("found", found.items[0].memory.content, found.items[0].score > 0);
const prompt = await context.assembleContext({
  contextRequest: { ...owner, query: "Which city?", tokenBudget: 500 },
});
console.log("context", prompt.text.includes("Boston"), prompt.tokens <= 500);
try {
  await memories.getMemory({ memoryId: "mem_nothere" });
} catch (missing) {
  if (!(missing instanceof ResponseError)) throw missing;
  console.log("missing", missing.response.status, (await missing.response.json()).code);
}
