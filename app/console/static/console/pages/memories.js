/** Memories: search as one types, filters, and one memory beside the list. */
import { BASE, api, ask, key, may, useLoad, useModule, usePages } from "../api.js";
import { html, useEffect, useRef, useState } from "../ui.js";
import { Add, Chips, ChosenFilter, Order, TypedFilter, orderOf, useBulk, useChosen } from "../parts/collection.js";
import { Empty, More, ProblemBox, WaitingRows, useToast } from "../parts/feedback.js";
import { contentOf } from "../parts/records.js";
import { called, useKnown, useNames } from "../parts/scope.js";
import { LEAST_SHOWN, Scores } from "../parts/scores.js";
import { Since, useFactsOf } from "../parts/since.js";
import { Icon, Tag, Text, Time, counted, curl, typeOf, visible, words } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {{ memory: Memory, score?: number, scores?: Record<string, number>, contributions?: Record<string, number> }} Hit */
/** @typedef {Record<string, string>} Params */

const TYPES = ["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary", "document"];
const STATUSES = ["active", "superseded", "archived", "disputed"];
const NEW_TYPES = TYPES.filter((type) => !["message", "summary", "document"].includes(type));
const MODES = ["hybrid", "vector", "text"];
const TYPING_MS = 200;
const HITS = 20;
/** Records of a request for the list, and the most requests for one step of it: roll-ups are left out here. */
const ROWS = 30;
const MOST_REQUESTS = 4;
/** Persons and agents that are offered for a search. */
const CHOICES = 12;

/** The filters of the address as the list takes them. @param {Params} params */
function listQuery(params) {
  return {
    agent_id: params.agent_id, user_id: params.user_id, tag: params.tag, session_id: params.session_id,
    memory_type: /** @type {Memory["memory_type"] | undefined} */ (params.memory_type),
    status: /** @type {Memory["status"] | "any"} */ (params.status ?? "any"),
    pinned: params.pinned ? true : undefined, order: orderOf(params), limit: ROWS,
  };
}

/** Whether the service made it of actions, a day or a month in one memory. @param {Schemas["FoundMemory"]} memory */
const isRollup = ({ memory_type, source }) => memory_type === "summary" && source?.origin === "consolidation" && Boolean(source.action_ids?.length);

/** A step of the list without roll-ups: asks on until there is a screen of others. @param {Params} params @param {string | undefined} from @param {AbortSignal} signal */
async function listed(params, from, signal) {
  let cursor = from;
  /** @type {Memory[]} */
  const found = [];
  for (let asked = 0; asked < MOST_REQUESTS; asked++) {
    const page = await ask(api.GET("/v1/memories", { params: { query: { ...listQuery(params), cursor } }, signal }));
    found.push(...page.items.filter((memory) => params.rollups || !isRollup(memory)));
    cursor = page.next_cursor ?? undefined;
    if (!cursor || found.length >= HITS) break;
  }
  return { items: found.map((memory) => /** @type {Hit} */ ({ memory })), next_cursor: cursor ?? null };
}

/** The filters of the address as the search takes them. @param {Params} params @returns {Schemas["SearchRequest"]} */
export function searchBody(params) {
  return {
    query: params.query ?? "",
    ...(params.agent_id && { agent_id: params.agent_id }), ...(params.user_id && { user_id: params.user_id }), ...(params.everyone && !params.agent_id && !params.user_id && { everyone: true }),
    ...(params.session_id && { session_id: params.session_id }), ...(params.tag && { tags: [params.tag] }),
    ...(params.memory_type && { memory_types: [/** @type {Memory["memory_type"]} */ (params.memory_type)] }),
    ...(params.status && params.status !== "any" && { status: /** @type {Memory["status"]} */ (params.status) }),
    include_shared: Boolean(params.shared), mode: /** @type {Schemas["SearchMode"]} */ (params.mode ?? "hybrid"), top_k: HITS, explain: true, record_access: false,
  };
}

/** The list of the filters, or the hits of the query. @param {Params} params */
function useHits(params) {
  const searched = Boolean(params.query?.trim());
  const inputs = [JSON.stringify({ ...params, query: params.query?.trim() ?? "" })];
  const ready = !searched || Boolean(params.agent_id || params.user_id || params.everyone);
  return usePages(async (cursor, signal) => {
    if (!searched) return listed(params, cursor, signal);
    if (!ready) return { items: [], next_cursor: null };
    const found = await ask(api.POST("/v1/memories/search", { body: searchBody(params), signal }));
    const items = /** @type {Hit[]} */ (found.items).filter(({ memory }) => params.rollups || !isRollup(memory));
    return { items, next_cursor: null };
  }, inputs, searched ? [] : ["memory"]);
}

