// What people do daily, with the installed package against the service at RECALLD_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryFiles, Problem, Recalld, RecalldError, Unreachable } from "recalld-client";

const memory = new Recalld();
const run = Date.now().toString(36); // the store may have been used before
const of = (user) => memory.user(`${user}-${run}`, { agent: "support" });

test("a text is remembered, found, judged and forgotten", async () => {
  const ada = of("ada");
  const made = await ada.add("Ada prefers tea", { memory_type: "preference", idempotencyKey: run });
  const again = await ada.add("Ada prefers tea", { memory_type: "preference", idempotencyKey: run });
  assert.equal(again.memory_id, made.memory_id);
  const [hit] = await ada.search("What does Ada drink?", { limit: 1 });
  assert.equal(hit.memory.memory_id, made.memory_id);
  assert.ok(hit.score > 0 && hit.score <= 1);
  const [judged] = await ada.feedback(hit, true, "What does Ada drink?");
  assert.equal(judged.helpful_count, 1);
  assert.equal((await ada.update(hit, { importance: 0.9 }, { ifMatch: made.version })).version, 2);
  await assert.rejects(ada.update(hit, { importance: 0.1 }, { ifMatch: 1 }), { code: "precondition_failed" });
  assert.equal((await ada.get(hit)).base_importance, 0.9);
  await ada.forget(hit);
  assert.deepEqual(await ada.search("What does Ada drink?"), []);
  await assert.rejects(ada.forget(made), { name: "Problem", code: "not_found", status: 404 });
});

test("files have the commands of Anthropic's memory tool, in its words", async () => {
  assert.throws(() => memoryFiles(memory.user("ada")), TypeError);
  const files = memoryFiles(of("files"));
  const path = "/memories/notes/plan.md";
  assert.equal(await files.create({ path, file_text: "one\ntwo\nthree\n" }), `File created successfully at: ${path}`);
  await assert.rejects(files.create({ path, file_text: "" }), { message: `File ${path} already exists` });
  await assert.rejects(files.create({ path: `${path}/x`, file_text: "" }), /is a file/);
  const lines = "     1\tone\n     2\ttwo\n     3\tthree\n     4\t";
  assert.equal(await files.view({ path }), `Here's the content of ${path} with line numbers:\n${lines}`);
  assert.ok((await files.str_replace({ path, old_str: "two", new_str: "2" })).endsWith(lines.replace("two", "2")));
  await assert.rejects(files.str_replace({ path, old_str: "e", new_str: "E" }), /in lines: 1, 3, 3\. Please/);
  assert.equal(await files.insert({ path, insert_line: 0, insert_text: "zero\n" }), `The file ${path} has been edited.`);
  await assert.rejects(files.insert({ path, insert_line: 9, insert_text: "" }), /range \[0, 4\]/);
  await files.create({ path: "/memories/é.md", file_text: "é".repeat(768) });
  const head = "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:";
  assert.equal(
    await files.view({ path: "/memories" }),
    `${head}\n1.5K\t/memories\n17B\t/memories/notes/\n17B\t/memories/notes/plan.md\n1.5K\t/memories/é.md`,
  );
  await files.rename({ old_path: "/memories/notes", new_path: "/memories/moved" });
  assert.ok((await files.view({ path: "/memories/moved/plan.md", view_range: [1, 1] })).endsWith("     1\tzero"));
  assert.equal(await files.delete({ path: "/memories/moved" }), "Successfully deleted /memories/moved");
  await assert.rejects(files.view({ path: "/memories/moved" }), /does not exist. Please provide a valid path./);
  for (const outside of ["/memories/../etc", "/etc", "/memoriesx/y"]) {
    await assert.rejects(files.create({ path: outside, file_text: "" }), /must start with|would escape/);
  }
});

test("names that every object has are names like any other", async () => {
  const metadata = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}');
  const made = await memory.user("__proto__", { agent: "constructor" }).add(`Ada prefers tea ${run}`, { metadata });
  assert.equal(made.user_id, "__proto__");
  assert.deepEqual(Object.entries(made.metadata).sort(), Object.entries(metadata).sort());
  assert.equal({}.polluted, undefined);
  assert.deepEqual((await memory.user("__proto__", { agent: "constructor" }).get(made)).metadata, made.metadata);
});

test("an address with a password is refused, and not told", () => {
  for (const url of ["http://ada:hunter2@127.0.0.1:1", "ada:hunter2@127.0.0.1"]) {
    assert.throws(() => new Recalld({ url }), (error) => error.code === "invalid_url" && !error.message.includes("hunter2"));
  }
});

test("a conversation gives a context and ends", async () => {
  const monday = of("bob").session(`monday|${run}`);
  await monday.append("I moved to Boston in May.");
  await monday.append([{ role: "assistant", content: "Noted." }]);
  await of("bob").add([{ role: "user", content: "I work as a nurse." }], { session: monday.id });
  const context = await monday.context("Where do I live?", { budget: 300 });
  assert.match(context.text, /Boston/);
  assert.ok(context.tokens <= 300 && context.budget === 300);
  const said = await monday.messages().toArray();
  assert.deepEqual(said.map((one) => one.role), ["user", "assistant", "user"]);
  assert.match((await monday.end()).operation_id, /^op_/);
  const refused = monday.append("More", { reopen: false });
  await assert.rejects(refused, (error) => error instanceof Problem && error.status === 409);
});

