// Retries, keys and time limits, against an HTTP server of the test's own that answers as told.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { afterEach, beforeEach, test } from "node:test";
import { Recalld, Unreachable } from "recalld-client";

let server, url, script, seen;
const problem = (status, code, headers = {}) => ({ status, headers, body: { code, detail: "no", status } });
const ok = { status: 200, body: { items: [], memory_id: "mem_1" } };

beforeEach(async () => {
  seen = [];
  server = createServer((request, response) => {
    seen.push({ method: request.method, url: request.url, ...request.headers });
    const next = script.length > 1 ? script.shift() : script[0];
    if (next === "drop") return request.socket.destroy();
    if (next === "hang") return undefined;
    const kind = next.status < 400 ? "application/json" : "application/problem+json";
    response.writeHead(next.status, { "content-type": kind, ...next.headers });
    response.end(next.text ?? JSON.stringify(next.body));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  url = `http://127.0.0.1:${server.address().port}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});
const ada = (options) => new Recalld({ url, ...options }).user("ada", { agent: "a" });

test("a write is sent again under the same key", async () => {
  script = ["drop", problem(503, "store_unavailable"), ok];
  await ada().add("tea");
  assert.equal(seen.length, 3);
  const keys = seen.map((one) => one["idempotency-key"]);
  assert.ok(keys[0].length > 10);
  assert.equal(new Set(keys).size, 1);
  await ada().add("tea");
  assert.notEqual(seen[3]["idempotency-key"], keys[0]);
});

test("a request that still runs is waited for", async () => {
  script = [problem(409, "idempotency_in_progress", { "retry-after": "0" }), ok];
  await ada().add("tea");
  assert.equal(seen.length, 2);
  script = [problem(409, "conflict")];
  await assert.rejects(ada().add("tea"), { code: "conflict" });
  assert.equal(seen.length, 3);
});

test("the last error is thrown when no try is left", async () => {
  script = [problem(503, "store_unavailable")];
  await assert.rejects(ada({ retries: 1 }).search("tea"), { code: "store_unavailable", status: 503 });
  assert.equal(seen.length, 2);
});

test("a pause that the service asks for is kept, a very long one is not waited for", async () => {
  script = [problem(429, "rate_limited", { "retry-after": "3600" }), ok];
  await assert.rejects(ada().search("tea"), { code: "rate_limited", retryAfter: 3600 });
  assert.equal(seen.length, 1);
});

test("what cannot be repeated safely is repeated only when it was refused", async () => {
  script = ["drop", ok];
  await assert.rejects(ada().profile.update({ name: "Ada" }), Unreachable);
  assert.equal(seen.length, 1);
  script = [problem(429, "rate_limited", { "retry-after": "0" }), ok];
  await ada().profile.update({ name: "Ada" }, { ifMatch: 3 });
  assert.equal(seen.length, 3);
  assert.equal(seen[2]["if-match"], '"3"');
});

test("a deletion whose answer was lost is a deletion", async () => {
  script = ["drop", problem(404, "not_found")];
  await ada().forget("mem_1");
  script = [problem(404, "not_found")];
  await assert.rejects(ada().forget("mem_1"), { code: "not_found" });
});

test("a time limit names the URL and is not retried; a signal ends the call", async () => {
  script = ["hang"];
  let tries = 0; // counted here: on a busy machine the limit may be over before the server sees the request
  const counted = (...request) => {
    tries++;
    return fetch(...request);
  };
  const late = { message: `${url} did not answer within 0.05 s` };
  await assert.rejects(ada({ timeout: 50, fetch: counted }).search("tea"), late);
  assert.equal(tries, 1);
  const stop = new AbortController();
  const asked = ada().search("tea", { signal: stop.signal });
  setTimeout(() => stop.abort(new Error("enough")), 20);
  await assert.rejects(asked, /enough/);
  script = ["drop"];
  const between = new AbortController();
  setTimeout(() => between.abort(new Error("enough")), 20);
  await assert.rejects(ada({ retries: 100 }).search("tea", { signal: between.signal }), /enough/);
});

test("an answer that is no problem document is an error with its status", async () => {
  script = [{ status: 500, text: "<h1>proxy</h1>", headers: { "content-type": "text/html" } }];
  await assert.rejects(ada().search("tea"), { status: 500, code: "unexpected_answer" });
});

test("key, headers, ids and queries are sent as they should be", async () => {
  script = [ok];
  const client = new Recalld({ url: `${url}/`, key: "rk_x", headers: { "x-trace": "1" } });
  await client.request("GET", "/v1/users/{user_id}/profile", { path: { user_id: "a b/ü|c" } });
  await client.request("GET", "/v1/memories", { query: { user_id: "a&b", limit: 3, pinned: false, tag: undefined } });
  assert.equal(seen[0].url, "/v1/users/a%20b%2F%C3%BC%7Cc/profile");
  assert.equal(seen[1].url, "/v1/memories?user_id=a%26b&limit=3&pinned=false");
  assert.equal(seen[0].authorization, "Bearer rk_x");
  assert.equal(seen[0]["x-trace"], "1");
  assert.equal(seen[0]["idempotency-key"], undefined);
});