/** @param {Params} params */
const useLearned = ({ query, user_id }) => useFactsOf(query?.trim() ? user_id : undefined);

const FILTERS = { memory_type: "Type", status: "Status", tag: "Tag", session_id: "Session", mode: "Mode", pinned: "Pinned", rollups: "With roll-ups", shared: "With what is shared", everyone: "Of everyone" };

/** @param {{ params: Params, set: (given: Params) => void, children: unknown }} props */
function Filters({ params, set, children }) {
  const [typed, type] = useState(params.query ?? "");
  const sent = useRef(typed); // the address follows what is typed, a little later: it must not take back a letter typed meanwhile
  useEffect(() => {
    const query = params.query ?? "";
    if (query !== sent.current) type(sent.current = query);
  }, [params.query]);
  const send = () => set({ query: sent.current = typed });
  useEffect(() => {
    const timer = setTimeout(() => typed !== (params.query ?? "") && send(), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, set]); // `set` knows which memory is open by then
  return html`<form role="search" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}>
    <input type="search" aria-label="Search memories" placeholder="Search memories ( / )" value=${typed} maxlength="32000"
      onInput=${(/** @type {any} */ event) => type(event.target.value)} />
    <div class="filters">
      <${ChosenFilter} name="memory_type" label="Type" params=${params} set=${set} options=${TYPES} any="any type" />
      <${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${STATUSES} any=${params.query ? "active" : "any status"} />
      ${!params.query && html`<${Order} params=${params} set=${set} />`}
      ${params.query && params.user_id && params.agent_id && html`<label><input type="checkbox" checked=${Boolean(params.shared)} onChange=${(/** @type {any} */ event) => set({ shared: event.target.checked ? "1" : "" })} /> With what is shared</label>`}${children}
      <details class="more"><summary>More filters</summary><div class="filters">
        <${TypedFilter} name="tag" label="Tag" params=${params} set=${set} /><${TypedFilter} name="session_id" label="Session" params=${params} set=${set} />
        ${params.query ? html`<${ChosenFilter} name="mode" label="Mode" params=${params} set=${set} options=${MODES.slice(1)} any="hybrid" />`
          : html`<label><input type="checkbox" checked=${Boolean(params.pinned)} onChange=${(/** @type {any} */ event) => set({ pinned: event.target.checked ? "1" : "" })} /> Pinned</label>`}
        <label><input type="checkbox" checked=${Boolean(params.rollups)} onChange=${(/** @type {any} */ event) => set({ rollups: event.target.checked ? "1" : "" })} /> Roll-ups of actions</label></div></details></div><${Chips} params=${params} set=${set} names=${FILTERS} switches=${["pinned", "rollups", "shared", "everyone"]} /></form>`;
}

/** `turn`: chooses the row for work on several, where the key may write.
 * @param {{ hit: Hit, learned: import("../parts/since.js").Learned[], chosen: boolean, params: Params, picked: boolean, turn?: (id: string) => void }} props */
function Row({ hit, learned, chosen, params, picked, turn }) {
  const { memory } = hit;
  const names = useNames();
  const person = memory.user_id ? names.person(memory.user_id) : "";
  const speaker = memory.memory_type === "message" ? visible(memory.source?.speaker ?? memory.source?.role ?? "") : "";
  const about = [speaker && `said by ${speaker}`, memory.agent_id && names.agent(memory.agent_id), person ? person !== speaker && person : "shared with everyone"];
  return html`<li class=${`${chosen ? "chosen" : ""}${turn ? " pick" : ""}`}>
    ${turn && html`<input class="choose" type="checkbox" aria-label=${`Choose: ${visible(memory.content.slice(0, 80))}`} checked=${picked} onChange=${() => turn(memory.memory_id)} />`}
    <a class="title" href=${to("memories", [memory.memory_id], params)} aria-current=${chosen ? "true" : undefined}><${Text} text=${contentOf(memory)} long=${240} /></a>
    <div class="small quiet"><${Tag} of=${typeOf(memory.memory_type)} /> ${memory.status !== "active" && html`<${Tag} of=${words(memory.status)} tone=${memory.status === "disputed" ? "bad" : ""} />`}
      ${memory.pinned && html`<${Tag} of="pinned" />`} ${about.filter(Boolean).join(" · ")} · <${Time} at=${memory.created_at} /></div>
    <${Since} of=${learned} />${hit.score !== undefined && html`<${Scores} score=${hit.score} scores=${hit.scores} contributions=${hit.contributions} mode=${params.mode ?? "hybrid"} />`}</li>`;
}

/** What can be done with the chosen memories at once. @param {{ memories: Memory[], clear: () => void, again: () => void }} props */
function Bulk({ memories, clear, again }) {
  const patch = (/** @type {Memory} */ { memory_id }, /** @type {Schemas["MemoryPatch"]} */ body) => ask(api.PATCH("/v1/memories/{memory_id}", { params: { path: { memory_id } }, body }));
  const how = { noun: /** @type {[string, string]} */ (["memory", "memories"]), onDone: () => { clear(); again(); } };
  const pin = useBulk({ ...how, done: "pinned", does: (memory) => patch(memory, { pinned: true }), undoes: (memory) => patch(memory, { pinned: false }) });
  const archive = useBulk({ ...how, done: "archived", does: (memory) => patch(memory, { status: "archived" }), undoes: (memory) => patch(memory, { status: "active" }) });
  const loose = memories.filter((memory) => !memory.pinned);
  const active = memories.filter((memory) => memory.status === "active");
  return html`<div class="bulk" role="group" aria-label="Chosen memories"><b>${counted(memories.length, "memory", "memories")} chosen</b>
    <button type="button" disabled=${pin.busy || !loose.length} onClick=${() => pin.start(loose)}><${Icon} of="pin" /> Pin</button>
    <button type="button" disabled=${archive.busy || !active.length} onClick=${() => archive.start(active)}><${Icon} of="archive" /> Archive</button>
    <button type="button" class="plain" onClick=${clear}>Choose none</button></div>`;
}

/** A new memory of the person or agent that is chosen, or of one that is named. @param {{ params: Params, again: () => void }} props */
function AddMemory({ params, again }) {
  const toast = useToast();
  const save = async (/** @type {Record<string, string>} */ given) => {
    const { memory_id } = await ask(api.POST("/v1/memories", { body: /** @type {Schemas["MemoryCreate"]} */ (/** @type {unknown} */ (given)) }));
    again();
    toast({ text: "Remembered.", about: memory_id, undo: async () => {
      await ask(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id } } }));
      again();
    } });
  };
  return html`<${Add} title="Add a memory" save=${save} fields=${[{ name: "content", label: "What to remember", long: true }, { name: "memory_type", label: "Type", options: NEW_TYPES, value: "fact" },
    { name: "user_id", label: "Person", value: params.user_id, optional: true }, { name: "agent_id", label: "Agent", value: params.agent_id, optional: true }]} />`;
}

