/** Overview: whether it is healthy, what waits to be decided and what it costs; then how much of what kind, growth, what was recalled lately and latency. */
import { BASE, api, ask, key, may, useLoad } from "../api.js";
import { html } from "../ui.js";
import { Chart } from "../parts/chart.js";
import { Bar } from "../parts/bars.js";
import { aboutOf, idOf, waitingOf } from "../parts/doubts.js";
import { Empty, Loaded, ProblemBox, Waiting } from "../parts/feedback.js";
import { kindOf } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Fold, Tag, Text, Time, counted, curl, typeOf, visible, words } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["StoreStats"]} Stats */

/** The pages that show the records of a kind. */
const PAGE_OF = /** @type {Record<keyof Stats["counts"], string>} */ ({
  memories: "memories", messages: "sessions", sessions: "sessions", facts: "owners", actions: "owners", tasks: "tasks",
  procedures: "owners", users: "owners", agents: "owners",
});
const KINDS = /** @type {(keyof Stats["counts"])[]} */ (Object.keys(PAGE_OF));

/** What is counted, where the kind alone would say another thing: each statement of a fact, that it held and that it ended. */
const CALLED = /** @type {Record<string, string>} */ ({ facts: "statements of facts" });

/** Routes that are listed at once: the slowest ones. */
const ROUTES = 8;
/** Of fewer requests the median and the 95th percentile say nothing. */
const FEW = 20;

/** So many sessions are named. */
const LATELY = 5;

/** The latest sessions, each with its person, its agent and a prompt of both. */
function SaidLately() {
  const loaded = useLoad(async (signal) => (await ask(api.GET("/v1/sessions", { params: { query: { limit: LATELY } }, signal }))).items, [], ["session"]);
  const names = useNames();
  return html`<section class="box" aria-label="Said lately"><h2>Said lately</h2><${Loaded} of=${loaded}>${(/** @type {Schemas["Session"][]} */ sessions) => html`
    ${!sessions.length && html`<p class="quiet">Nobody has said anything yet.</p>`}
    <ul class="list">${sessions.map(({ session_id, agent_id, user_id, message_count, last_message_at, created_at }) => html`<li key=${session_id}>
      <a class="title" href=${to("sessions", [session_id])}><${Text} text=${session_id} /></a>
      <div class="small quiet"><a href=${to("owners", ["users", user_id])}>${visible(names.person(user_id))}</a> with <a href=${to("owners", ["agents", agent_id])}>${visible(names.agent(agent_id))}</a>
        · ${counted(message_count, "message")} · <${Time} at=${last_message_at ?? created_at} /> · <a href=${to("prompt", [], { agent_id, user_id })}>Prompt</a></div></li>`)}</ul>`}</${Loaded}></section>`;
}

/** How many there are; the kinds stand there before they are counted. @param {{ counts?: Stats["counts"] }} props */
const Counts = ({ counts }) => html`<ul class="tiles" aria-busy=${!counts}>${KINDS.map((kind) => html`
  <li key=${kind}><a href=${to(PAGE_OF[kind])}><b>${counts ? counts[kind].toLocaleString("en") : "…"}</b>${CALLED[kind] ?? kindOf(kind)}</a></li>`)}</ul>`;

/** So many of what waits are named. */
const NAMED_TO_DECIDE = 5;

/** What waits for somebody: findings and disputes. */
function ToDecide() {
  const loaded = useLoad((signal) => waitingOf({}, signal), [], ["finding", "fact", "memory"]);
  const names = useNames();
  return html`<section class="box" aria-label="To decide"><h2>To decide</h2><${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof waitingOf>>} */ waiting) => {
    const findings = waiting.filter((doubt) => "finding_id" in doubt).length, disputes = waiting.length - findings;
    if (!waiting.length) return html`<p>Nothing waits to be decided.</p>`;
    return html`<p><a href=${to("findings")}><b>${waiting.length.toLocaleString("en")}</b> to decide</a></p>
      <ul class="values">${waiting.slice(0, NAMED_TO_DECIDE).map((doubt) => html`<li key=${"finding_id" in doubt ? doubt.finding_id : idOf(doubt)}><${Text} text=${aboutOf(doubt, names.person)} long=${120} /></li>`)}</ul>
      <p class="quiet">${[disputes && `${disputes.toLocaleString("en")} contradicted when stored`, findings && `${findings.toLocaleString("en")} found by reflection`].filter(Boolean).join(", ")}.</p>`;
  }}</${Loaded}></section>`;
}

