/** Memories: search as one types, filters, and one memory beside the list. */
import { BASE, api, ask, key, useLoad, usePages } from "../api.js";
import { html, useEffect, useState } from "../ui.js";
import { Empty, More, ProblemBox } from "../parts/feedback.js";
import { Scores } from "../parts/scores.js";
import { Tag, Text, Time, curl } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {{ memory: Memory, score?: number, scores?: Record<string, number>, contributions?: Record<string, number> }} Hit */
/** @typedef {Record<string, string>} Params */

const TYPES = ["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary"];
const STATUSES = ["active", "superseded", "archived", "disputed"];
const MODES = ["hybrid", "vector", "text"];
const TYPING_MS = 200;
const HITS = 20;

/** The filters of the address as the list takes them. @param {Params} params */
function listQuery(params) {
  return {
    agent_id: params.agent_id, user_id: params.user_id, tag: params.tag, session_id: params.session_id,
    memory_type: /** @type {Memory["memory_type"] | undefined} */ (params.memory_type),
    status: /** @type {Memory["status"] | "any"} */ (params.status ?? "any"),
    pinned: params.pinned ? true : undefined, limit: HITS,
  };
}

/** The filters of the address as the search takes them. @param {Params} params @returns {Schemas["SearchRequest"]} */
export function searchBody(params) {
  return {
    query: params.query ?? "",
    ...(params.agent_id && { agent_id: params.agent_id }), ...(params.user_id && { user_id: params.user_id }),
    ...(params.session_id && { session_id: params.session_id }), ...(params.tag && { tags: [params.tag] }),
    ...(params.memory_type && { memory_types: [/** @type {Memory["memory_type"]} */ (params.memory_type)] }),
    ...(params.status && params.status !== "any" && { status: /** @type {Memory["status"]} */ (params.status) }),
    mode: /** @type {Schemas["SearchMode"]} */ (params.mode ?? "hybrid"), top_k: HITS, explain: true, record_access: false,
  };
}

/** The agents and users to choose from: the first hundred that are registered. `every`: these are all agents.
 * @typedef {{ agents: Schemas["Agent"][], every: boolean, users: string[] }} Owners */
function useOwners() {
  return useLoad(async (signal) => {
    const [agents, users] = await Promise.all([
      ask(api.GET("/v1/agents", { params: { query: { limit: 100 } }, signal })),
      ask(api.GET("/v1/users", { params: { query: { limit: 100 } }, signal })),
    ]);
    return { agents: agents.items, every: !agents.next_cursor, users: users.items.map((one) => one.user_id) };
  }, []);
}

/** The list of the filters, or the hits of the query. @param {Params} params */
function useHits(params) {
  const searched = Boolean(params.query?.trim());
  const inputs = [JSON.stringify({ ...params, query: params.query?.trim() ?? "" })];
  const ready = !searched || Boolean(params.agent_id || params.user_id);
  return usePages(async (cursor, signal) => {
    if (!searched) {
      const page = await ask(api.GET("/v1/memories", { params: { query: { ...listQuery(params), cursor } }, signal }));
      return { items: page.items.map((memory) => /** @type {Hit} */ ({ memory })), next_cursor: page.next_cursor ?? null };
    }
    if (!ready) return { items: [], next_cursor: null };
    const found = await ask(api.POST("/v1/memories/search", { body: searchBody(params), signal }));
    return { items: /** @type {Hit[]} */ (found.items), next_cursor: null };
  }, inputs);
}

/** @param {{ name: string, params: Params, set: (given: Params) => void, options: string[], any: string }} props */
function Choice({ name, params, set, options, any }) {
  return html`<label>${name.replace("memory_", "")} <select value=${params[name] ?? ""}
    onChange=${(/** @type {any} */ event) => set({ [name]: event.target.value })}>
    <option value="">${any}</option>${options.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>`;
}

/** @param {{ name: string, params: Params, set: (given: Params) => void, options?: string[] }} props */
function Field({ name, params, set, options = [] }) {
  return html`<label>${name.replace("_id", "")} <input size="12" key=${params[name]} defaultValue=${params[name] ?? ""} list=${`of-${name}`}
    onChange=${(/** @type {any} */ event) => set({ [name]: event.target.value.trim() })} />
    <datalist id=${`of-${name}`}>${options.map((one) => html`<option value=${one}></option>`)}</datalist></label>`;
}

