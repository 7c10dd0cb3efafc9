// The MCP tools as tools of the Vercel AI SDK.
import { createMCPClient } from "@ai-sdk/mcp";

declare const process: { env: Record<string, string | undefined> };

const url = `${process.env.RECALLD_URL}/mcp?agent_id=support&user_id=ai-sdk&tools=all`;
const client = await createMCPClient({ transport: { type: "http", url } });
const tools = await client.tools();
console.log("tools", Object.keys(tools).length);

async function call(name: string, args: Record<string, unknown>): Promise<any> {
  const answer: any = await tools[name].execute(args, { toolCallId: name, messages: [], context: undefined });
  return answer.structuredContent ?? answer;
}

const made = await call("remember", { content: "Ada prefers tea" });
await call("update_memory", { memory_id: made.memory_id, content: "Ada prefers green tea" });
const found = (await call("recall", { query: "What tea does Ada prefer?" })).items[0];
console.log("found", found.content, found.match);
console.log("listed", (await call("list_memories", {})).items.length);
await call("update_profile", { name: "Ada" });
console.log("profile", (await call("get_profile", {})).name);
const missing = await call("get_memory", { memory_id: "mem_nothere" });
console.log("missing", missing.isError, missing.content[0].text.includes("(not_found)"));
await client.close();