/** What the service counts is asked for last: each box stands there before, with its heading.
 * @param {{ title: string, stats?: Stats, lines?: number, children: (stats: Stats) => unknown }} props */
const Counted = ({ title, stats, lines, children }) => html`<section class="box"><h2>${title}</h2>${stats ? children(stats) : html`<${Waiting} lines=${lines} />`}</section>`;

/** @param {Stats} stats */
function growth({ growth: days }) {
  const x = days.map((day) => Date.parse(day.day) / 1000);
  const series = /** @type {const} */ (["memories", "sessions", "facts", "actions"]).map((kind) => ({
    name: CALLED[kind] ?? kind, values: days.map((day) => day[kind]),
  }));
  return html`<p class="quiet small">A value that ended is stated again, with its end: a fact may have several statements.</p><${Chart} label="Records created on each of the last 30 days" x=${x} series=${series} />`;
}

/** @param {Stats} stats */
function kinds(stats) {
  const parts = (/** @type {Record<string, number>} */ counts, /** @type {(name: string) => string} */ called) =>
    Object.entries(counts).sort((one, other) => other[1] - one[1]).map(([name, value]) => ({ name: called(name), value }));
  const { message = 0 } = stats.memories_by_type;
  return html`${message > 0 && html`<p class="quiet small">${counted(message, "memory", "memories")} ${message === 1 ? "is a message" : "are messages"} as said, which the count of messages has, too.</p>`}
    <h3>By type</h3><${Bar} label="Memories by type" parts=${parts(stats.memories_by_type, typeOf)} digits=${0} />
    <h3>By status</h3><${Bar} label="Memories by status" parts=${parts(stats.memories_by_status, words)} digits=${0} />`;
}

/** @param {Stats} stats */
function recalledLately({ recalled }) {
  return html`${recalled.length === 0 && html`<p class="quiet">Nothing since the service started.</p>`}
    <ul class="list">${recalled.map((memory) => html`<li key=${memory.memory_id}>
      <a class="title" href=${to("memories", [memory.memory_id])}><${Text} text=${memory.content} /></a>
      <div class="small quiet"><${Tag} of=${typeOf(memory.memory_type)} /> <${Time} at=${memory.recalled_at} /></div></li>`)}</ul>`;
}

/** "12 of 13 succeeded, 1 running". @param {Record<string, number>} statuses how many have each @param {number} [idle] how many had nothing to do */
function succeeded({ succeeded: good = 0, ...others }, idle = 0) {
  const rest = Object.entries(others).filter(([, count]) => count);
  const all = rest.reduce((sum, [, count]) => sum + count, good);
  const unused = idle ? `${idle} had nothing to do yet` : "";
  return all ? `${good.toLocaleString("en")} of ${all.toLocaleString("en")} succeeded${rest.map(([status, count]) => `, ${count.toLocaleString("en")} ${words(status)}`).join("")}${unused && `; ${unused}`}` : unused || "none yet";
}

/** Requests of the API that the service itself failed (5xx) by their route, and how many there were: of all tenants, since it started. The console's own files are none.
 * @param {string} metrics */
