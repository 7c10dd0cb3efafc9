// The flow by openapi-fetch with the types that openapi-typescript makes.
import createClient from "openapi-fetch";
import type { components, paths } from "./made";

declare const process: { env: Record<string, string | undefined> };

const api = createClient<paths>({ baseUrl: process.env.RECALLD_URL! });
const owner = { agent_id: "support", user_id: "openapi-typescript" };
const kind: components["schemas"]["MemoryType"] = "preference";

const kept = await api.POST("/v1/memories", {
  params: { header: { "Idempotency-Key": "types" } },
  body: { ...owner, content: "Ada prefers tea", memory_type: kind, metadata: { "a.b": 1 } },
});
console.log("kept", kept.data!.content, kept.data!.memory_type, JSON.stringify(kept.data!.metadata));
const said = await api.POST("/v1/sessions/{session_id}/messages", {
  params: { path: { session_id: "by-openapi-typescript" } },
  body: { ...owner, messages: [{ role: "user", name: "Ada", content: "I moved to Boston in May." }] },
});
console.log("said", said.data!.items[0].seq, said.data!.items[0].content);
const found = await api.POST("/v1/memories/search", { body: { ...owner, query: "What does Ada drink?" } });
console.log("found", found.data!.items[0].memory.content, found.data!.items[0].score > 0);
const prompt = await api.POST("/v1/context", { body: { ...owner, query: "Which city?", token_budget: 500 } });
console.log("context", prompt.data!.text.includes("Boston"), prompt.data!.tokens <= 500);
const missing = await api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id: "mem_nothere" } } });
console.log("missing", missing.response.status, missing.error!.code);
