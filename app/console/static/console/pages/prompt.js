/** Prompt: what a model would get for a query, what was kept and what was dropped. */
import { html, useEffect, useState } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { Bar } from "../parts/bars.js";
import { Loaded } from "../parts/feedback.js";
import { RecordLink, owners } from "../parts/records.js";
import { Requests } from "../parts/requests.js";
import { Code, Tag, Text } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Context"]} Context */

const SECTIONS = /** @type {const} */ ([
  "instructions", "profile", "uncertain", "working", "summary", "messages", "memories", "facts", "procedures", "experience", "episodes",
]);
const REASONS = /** @type {Record<Schemas["DropReason"], string>} */ ({
  budget: "the budget was used up", section_budget: "its section was full", limit: "its section has enough items",
  duplicate: "another entry says the same", score: "its score is too low", importance: "it matters too little by now",
});
const SLIDERS = /** @type {const} */ ([
  { name: "token_budget", label: "Budget in tokens", min: 100, max: 16000, step: 100, usual: 4000 },
  { name: "min_score", label: "Least score", min: 0, max: 1, step: 0.01, usual: 0 },
  { name: "min_importance", label: "Least importance", min: 0, max: 1, step: 0.01, usual: 0 },
  { name: "min_trust", label: "Least trust", min: 0, max: 1, step: 0.01, usual: 0 },
]);
const CHOICES = /** @type {const} */ ([
  { name: "intent", label: "Intent", options: ["auto", "general", "recall", "execute"] },
  { name: "format", label: "Format", options: ["markdown", "messages"] },
  { name: "citations", label: "Citations", options: ["numbers", "ids", "none"] },
]);
const PAUSE = 250;

/**
 * The body of the request that the address stands for. Only what was set is in it.
 * @param {Record<string, string>} params @returns {Schemas["ContextRequest"]}
 */
export function request(params) {
  /** @type {Record<string, unknown>} */
  const body = { query: params.query, agent_id: params.agent_id };
  for (const name of ["user_id", "session_id", ...CHOICES.map((choice) => choice.name)]) if (params[name]) body[name] = params[name];
  for (const { name } of SLIDERS) if (params[name]) body[name] = Number(params[name]);
  /** @type {Record<string, { share: number }>} */
  const sections = {};
  for (const name of SECTIONS) if (params[`share_${name}`]) sections[name] = { share: Number(params[`share_${name}`]) };
  if (Object.keys(sections).length) body.sections = sections;
  if (params.exclude) body.exclude = params.exclude.split(",");
  return /** @type {Schemas["ContextRequest"]} */ (body);
}

/** @type {import("../console.js").Page} */
export default function Prompt({ route }) {
  const { params } = route;
  const [typed, setTyped] = useState(params);
  const known = useLoad((signal) => owners(signal), []);
  const set = (/** @type {string} */ name, /** @type {string} */ value) => setTyped((old) => ({ ...old, [name]: value }));
  const address = to("prompt", [], typed);
  const complete = Boolean(params.query?.trim() && params.agent_id?.trim());
  useEffect(() => {  // what a slider or a field says goes into the address, and from there into the request
    const timer = setTimeout(() => address !== location.hash && go(address, { replace: true }), PAUSE);
    return () => clearTimeout(timer);
  }, [address]);
  const made = useLoad(async (signal) => (complete ? ask(api.POST("/v1/context", { body: request(params), signal })) : undefined),
    [JSON.stringify(params)]);
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string[]} */ suggested = []) => html`<label>${label}
    <input list=${`prompt-${name}`} size="16" value=${typed[name] ?? ""} onInput=${(/** @type {any} */ event) => set(name, event.target.value)} />
    <datalist id=${`prompt-${name}`}>${suggested.map((id) => html`<option value=${id} />`)}</datalist></label>`;
  return html`<h1>Prompt</h1>
    <p class="quiet">What a model would get for a query: <code>POST /v1/context</code>.</p>
    <form class="box" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); go(address, { replace: true }); made.again(); }}>
      <label class="query">Query <input type="search" value=${typed.query ?? ""} placeholder="What does the user ask?"
        onInput=${(/** @type {any} */ event) => set("query", event.target.value)} /></label>
      <div class="filters">${field("agent_id", "Agent", known.data?.agent_id)}${field("user_id", "User", known.data?.user_id)}${field("session_id", "Session")}
        ${CHOICES.map(({ name, label, options }) => html`<label>${label} <select value=${typed[name] ?? options[0]}
          onChange=${(/** @type {any} */ event) => set(name, event.target.value)}>${options.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>`)}
        <button type="submit" class="main">Make the prompt</button></div>
      ${SLIDERS.map(({ name, label, usual, ...bounds }) => html`<${Slider} label=${label} ...${bounds} usual=${usual} value=${typed[name]}
        onChange=${(/** @type {string} */ value) => set(name, value)} />`)}
      <${Shares} params=${typed} set=${set} />
    </form>
    ${!complete && html`<p class="quiet" role="status">A query and an agent are needed.</p>`}
    <${Loaded} of=${made}>${(/** @type {Context} */ context) => html`<${Made} context=${context} />`}</${Loaded}>
    ${complete && html`<${Requests} path="/v1/context" body=${request(params)} />`}`;
}