function requestsOf(metrics) {
  const all = samples(metrics, "recalld_http_requests_total").filter(({ labels }) => labels.includes('route="/v1/'));
  const failed = all.filter(({ labels }) => /status="5/.test(labels));
  const routes = Map.groupBy(failed, ({ labels }) => `${/method="([^"]*)"/.exec(labels)?.[1]} ${/route="([^"]*)"/.exec(labels)?.[1]}`);
  const sum = (/** @type {typeof all} */ of) => of.reduce((total, { value }) => total + value, 0);
  return { all: sum(all), failed: sum(failed), routes: [...routes].map(([route, of]) => ({ route, count: sum(of) })).sort((one, other) => other.count - one.count) };
}

/** Routes with failed requests that are named. */
const NAMED = 3;

/** How many requests failed, and where. @param {{ metrics: string }} props */
function Requests({ metrics }) {
  const { all, failed, routes } = requestsOf(metrics);
  if (!all) return html`<span class="quiet">not counted: the metrics are not read here</span>`;
  if (!failed) return html`none of ${all.toLocaleString("en")} failed`;
  return html`<${Tag} of=${`${failed.toLocaleString("en")} failed`} tone="bad" /> of ${all.toLocaleString("en")}: ${routes.slice(0, NAMED).map(({ route, count }, index) => html`${index > 0 && ", "}<${Path} of=${route} /> ${count}`)}${routes.length > NAMED && " and others"}`;
}

/** What was found in the texts that came in, by kind, since the service started; where it stands, each answer said. @param {{ metrics: string }} props */
function Secrets({ metrics }) {
  const kinds = Map.groupBy(samples(metrics, "recalld_secrets_found_total"), ({ labels }) => /kind="([^"]*)"/.exec(labels)?.[1] ?? "");
  const found = [...kinds].map(([kind, of]) => `${words(kind)} ${of.reduce((sum, { value }) => sum + value, 0).toLocaleString("en")}`);
  return found.length > 0 && html`<dt>Secrets in texts</dt><dd>${found.join(", ")}</dd>`;
}

/** @param {Schemas["JobInfo"]} job */
const hasFailed = (job) => job.outcome !== null && job.outcome !== "succeeded";

/** Whether it works: operations, jobs, requests, and how fast it answers.
 * @param {{ stats?: Stats, caller: import("../api.js").Caller, costs: { data?: Costs, error?: unknown } }} props */
function Health({ stats, caller, costs }) {
  const admin = may(caller, "admin");
  const jobs = useLoad(async (signal) => (admin ? (await ask(api.GET("/v1/jobs", { signal }))).items : []), [admin]);
  if (!stats) return html`<section class="box" aria-label="Health"><h2>Health</h2><${Waiting} lines=${5} /></section>`;
  const broken = (jobs.data ?? []).filter(hasFailed);
  const ill = Boolean(stats.operations_by_status.failed || broken.length || (costs.data && requestsOf(costs.data.metrics).failed));
  const { "": idle = [], ...ended } = Object.fromEntries(Map.groupBy(jobs.data ?? [], (job) => job.outcome ?? ""));
  const outcomes = Object.fromEntries(Object.entries(ended).map(([outcome, all]) => [outcome, all.length]));
  const [slowest] = routesOf(stats.latency).filter((row) => row.requests >= FEW);
  return html`<section class="box" aria-label="Health"><div class="row apart"><h2>Health</h2><${Tag} of=${ill ? "something failed" : "healthy"} tone=${ill ? "bad" : "good"} /></div><${ProblemBox} problem=${jobs.error} />
    <dl class="pairs"><dt><a href=${to("operations")}>Operations</a></dt><dd>${succeeded(stats.operations_by_status)}</dd>
      ${admin && html`<dt>Jobs</dt><dd>${jobs.data ? succeeded(outcomes, idle.length) : "…"}${broken.map((job) => html`<div key=${job.name}>${words(job.name)} <${Tag} of=${words(job.outcome ?? "")} tone="bad" /> <${Time} at=${job.last_run} /></div>`)}</dd>`}
      <dt>Requests</dt><dd>${!admin ? html`<span class="quiet">those that failed are counted for a key that administers</span>` : costs.data ? html`<${Requests} metrics=${costs.data.metrics} />` : "…"}</dd>
      ${costs.data && html`<${Secrets} metrics=${costs.data.metrics} />`}<dt>Speed</dt><dd>${slowest ? html`slowest: ${slowest.method} <${Path} of=${slowest.route} />, 95\u00a0% within ${Math.ceil(slowest.p95_ms)}\u00a0ms` : "too few requests to say how fast it answers"}</dd></dl>
    <p class="quiet small">Requests and speed are those since the service started; speed, of what was asked for ${FEW} times or more.</p></section>`;
}

/** Kinds of records that the bar of the storage names; the others are one part. */
const STORED = 6;

/** 1234567 bytes are "1.2 MB". @param {number} bytes */
const sized = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3).toLocaleString("en")} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

/** The samples of a metric: `recalld_stored_bytes{collection="facts"} 812` is labels `collection="facts"` and value 812.
 * @param {string} metrics @param {string} name */
