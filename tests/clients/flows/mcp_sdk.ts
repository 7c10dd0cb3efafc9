// The MCP tools by the official TypeScript SDK.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

declare const process: { env: Record<string, string | undefined> };

const client = new Client({ name: "flow", version: "1.0.0" });
const url = new URL("/mcp?agent_id=support&user_id=mcp-sdk&tools=all", process.env.RECALLD_URL!);
await client.connect(new StreamableHTTPClientTransport(url));

type Answer = { structuredContent?: any; isError?: boolean; content: { text: string }[] };
async function call(name: string, args: Record<string, unknown>): Promise<Answer> {
  return (await client.callTool({ name, arguments: args })) as unknown as Answer;
}

const { tools } = await client.listTools();
console.log("tools", tools.length, tools.every((tool) => !("user_id" in (tool.inputSchema.properties ?? {}))));
const made = (await call("remember", { content: "Ada prefers tea", memory_type: "preference" })).structuredContent;
await call("update_memory", { memory_id: made.memory_id, content: "Ada prefers green tea" });
const found = (await call("recall", { query: "What tea does Ada prefer?" })).structuredContent.items[0];
console.log("found", found.content, found.match);
const listed = (await call("list_memories", { limit: 5 })).structuredContent;
console.log("listed", listed.items.length, listed.items[0].memory_id === made.memory_id);
await call("assert_fact", { subject: "Ada", predicate: "lives_in", object: "Boston", valid_from: "2020-01-01T00:00:00Z" });
const asked = { query: "Where does Ada live?", as_of: "2022-01-01T00:00:00Z" };
console.log("fact", (await call("find_facts", asked)).structuredContent.items[0].object);
const said = await call("append_messages", { session_id: "by-mcp-sdk", messages: [{ role: "user", content: "Hello" }] });
console.log("said", said.structuredContent.seqs[0]);
console.log("profile", (await call("get_profile", {})).structuredContent.name);
await call("update_profile", { name: "Ada", home: null });
const { resources } = await client.listResources();
const read = (await client.readResource({ uri: resources[0].uri })).contents[0] as { text: string };
console.log("resource", JSON.parse(read.text).name);
const { messages } = await client.getPrompt({ name: "about_me", arguments: { topic: "tea" } });
console.log("prompt", (messages[0].content as { text: string }).text.split("\n")[0]);
console.log("context", (await call("get_context", { query: "tea" })).content[0].text.includes("green tea"));
console.log("counted", (await call("memory_feedback", { helpful: [made.memory_id] })).structuredContent.counted.length);
console.log("gone", (await call("forget", { memory_ids: [made.memory_id] })).structuredContent.forgotten.length);
const missing = await call("get_memory", { memory_id: made.memory_id });
console.log("missing", missing.isError, missing.content[0].text.includes("(not_found)"));
await client.close();