test("messages without a session are a conversation that has ended, and all of a user can be erased", async () => {
  const fay = of("fay");
  const stored = await fay.add([{ role: "user", content: "I keep bees." }]);
  await assert.rejects(fay.session(stored.session_id).append("More", { reopen: false }), { code: "session_ended" });
  await fay.session(stored.session_id).append("More");
  assert.equal((await fay.search("bees")).length > 0, true);
  await fay.erase();
  assert.deepEqual(await fay.memories().toArray(), []);
});

test("what is coming is listed, the soonest first", async () => {
  const ida = of("ida");
  await ida.add("Ida visits Oslo", { event_at: "9000-06-01T00:00:00Z" });
  await ida.add("Ida pays the rent", { due_at: "8999-06-01T00:00:00Z" });
  const kinds = (await ida.upcoming().toArray()).map((item) => item.kind);
  assert.deepEqual(kinds, ["due", "plan"]);
  assert.equal((await ida.upcoming("9000-01-01T00:00:00Z").toArray()).length, 1);
});

test("a list fetches all its pages", async () => {
  const cleo = of("cleo");
  for (let at = 0; at < 5; at++) await cleo.add(`Cleo owns boat ${at}`);
  const pages = [];
  for await (const page of cleo.memories({ limit: 2 }).pages()) pages.push(page.length);
  assert.deepEqual(pages, [2, 2, 1]);
  const read = [];
  for await (const one of cleo.memories({ limit: 2 })) read.push(one.content);
  assert.equal(new Set(read).size, 5);
  assert.equal((await cleo.memories({ limit: 2 }).toArray(3)).length, 3);
});

test("facts and profile", async () => {
  const dan = of("Dan Ö+x@y");
  await dan.facts.add("Dan", "lives in", "Rome", { valid_from: "2020-01-01T00:00:00Z" });
  const now = await dan.facts.add("Dan", "lives in", "Oslo", { valid_from: "2024-01-01T00:00:00Z" });
  const at = async (as_of) => (await dan.facts.all({ as_of }).toArray()).map((fact) => fact.object);
  assert.deepEqual(await at("2021-01-01T00:00:00Z"), ["Rome"]);
  assert.deepEqual(await at("2025-01-01T00:00:00Z"), ["Oslo"]);
  const current = [];
  for await (const fact of dan.facts) current.push(fact.object);
  assert.deepEqual(current, ["Oslo"]);
  assert.equal((await dan.facts.search("Where does Dan live?", { limit: 1 }))[0].fact.object, "Oslo");
  assert.equal((await dan.facts.retract(now.fact_id)).status, "retracted");
  assert.equal(await dan.profile.get(), null);
  await dan.profile.update({ name: "Dan", interests: ["chess"] });
  assert.deepEqual((await dan.profile.update({ interests: ["golf"] })).interests, ["chess", "golf"]);
  assert.equal((await dan.profile.get()).name, "Dan");
});

test("documents", async () => {
  const gus = of("gus");
  const sent = await gus.documents.add("fern.md", "# Ferns\n\nWater ferns daily.", { metadata: { topic: "ferns" } });
  let operation = sent;
  while (["queued", "running"].includes(operation.status)) operation = await gus.documents.operation(sent);
  assert.equal(operation.status, "succeeded");
  const document = await gus.documents.get(sent.document_id);
  assert.deepEqual([document.status, document.passages, document.media_type], ["ready", 1, "text/markdown"]);
  const [hit] = await gus.search("When do ferns get water?", { filters: { topic: "ferns" } });
  assert.equal(hit.memory.context, "fern.md › Ferns");
  await gus.documents.add("b.txt", new Uint8Array([83, 252, 223]), { media_type: "text/plain; charset=iso-8859-1" });
  const names = [];
  for await (const one of gus.documents) names.push(one.name);
  assert.deepEqual(names, ["b.txt", "fern.md"]);
  assert.equal((await gus.documents.all("fern.md").toArray()).length, 1);
  await gus.documents.delete(sent.document_id);
  await assert.rejects(gus.documents.get(sent.document_id), { code: "not_found" });
});

test("a policy only tells what would go, unless it is applied", async () => {
  const eve = of("eve");
  await eve.add("Eve likes jazz", { event_at: "2020-01-01T00:00:00Z" });
  assert.equal((await eve.forget({ older_than_days: 1 })).dry_run, true);
  assert.match((await eve.forget({ older_than_days: 1, apply: true })).operation_id, /^op_/);
});

test("errors say what is wrong", async () => {
  await assert.rejects(of("ada").search(" "), (error) => {
    assert.ok(error instanceof Problem);
    assert.equal(error.code, "invalid");
    assert.equal(error.errors[0].pointer, "/query");
    assert.match(error.requestId, /^req_/);
    return true;
  });
  assert.throws(() => memory.user("ada").context("Where?"), /needs an agent/);
  assert.throws(() => new Recalld({ url: "localhost:8000" }), { code: "invalid_url" });
  const nobody = new Recalld({ url: "http://127.0.0.1:9", retries: 0 });
  await assert.rejects(nobody.user("ada").search("tea"), (error) => {
    assert.ok(error instanceof Unreachable && error instanceof RecalldError);
    assert.match(error.message, /http:\/\/127\.0\.0\.1:9\b/);
    return error.url === "http://127.0.0.1:9";
  });
});

test("a user without an id is an error of its own", () => {
  for (const nobody of ["", " ", undefined]) {
    assert.throws(() => new Recalld({ url: "http://127.0.0.1:9" }).user(nobody), { name: "RecalldError", code: "invalid_user" });
  }
});
