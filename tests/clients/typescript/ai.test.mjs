// The middleware with the installed `ai` package and its mock model, against the service at RECALLD_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, jsonSchema, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import * as mocks from "ai/test";
import { Recalld, Unreachable } from "recalld-client";
import { recalldMiddleware } from "recalld-client/ai";

const run = Date.now().toString(36);
const Mock = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3 ?? mocks.MockLanguageModelV2;
const isV2 = Mock === mocks.MockLanguageModelV2;
const usage = isV2
  ? { inputTokens: 1, outputTokens: 1, totalTokens: 2 }
  : { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const ended = (reason) => ({ finishReason: isV2 ? reason : { unified: reason, raw: reason }, usage });
const answer = (text) => ({ content: [{ type: "text", text }], ...ended("stop"), warnings: [] });
const call = (toolName) => ({
  content: [{ type: "tool-call", toolCallId: "c1", toolName, input: "{}" }],
  ...ended("tool-calls"),
  warnings: [],
});
const streamed = (...deltas) => ({
  stream: mocks.simulateReadableStream({
    initialDelayInMs: null,
    chunkDelayInMs: null,
    chunks: [
      { type: "stream-start", warnings: [] },
      { type: "text-start", id: "1" },
      ...deltas.map((delta) => ({ type: "text-delta", id: "1", delta })),
      { type: "text-end", id: "1" },
      { type: "finish", ...ended("stop") },
    ],
  }),
});

/** A wrapped mock model with a new user's memory, and what happened. */
function setUp(user, doGenerate, options = {}, url = process.env.RECALLD_URL) {
  const memory = new Recalld({ url }).user(`${user}-${run}`, { agent: "support" });
  const session = `${user}-${run}`;
  const [events, prompts] = [[], []];
  const answers = (next) => async ({ prompt }) => {
    prompts.push(prompt);
    return next(prompts.length);
  };
  const mock = new Mock({ doGenerate: answers(doGenerate), doStream: answers(doGenerate) });
  const middleware = recalldMiddleware({ memory, session, onEvent: (event) => events.push(event), ...options });
  const model = wrapLanguageModel({ model: mock, middleware });
  const stored = () => memory.session(session).messages().toArray();
  const said = async () => (await stored()).map((one) => `${one.role}: ${one.content}`);
  return { memory, model, events, prompts, said };
}
const lastUser = (prompt) => prompt.filter((turn) => turn.role === "user").at(-1).content.map((part) => part.text);

test("what is remembered is in the prompt, and the conversation is stored", async () => {
  const { memory, model, events, prompts, said } = setUp("gen", () => answer("You live in Boston."));
  await memory.add("Gen moved to Boston in May.");
  const { text } = await generateText({ model, system: "Be brief.", prompt: "Which city do I live in?" });
  assert.equal(text, "You live in Boston.");
  const [block, question] = lastUser(prompts[0]);
  assert.match(block, /moved to Boston in May/);
  assert.equal(question, "Which city do I live in?");
  assert.deepEqual(await said(), ["user: Which city do I live in?", "assistant: You live in Boston."]);
  assert.deepEqual(events.map((one) => one.type), ["recalled", "remembered", "remembered"]);
  assert.ok(events[0].context.tokens <= 1500);
});

test("a stream is passed on unchanged, and its text is stored", async () => {
  const { model, said } = setUp("stream", () => streamed("Hel", "lo"));
  const deltas = [];
  for await (const delta of streamText({ model, prompt: "Say hello to me" }).textStream) deltas.push(delta);
  assert.deepEqual(deltas, ["Hel", "lo"]);
  assert.deepEqual(await said(), ["user: Say hello to me", "assistant: Hello"]);
});

test("texts that were cut for citations are one, and a thought between begins a line", async () => {
  const parts = ["I look it up.", null, "The capital is ", "Paris", "."];
  const whole = parts.map((text) => (text === null ? { type: "reasoning", text: "Hm." } : { type: "text", text }));
  const chunks = parts.flatMap((delta, at) => {
    const [kind, id] = [delta === null ? "reasoning" : "text", `${at}`];
    return [{ type: `${kind}-start`, id }, { type: `${kind}-delta`, id, delta: delta ?? "Hm." }, { type: `${kind}-end`, id }];
  });
  const once = setUp("cited", () => ({ content: whole, ...ended("stop"), warnings: [] }));
  await generateText({ model: once.model, prompt: "Which?" });
  const stream = mocks.simulateReadableStream({ chunks: [...chunks, { type: "finish", ...ended("stop") }] });
  const flowing = setUp("cited-stream", () => ({ stream }));
  await streamText({ model: flowing.model, prompt: "Which?" }).consumeStream();
  for (const { said } of [once, flowing])
    assert.deepEqual(await said(), ["user: Which?", "assistant: I look it up.\nThe capital is Paris."]);
});

test("in a loop of tools the user's message is stored once, and each step has the memory", async () => {
  const steps = (step) => (step === 1 ? call("weather") : answer("Rain."));
  const { memory, model, events, prompts, said } = setUp("tools", steps);
  await memory.add("Tools-User lives in Bergen.");
  const weather = tool({ inputSchema: jsonSchema({ type: "object" }), execute: async () => "rain" });
  const prompt = "How is the weather where I live?";
  await generateText({ model, tools: { weather }, stopWhen: stepCountIs(3), prompt });
  assert.equal(prompts.length, 2);
  assert.match(lastUser(prompts[0])[0], /Bergen/);
  assert.deepEqual(lastUser(prompts[1]), lastUser(prompts[0]));
  assert.deepEqual(await said(), ["user: How is the weather where I live?", "assistant: Rain."]);
  assert.deepEqual(events.map((one) => one.role ?? one.type), ["recalled", "user", "assistant"]);
});

test("when the model fails, the user's message is kept, and a retry stores it once", async () => {
  const { model, said } = setUp("fails", (asked) => {
    if (asked < 3) throw new Error("model down");
    return answer("Fine.");
  });
  const ask = () => generateText({ model, prompt: "How are you?", maxRetries: 0 });
  await assert.rejects(ask(), /model down/);
  assert.deepEqual(await said(), ["user: How are you?"]);
  await assert.rejects(ask(), /model down/);
  await ask();
  assert.deepEqual(await said(), ["user: How are you?", "assistant: Fine."]);
});

test("a conversation that was ended goes on", async () => {
  const { memory, model, said } = setUp("ula", () => answer("Fine."));
  await generateText({ model, prompt: "I keep bees." });
  await memory.session(`ula-${run}`).end();
  await generateText({ model, prompt: "How many?" });
  assert.deepEqual(await said(), ["user: I keep bees.", "assistant: Fine.", "user: How many?", "assistant: Fine."]);
});

test("a memory that is down never breaks the call", async () => {
  const { model, events, prompts } = setUp("down", () => answer("Hi."), {}, "http://127.0.0.1:9");
  assert.equal((await generateText({ model, prompt: "Hello?" })).text, "Hi.");
  assert.deepEqual(lastUser(prompts[0]), ["Hello?"]);
  const failed = events.map((one) => `${one.type} ${one.during}`);
  assert.deepEqual(failed, ["failed recall", "failed remember", "failed remember"]);
  assert.ok(events.every((one) => one.error instanceof Unreachable));
  const throwing = setUp("hook", () => answer("Hi."), { onEvent: () => { throw new Error("mine"); } });
  assert.equal((await generateText({ model: throwing.model, prompt: "Hello?" })).text, "Hi.");
});

test("a session of another user is a mistake, and each middleware without one begins its own", async () => {
  const owner = setUp("owner", () => answer("Hi."));
  await generateText({ model: owner.model, prompt: "I keep bees." });
  const other = setUp("other", () => answer("Hi."), { session: `owner-${run}` });
  await assert.rejects(generateText({ model: other.model, prompt: "Hello?" }), (error) => error.code === "already_exists");
  assert.deepEqual(other.prompts, []);
  const fresh = setUp("fresh", () => answer("Hi."), { session: undefined });
  await generateText({ model: fresh.model, prompt: "Hello?" });
  assert.deepEqual(fresh.events.map((one) => one.type), ["recalled", "remembered", "remembered"]);
});

test("each half can be switched off", async () => {
  const reader = setUp("reader", () => answer("Hi."), { remember: false });
  await generateText({ model: reader.model, prompt: "Hello?" });
  assert.deepEqual(reader.events.map((one) => one.type), ["recalled"]);
  const writer = setUp("writer", () => answer("Hi."), { recall: false });
  await writer.memory.add("Writer says hello a lot.");
  await generateText({ model: writer.model, prompt: "Hello?" });
  assert.deepEqual(lastUser(writer.prompts[0]), ["Hello?"]);
  assert.deepEqual(writer.events.map((one) => one.type), ["remembered", "remembered"]);
});