/** Whether the key may search everyone's memory. @param {import("../api.js").Caller} caller */
const seesAll = (caller) => may(caller, "admin") && !caller.users?.length && !caller.agents?.length;

/** Asks whose memories are to be searched: nobody is chosen unsaid. @param {{ set: (given: Params) => void, owners: import("../parts/scope.js").Known, caller: import("../api.js").Caller }} props */
function Whose({ set, owners, caller }) {
  const choice = (/** @type {string} */ name, /** @type {string} */ id, /** @type {string | null | undefined} */ word) => html`<button type="button" key=${name + id} onClick=${() => set({ [name]: id })}>${called(id, word)}</button>`;
  return html`<${Empty} title="Whose memories?"><p>A search looks into those of one person or one agent. Choose one:</p>
    <div class="filters">${seesAll(caller) && html`<button type="button" onClick=${() => set({ everyone: "1" })}>Everyone</button>`}${owners.users.slice(0, CHOICES).map((user) => choice("user_id", user.user_id, user.name))}${owners.agents.slice(0, CHOICES).map((agent) => choice("agent_id", agent.agent_id, agent.name))}</div></${Empty}>`;
}

/** @param {{ params: Params, set: (given: Params) => void, owners: import("../parts/scope.js").Known, caller: import("../api.js").Caller }} props */
function Nothing({ params, set, owners, caller }) {
  if (params.query?.trim() && !params.agent_id && !params.user_id && !params.everyone) return html`<${Whose} set=${set} owners=${owners} caller=${caller} />`;
  const filtered = Object.values(params).some(Boolean);
  const body = { agent_id: params.agent_id ?? "support", user_id: params.user_id ?? "ada", content: "Ada prefers tea" };
  return html`<${Empty} title=${filtered ? "No memory is like this. This remembers one:" : "Nothing is remembered yet. Add a memory above, or by a request:"}
    curl=${curl("POST", `${BASE}/v1/memories`, body, Boolean(key.get()))} />`;
}

/** The chosen memory. Its module, which brings charts and diffs, is fetched when one is chosen.
 * @param {Parameters<typeof import("./memory.js").default>[0]} props */