/** @param {{ params: Params, set: (given: Params) => void, owners: Owners | undefined }} props */
function Filters({ params, set, owners }) {
  const [typed, type] = useState(params.query ?? "");
  useEffect(() => type(params.query ?? ""), [params.query]);
  useEffect(() => {
    const timer = setTimeout(() => typed !== (params.query ?? "") && set({ query: typed }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<form role="search" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); set({ query: typed }); }}>
    <input type="search" aria-label="Search memories" placeholder="Search memories ( / )" value=${typed} maxlength="32000"
      onInput=${(/** @type {any} */ event) => type(event.target.value)} />
    <div class="filters">
      <${Field} name="agent_id" params=${params} set=${set} options=${owners?.agents.map((one) => one.agent_id)} />
      <${Field} name="user_id" params=${params} set=${set} options=${owners?.users} />
      <${Choice} name="memory_type" params=${params} set=${set} options=${TYPES} any="any type" />
      <${Choice} name="status" params=${params} set=${set} options=${STATUSES} any=${params.query ? "active" : "any status"} />
      <${Field} name="tag" params=${params} set=${set} /><${Field} name="session_id" params=${params} set=${set} />
      ${params.query ? html`<${Choice} name="mode" params=${params} set=${set} options=${MODES.slice(1)} any="hybrid" />`
        : html`<label><input type="checkbox" checked=${Boolean(params.pinned)}
          onChange=${(/** @type {any} */ event) => set({ pinned: event.target.checked ? "1" : "" })} /> pinned</label>`}
    </div></form>`;
}

/** @param {{ hit: Hit, chosen: boolean, params: Params }} props */
function Row({ hit, chosen, params }) {
  const { memory } = hit;
  return html`<li class=${chosen ? "chosen" : ""}>
    <a href=${to("memories", [memory.memory_id], params)} aria-current=${chosen ? "true" : undefined}><${Text} text=${memory.content} long=${240} /></a>
    <div class="small quiet"><${Tag} of=${memory.memory_type} /> ${memory.status !== "active" && html`<${Tag} of=${memory.status} tone=${memory.status === "disputed" ? "bad" : ""} />`}
      ${memory.pinned && html`<${Tag} of="pinned" />`} ${[memory.agent_id, memory.user_id].filter(Boolean).join(" · ")} · <${Time} at=${memory.created_at} />${` · importance ${memory.importance.toFixed(2)}`}</div>
    ${hit.score !== undefined && html`<${Scores} score=${hit.score} scores=${hit.scores} contributions=${hit.contributions} mode=${params.mode ?? "hybrid"} />`}</li>`;
}

/** @param {{ params: Params }} props */
function Nothing({ params }) {
  if (params.query && !params.agent_id && !params.user_id) {
    return html`<${Empty} title="A search needs an agent or a user."><p>Choose one above: memories of others are never searched along.</p></${Empty}>`;
  }
  const filtered = Object.values(params).some(Boolean);
  const body = { agent_id: params.agent_id ?? "support", user_id: params.user_id ?? "ada", content: "Ada prefers tea" };
  return html`<${Empty} title=${filtered ? "No memory is like this. This remembers one:" : "Nothing is remembered yet. This remembers one thing:"}
    curl=${curl("POST", `${BASE}/v1/memories`, body, Boolean(key.get()))} />`;
}

/** The chosen memory. Its module, which brings charts and diffs, is fetched when one is chosen.
 * @param {Parameters<typeof import("./memory.js").MemoryView>[0]} props */
function Chosen(props) {
  const module = useLoad(() => import("./memory.js"), []);
  return module.data ? html`<${module.data.MemoryView} ...${props} />` : html`<${ProblemBox} problem=${module.error} />`;
}

/** @type {import("../console.js").Page} */
export default function Memories({ route, caller }) {
  const { params, rest: [chosen] } = route;
  const hits = useHits(params);
  const owners = useOwners();
  const owner = hits.items?.[0]?.memory;
  const set = (/** @type {Params} */ given) => {
    const next = { ...params, ...given };
    if (next.query && !next.agent_id && !next.user_id && owner) { // search what the list begins with
      if (owner.user_id) next.user_id = owner.user_id;
      else if (owner.agent_id) next.agent_id = owner.agent_id;
    }
    go(to("memories", chosen ? [chosen] : [], next), { replace: true });
  };
  return html`<h1>Memories</h1><${Filters} params=${params} set=${set} owners=${owners.data} /><${ProblemBox} problem=${hits.error} />
    <div class=${chosen ? "two detail" : ""}>
      <section class="box" aria-label="List of memories" aria-busy=${hits.loading}>
        ${hits.items?.length === 0 && !hits.loading && !hits.error && html`<${Nothing} params=${params} />`}
        ${!hits.items && hits.loading && html`<p class="quiet" role="status">Loading…</p>`}
        <ul class="list">${hits.items?.map((hit) => html`<${Row} key=${hit.memory.memory_id} hit=${hit} params=${params} chosen=${hit.memory.memory_id === chosen} />`)}</ul>
        <${More} of=${hits} /></section>
      ${chosen && html`<${Chosen} key=${chosen} id=${chosen} caller=${caller} owners=${owners} back=${to("memories", [], params)} onChange=${hits.again} />`}
    </div>`;
}