const samples = (metrics, name) => [...metrics.matchAll(new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`, "gm"))].map(([, labels = "", value]) => ({ labels, value: Number(value) }));

/** The sum of the samples that have all these labels, or undefined where the metrics have none. @param {string} metrics @param {string} name @param {string[]} [labels] */
function summed(metrics, name, labels = []) {
  const values = samples(metrics, name).filter((sample) => labels.every((label) => sample.labels.includes(label))).map(({ value }) => value);
  return values.length ? values.reduce((sum, value) => sum + value, 0) : undefined;
}

/** What is stored and what a language model was asked for, which is what costs: counts of this process, and the most of a day.
 * @param {AbortSignal} signal */
async function cost(signal) {
  const [settings, metrics] = await Promise.all([ask(api.GET("/v1/settings", { signal })), ask(api.GET("/metrics", { parseAs: "text", signal })).then(String, () => "")]);
  const value = (/** @type {string} */ name) => settings.items.find((one) => one.name === `RECALLD_${name}`)?.value ?? "";
  return { server: value("LLM_BASE_URL"), model: value("LLM_MODEL"), budget: Number(value("LLM_TOKENS_PER_DAY")), embeddings: value("EMBEDDING_API_KEY"), metrics };
}

/** @typedef {Awaited<ReturnType<typeof cost>>} Costs */

/** The bytes and the number of records of the whole store. @param {{ metrics: string }} props */
function Stored({ metrics }) {
  const bytes = summed(metrics, "recalld_stored_bytes"), records = summed(metrics, "recalld_stored_records");
  if (bytes === undefined || records === undefined) return html`<p class="quiet">The metrics do not say how much is stored.</p>`;
  if (!records) return html`<p class="quiet">No record is stored yet.</p>`;
  const kinds = samples(metrics, "recalld_stored_bytes").filter(({ value }) => value > 0).sort((one, other) => other.value - one.value)
    .map(({ labels, value }) => ({ name: kindOf(/collection="([^"]*)"/.exec(labels)?.[1] ?? ""), value: value / 1000 }));
  const others = kinds.slice(STORED).reduce((sum, { value }) => sum + value, 0);
  return html`<p><b title=${`${bytes.toLocaleString("en")} bytes`}>${sized(bytes)}</b> in <b>${counted(records, "record")}</b>, of all tenants. Their indexes come on top.</p>
    <${Bar} label="Bytes by kind of record" digits=${0} unit=" kB" parts=${[...kinds.slice(0, STORED), ...(others > 0 ? [{ name: "others", value: others, tone: 7 }] : [])]} />`;
}

/** What a language model was asked for, and how many prompts were made. @param {Costs} props */
function Spent({ server, model, budget, embeddings, metrics }) {
  const tokens = summed(metrics, "recalld_llm_tokens_total"), calls = summed(metrics, "recalld_llm_usage_total", ['kind="calls"']);
  const prompts = summed(metrics, "recalld_http_requests_total", ['method="POST"', 'route="/v1/context"', 'status="200"']);
  return html`${server ? html`<p>${model}: ${tokens === undefined ? "its tokens are in the metrics" : html`<b>${counted(tokens, "token")}</b>${calls !== undefined && ` in ${counted(calls, "call")}`} since the service started`}.</p>
        <p class="quiet">${budget ? `At most ${counted(budget, "token")} of a tenant on one day.` : "No limit of a day is set."} What a token costs, its server says.</p>`
      : html`<p>${embeddings ? "This service calls no language model. Embeddings are asked of a server with a key." : "This service calls no language model, so nothing is paid for. What the models of your agents cost is not counted here."}</p>`}
    <p class="quiet">${prompts ? `${counted(prompts, "prompt")} built since the service started.` : "No prompt was built since the service started."}</p>`;
}

/** What the costs say, in a box that stands there before. @param {{ title: string, costs: { data?: Costs, error?: import("../api.js").Problem }, lines?: number, children: (costs: Costs) => unknown }} props */
const Costing = ({ title, costs, lines, children }) => html`<section class="box" aria-label=${title}><h2>${title}</h2><${ProblemBox} problem=${costs.error} />${costs.data ? children(costs.data) : !costs.error && html`<${Waiting} lines=${lines} />`}</section>`;

/** A path that may break after each of its slashes. @param {{ of: string }} props */
const Path = ({ of }) => html`<span class="path">${of.split("/").map((part, index) => html`${index > 0 && html`<wbr />/`}${part}`)}</span>`;

/** Without the stream of changes, which lasts as long as somebody listens: the slowest first, then those of too few requests. @param {Stats["latency"]} latency */
const routesOf = (latency) => (latency ?? []).filter((row) => row.route !== "/v1/changes")
  .sort((one, other) => Number(other.requests >= FEW) - Number(one.requests >= FEW) || (one.requests >= FEW ? other.p95_ms - one.p95_ms : other.requests - one.requests));

/** @param {Stats} stats */
function latencies({ latency }) {
  const rows = routesOf(latency);
  const shown = rows.filter(({ requests }) => requests >= FEW).slice(0, ROUTES);
  const rest = rows.slice(shown.length);
  return html`<p class="quiet small">Of this process since it started, in milliseconds. The median and the 95 % are estimates, from ${FEW} requests on.</p>
    ${shown.length ? html`<${Routes} rows=${shown} />` : html`<p>No route was asked for ${FEW} times yet.</p>`}
    ${rest.length > 0 && html`<${Fold} title=${counted(rest.length, shown.length ? "more route" : "route")}>${() => html`<${Routes} rows=${rest} />`}</${Fold}>`}`;
}

/** @param {{ rows: NonNullable<Stats["latency"]> }} props */
function Routes({ rows }) {
  return html`<table><thead><tr><th>Route</th><th class="number">Requests</th><th class="number">Median</th><th class="number">95 %</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td>${row.method} <${Path} of=${row.route} /></td><td class="number">${row.requests}</td>
      ${row.requests < FEW ? html`<td class="number quiet" colspan="2">too few</td>` : html`<td class="number">${row.p50_ms.toFixed(1)}</td><td class="number">${row.p95_ms.toFixed(1)}</td>`}</tr>`)}</tbody></table>`;
}

const FIRST = { agent_id: "support", user_id: "ada", content: "Ada prefers tea" };

/** @type {import("../console.js").Page} */
export default function Overview({ caller }) {
  const admin = may(caller, "admin");
  const { data: stats, error, again } = useLoad((signal) => ask(api.GET("/v1/stats", { signal })), []);
  const costs = useLoad(async (signal) => (admin ? cost(signal) : undefined), [admin]);
  const empty = stats && Object.values(stats.counts).every((count) => !count);
  return html`<h1>Overview</h1><${ProblemBox} problem=${error} again=${again} />
    ${(stats || !error) && html`<div class="grid first"><${Health} stats=${stats} caller=${caller} costs=${costs} /><${ToDecide} />
        ${admin && html`<${Costing} title="Cost" costs=${costs}>${(/** @type {Costs} */ data) => html`<${Spent} ...${data} />`}</${Costing}>`}</div>
      <${Counts} counts=${stats?.counts} />
      ${stats?.counts.memories === 0 && html`<${Empty} title="Nothing is remembered yet. This remembers one thing:"
        curl=${curl("POST", `${BASE}/v1/memories`, FIRST, Boolean(key.get()))}>
        <p>Or start <code>recalld demo</code>, which fills a throw-away store with a story.</p></${Empty}>`}
      <div class="columns">
        <div>${admin && html`<${Costing} title="Storage" costs=${costs} lines=${4}>${(/** @type {Costs} */ { metrics }) => html`<${Stored} metrics=${metrics} />`}</${Costing}>`}
          ${!empty && html`<${Counted} title="Memories" stats=${stats} lines=${4}>${kinds}</${Counted}>`}</div>
        ${!empty && html`<div><${SaidLately} /><${Counted} title="Growth" stats=${stats} lines=${8}>${growth}</${Counted}><${Counted} title="Recalled lately" stats=${stats}>${recalledLately}</${Counted}></div>`}
        ${admin && html`<div><${Counted} title="Latency" stats=${stats} lines=${8}>${latencies}</${Counted}></div>`}
      </div>
      ${stats && html`<p class="small quiet counted">Counted <${Time} at=${stats.counted_at} />. <button type="button" class="small" onClick=${again}>Count again</button></p>`}`}`;
}