function Chosen(props) {
  const module = useModule("memory.js");
  return module.data ? html`<${module.data.default} ...${props} />` : html`<${ProblemBox} problem=${module.error} />`;
}

/** How many memories there are, which the service counts of the whole list alone: neither of a filter nor of a person. @param {Params} params @param {import("../api.js").Caller} caller */
function useTotal(params, caller) {
  const whole = !caller.users?.length && !caller.agents?.length && !Object.entries(params).some(([name, value]) => value && name !== "order" && name !== "rollups");
  return useLoad(async (signal) => (whole ? (await ask(api.GET("/v1/stats", { signal }))).counts.memories : undefined), [whole], ["memory"]).data;
}

/** What the list holds: how many of how many, and whether it has what is shared with everyone. The list and a search have one rule: whoever is chosen, and nobody else.
 * @param {Params} params @param {import("../api.js").Caller} caller @param {number} shown @param {boolean} more @param {number | undefined} total */
function told({ query, user_id, agent_id, rollups, shared }, caller, shown, more, total) {
  const searched = Boolean(query?.trim());
  const count = total === undefined ? more ? `The first ${counted(shown, "memory", "memories")}.` : searched ? "" : `${counted(shown, "memory", "memories")}.`
    : `${shown.toLocaleString("en")} of ${counted(total, "memory", "memories")}${rollups || more || shown === total ? "" : "; the others are roll-ups of actions"}.`;
  const whose = shared && user_id && agent_id && searched ? "With what the agent knows for everyone, and what other agents know of the person."
    : user_id ? "Without what is shared with everyone, which stands in the list of everyone."
    : agent_id && searched ? "What the agent knows for everyone; what it has of a person is found when the person is chosen, too."
    : caller.users?.length ? "With what is shared with everyone." : "";
  return [count, whose].filter(Boolean).join(" ");
}

/** @type {import("../console.js").Page} */
export default function Memories({ route, caller }) {
  const { params, rest: [chosen] } = route;
  const hits = useHits(params);
  const total = useTotal(params, caller);
  const learned = useLearned(params);
  const owners = useKnown();
  const set = (/** @type {Params} */ given) => go(to("memories", chosen ? [chosen] : [], { ...params, ...given }), { replace: true });
  const writes = may(caller, "write");
  const [picked, turn, clear] = useChosen();
  const [all, showAll] = useState("");
  const weak = hits.items?.filter((hit) => hit.score !== undefined && (params.mode ?? "hybrid") === "hybrid" && hit.score < LEAST_SHOWN).length ?? 0;
  const shown = weak && all !== params.query ? hits.items?.slice(0, -weak) : hits.items;
  const chosenOnes = (hits.items ?? []).map((hit) => hit.memory).filter((memory) => picked.has(memory.memory_id));
  return html`<h1>Memories</h1><${Filters} params=${params} set=${set}>${writes && html`<${AddMemory} params=${params} again=${hits.again} />`}</${Filters}><${ProblemBox} problem=${hits.error} again=${hits.again} />
    <div class=${chosen ? "two detail" : ""}>
      ${(hits.items ?? hits.loading) && html`<section class="box" aria-label="List of memories" aria-busy=${hits.loading}>
        ${hits.items?.length === 0 && !hits.loading && !hits.error && html`<${Nothing} params=${params} set=${set} owners=${owners} caller=${caller} />`}
        <${WaitingRows} of=${hits} />
        ${hits.items && hits.items.length > 0 && html`<p class="quiet small">${told(params, caller, hits.items.length, hits.next, total)}</p>`}
        ${chosenOnes.length > 0 && html`<${Bulk} memories=${chosenOnes} clear=${clear} again=${hits.again} />`}
        <ul class="list">${shown?.map((hit) => html`<${Row} key=${hit.memory.memory_id} hit=${hit} learned=${learned.get(hit.memory.memory_id) ?? []} params=${params} picked=${picked.has(hit.memory.memory_id)} turn=${writes ? turn : undefined} chosen=${hit.memory.memory_id === chosen} />`)}</ul>
        ${weak > 0 && all !== params.query && html`<p>${shown?.length === 0 && "Nothing fits. "}<button type="button" class="plain" onClick=${() => showAll(params.query)}>Show ${weak} more that hardly fit</button></p>`}
        <${More} of=${hits} /></section>`}
      ${chosen && html`<${Chosen} key=${chosen} id=${chosen} caller=${caller} owners=${owners} back=${to("memories", [], params)} onChange=${hits.again} />`}
    </div>`;
}