/** A slider that says what it stands at; unset it says “default”.
 * @param {{ label: string, min: number, max: number, step: number, usual: number, value: string | undefined, onChange: (value: string) => void }} props */
function Slider({ label, min, max, step, usual, value, onChange }) {
  return html`<label class="slide">${label}
    <input type="range" min=${min} max=${max} step=${step} value=${value || usual} onInput=${(/** @type {any} */ event) => onChange(event.target.value)} />
    <output>${value || "default"}</output></label>`;
}

/** The bounds of each section. @param {{ params: Record<string, string>, set: (name: string, value: string) => void }} props */
function Shares({ params, set }) {
  const excluded = new Set((params.exclude ?? "").split(",").filter(Boolean));
  const turn = (/** @type {string} */ name) => {
    if (!excluded.delete(name)) excluded.add(name);
    set("exclude", [...excluded].join(","));
  };
  return html`<details><summary>Sections: what may be in it, and how much of the budget each may take</summary>
    ${SECTIONS.map((name) => html`<div key=${name} class="row"><label><input type="checkbox" checked=${!excluded.has(name)}
      onChange=${() => turn(name)} /> ${name}</label>
      <${Slider} label=${`Share of ${name}`} min=${0} max=${1} step=${0.05} usual=${1} value=${params[`share_${name}`]}
        onChange=${(/** @type {string} */ value) => set(`share_${name}`, value)} /></div>`)}</details>`;
}

/** @param {{ context: Context }} props */
function Made({ context }) {
  const parts = context.sections.map((section) => ({ name: section.name, value: section.tokens }));
  const kept = context.sections.flatMap((section) => section.items.map((item) => ({ ...item, section: section.name })));
  const milliseconds = Number(context.took_ms.total ?? 0).toFixed(0);
  return html`<section class="box"><h2>Budget</h2>
      <p>${context.tokens} of ${context.budget} tokens, intent <${Tag} of=${context.intent} />, ${milliseconds} ms.
        <span class="quiet"> The query has ${context.query_tokens} tokens of its own.</span></p>
      <${Bar} label="Tokens of the budget by section" parts=${parts} whole=${context.budget} digits=${0} />
      ${[...context.errors, ...context.warnings].map((one) => html`<p class="problem">${one.code}: ${one.detail}</p>`)}</section>
    <div class="two"><section class="box"><h2>The prompt</h2>
      ${context.messages.length ? context.messages.map((message) => html`<h3>${message.role}</h3><pre class="plain prompt" tabindex="0">${message.content ?? ""}</pre>`)
        : context.text ? html`<div class="wrapped"><${Code} text=${context.text} label="Copy the prompt" /></div>` : html`<p class="quiet">Nothing is remembered that fits.</p>`}</section>
    <div><section class="box"><h2>Kept (${kept.length})</h2><div class="scroll" tabindex="0" role="region" aria-label="Kept">
      <table><thead><tr><th>Section</th><th>Record</th><th>Cited</th><th>Score</th><th>Tokens</th></tr></thead>
      <tbody>${kept.map((item) => html`<tr key=${item.section + item.id}><td>${item.section}</td><td><${RecordLink} id=${item.id} /> <span class="quiet small">${item.type}</span></td>
        <td>${item.citation ?? ""}</td><td class="number">${item.score?.toFixed(3) ?? ""}</td><td class="number">${item.tokens}</td></tr>`)}</tbody></table></div></section>
    <section class="box"><h2>Dropped (${context.dropped.length})</h2><${Dropped} items=${context.dropped} /></section></div></div>`;
}

/** What was left out, each with the reason. @param {{ items: Context["dropped"] }} props */
function Dropped({ items }) {
  if (!items.length) return html`<p class="quiet">Nothing: all that was found is in it.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Dropped"><table><thead><tr><th>Record</th><th>Why</th></tr></thead>
    <tbody>${items.map((item) => html`<tr key=${item.id}><td><${DroppedRecord} id=${item.id} /></td><td>${REASONS[item.reason]} <${Tag} of=${item.reason} /></td></tr>`)}</tbody></table></div>`;
}

/** A dropped record; its text is fetched when it is asked for. @param {{ id: string }} props */
function DroppedRecord({ id }) {
  const [text, setText] = useState("");
  const show = async () => {
    const memory = await ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id: id } } })).catch(() => undefined);
    setText(memory?.content ?? "It is gone, or not for this key.");
  };
  return html`<${RecordLink} id=${id} /> ${id.startsWith("mem_") && (text ? html`<div><${Text} text=${text} long=${200} /></div>`
    : html`<button type="button" class="plain small" onClick=${show}>Show text</button>`)}`;
}
