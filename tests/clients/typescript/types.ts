// Compiled and not run: what the types of the package allow, and what they refuse.
import { Recalld, type Schemas } from "recalld-client";

const memory = new Recalld({ url: "http://127.0.0.1:8000", retries: 1 });
const ada = memory.user("ada", { agent: "support" });

export const found: Schemas["Found"][] = await ada.search("tea", { limit: 3, memory_types: ["fact"], timeout: 10 });
export const made: Schemas["MemoryCreated"] = await ada.add("tea", { importance: 0.9 });
export const appended: Schemas["Appended"] = await ada.add([{ role: "user", content: "Hi" }], { session: "monday" });
export const added: string[] | undefined = await ada
  .add([{ role: "user", content: "Hi" }])
  .then((done) => (done.how === "stored" ? done.memory_ids : undefined));
export const every: Schemas["Memory"][] = await ada.getAll({ filters: { topic: "*" } });
export const plan: Schemas["ForgetPlan"] = await ada.forget({ older_than_days: 1 });
export const applied: Schemas["Operation"] = await ada.forget({ older_than_days: 1, apply: true });
export const page: Schemas["MemoryPage"] = await memory.request("GET", "/v1/memories", { query: { user_id: "ada" } });
export const lines: string = await memory.request("GET", "/v1/users/{user_id}/export", { path: { user_id: "ada" } });
const path = { memory_id: "mem_1" };
export const nothing: undefined = await memory.request("DELETE", "/v1/memories/{memory_id}", { path });
await memory.request("GET", "/livez");

export const sent: Schemas["DocumentAccepted"] = await ada.documents.add("a.md", "# A", { media_type: "text/markdown" });
export const reading: Schemas["Operation"] = await ada.documents.operation(sent);

// @ts-expect-error no media type of a document
await ada.documents.add("a.png", "", { media_type: "image/png" });
// @ts-expect-error no such type of memory
await ada.add("tea", { memory_type: "prefrence" });
// @ts-expect-error messages have no tags
await ada.add([{ role: "user", content: "Hi" }], { tags: ["x"] });
// @ts-expect-error no such option
await ada.search("tea", { count: 3 });
// @ts-expect-error the path is required
await memory.request("GET", "/v1/memories/{memory_id}");
// @ts-expect-error no such operation
await memory.request("PUT", "/v1/memories");
// @ts-expect-error no such field
await memory.request("GET", "/v1/memories", { query: { user: "ada" } });
// @ts-expect-error the body is required
await memory.request("POST", "/v1/memories/search", {});
