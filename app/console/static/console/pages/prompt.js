/** Prompt: why an agent said something. What a model gets for a query, the entries with their turns, and what was left out. */
import { html, useEffect, useState } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { Bar } from "../parts/bars.js";
import { Loaded } from "../parts/feedback.js";
import { called, choose, owning, useKnown } from "../parts/scope.js";
import { Requests } from "../parts/requests.js";
import { Code } from "../parts/text.js";
import { go, parse, scopeOf, to } from "../route.js";
import { Dropped, Kept, droppedTold, sectionTitle, useOrigins } from "./prompt_entries.js";
import { AskedTurn, ReplacedSince, asOf, askedBefore } from "./prompt_turn.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Context"]} Context */

const SECTIONS = /** @type {const} */ ([
  "instructions", "profile", "uncertain", "working", "summary", "messages", "memories", "facts", "procedures", "experience", "episodes",
]);
const SLIDERS = /** @type {const} */ ([
  { name: "token_budget", label: "Budget in tokens", min: 100, max: 16000, step: 100, usual: 4000 },
  { name: "min_score", label: "Least score", min: 0, max: 1, step: 0.01, usual: 0 },
  { name: "min_importance", label: "Least importance of now", min: 0, max: 1, step: 0.01, usual: 0 },
  { name: "min_trust", label: "Least trust", min: 0, max: 1, step: 0.01, usual: 0 },
]);
const CHOICES = /** @type {const} */ ([
  { name: "intent", label: "Intent", options: ["auto", "general", "recall", "execute"], told: { auto: "inferred", general: "all kinds alike", recall: "what is known", execute: "what to do" } },
  { name: "format", label: "Format", options: ["markdown", "messages"], told: {} },
  { name: "citations", label: "Citations", options: ["numbers", "ids", "none"], told: {} },
]);
/** What an intent changes, and by what the service chooses it. @type {Record<Schemas["Intent"], { changes: string, chosen: string }>} */
const INTENTS = {
  general: { changes: "no kind of entry counts more than another", chosen: "nothing that was found surely answers the query" },
  recall: { changes: "memories and facts count 1.25 times as much", chosen: "something that is known answers the query" },
  execute: { changes: "procedures count 1.5 times, experience and past actions 1.25 times as much", chosen: "a procedure answers the query best, or a task is named" },
};
const PAUSE = 250;
/** Agents that are offered where none is chosen. */
const CHOICES_OF_AGENTS = 12;

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

/** What was typed for one turn is not that for another. @type {import("../console.js").Page} */
export default function Prompt({ route }) {
  const { session_id, turn } = route.params;
  return html`<${Built} key=${turn ? `${session_id}/${turn}` : ""} route=${route} />`;
}

/** @param {{ route: import("../route.js").Route }} props */
function Built({ route }) {
  const { params } = route;
  const [typed, setTyped] = useState(() => {
    const { user_id, agent_id, ...others } = params;  // these two are chosen in the frame, and `to` carries them
    return /** @type {Record<string, string>} */ (others);
  });
  const known = useKnown();
  const set = (/** @type {string} */ name, /** @type {string} */ value) => setTyped((old) => ({ ...old, [name]: value }));
  /** Brings what was typed into the address. It is made when it is used: whose memory it is may be chosen meanwhile. */
  const write = () => {
    const address = to("prompt", [], typed);
    if (address !== location.hash) go(address, { replace: true });
  };
  const { turn } = params;
  const asked = useLoad(async (signal) => (turn ? askedBefore(params.session_id ?? "", Number(turn), signal) : undefined), [params.session_id, turn]);
  const body = turn ? asked.data && { ...request(params), ...asOf(asked.data) } : request(params);
  const complete = Boolean(body?.query?.trim() && params.agent_id?.trim());
  useEffect(() => {  // what a slider or a field says goes into the address, and from there into the request
    const timer = setTimeout(write, PAUSE);
    return () => clearTimeout(timer);
  }, [JSON.stringify(typed)]);
  const made = useLoad(async (signal) => (body && complete ? ask(api.POST("/v1/context", { body: { ...body, explain: true }, signal })) : undefined),
    [JSON.stringify(complete ? body : "")]);
  const slider = (/** @type {typeof SLIDERS[number]} */ { name, label, usual, ...bounds }) => html`<${Slider} key=${name} label=${label} ...${bounds} usual=${usual}
    value=${typed[name]} onChange=${(/** @type {string} */ value) => set(name, value)} />`;
  const form = html`<form class=${turn ? "" : "box"} onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); write(); made.again(); }}>
      ${!turn && html`<label class="query">Query <input type="search" value=${typed.query ?? ""} placeholder="What does the person ask?"
        onInput=${(/** @type {any} */ event) => set("query", event.target.value)} /></label>`}
      <div class="filters">${!turn && html`<label>Session <input size="16" value=${typed.session_id ?? ""} onInput=${(/** @type {any} */ event) => set("session_id", event.target.value)} /></label>`}
        ${CHOICES.map(({ name, label, options, told }) => html`<label>${label} <select value=${typed[name] ?? options[0]}
          onChange=${(/** @type {any} */ event) => set(name, event.target.value)}>${options.map((option) => html`<option value=${option}>${option}${/** @type {Record<string, string>} */ (told)[option] && `: ${/** @type {Record<string, string>} */ (told)[option]}`}</option>`)}</select></label>`)}
        <button type="submit" class="main">Make the prompt</button></div>
      ${SLIDERS.slice(0, 1).map(slider)}
      <details open=${SLIDERS.slice(1).some(({ name }) => params[name])}><summary>Limits: the least that an entry needs</summary>${SLIDERS.slice(1).map(slider)}</details>
      <${Shares} params=${typed} set=${set} />
    </form>`;
  return html`<h1>Prompt</h1>
    <p class="quiet">Why did it say that? What a model gets for a query, the turn behind each entry, and what was left out.</p>
    ${turn ? html`<${Loaded} of=${asked}>${(/** @type {import("./prompt_turn.js").Asked} */ of) => html`<${AskedTurn} asked=${of} session_id=${params.session_id} />`}</${Loaded}>
      <details class="box"><summary>What the prompt is built with</summary>${form}</details>` : form}
    ${!turn && !complete && html`<div class="empty" role="status"><p>A query and an agent are needed.</p>
      ${!params.agent_id && html`<p class="quiet">Which agent asks?</p><div class="filters">${known.agents.toSorted((one, other) => (other.last_active ?? "").localeCompare(one.last_active ?? "")).slice(0, CHOICES_OF_AGENTS).map((agent) => html`
        <button type="button" key=${agent.agent_id} title=${owning(agent)} onClick=${() => choose(route, "agent_id", agent.agent_id)}>${called(agent.agent_id, agent.name)}</button>`)}</div>`}</div>`}
    <${Loaded} of=${made}>${(/** @type {Context} */ context) => html`<${Made} context=${context} at=${asked.data?.at}>
      ${asked.data && html`<${ReplacedSince} at=${asked.data.at} owner=${scopeOf(route)} />`}</${Made}>`}</${Loaded}>
    ${complete && html`<${Requests} path="/v1/context" body=${body} />`}`;
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
      onChange=${() => turn(name)} /> ${sectionTitle(name)}</label>
      <${Slider} label=${`Share of ${sectionTitle(name)}`} min=${0} max=${1} step=${0.05} usual=${1} value=${params[`share_${name}`]}
        onChange=${(/** @type {string} */ value) => set(`share_${name}`, value)} /></div>`)}</details>`;
}

/** @param {{ context: Context, at?: string, children?: unknown }} props `at`: the moment that it is built for, if not now; `children`: what stands below what was dropped */
function Made({ context, at, children }) {
  const owner = scopeOf(parse(location.hash));
  const { intent, min_score } = parse(location.hash).params;
  const { origins, facts } = useOrigins(context, owner, at);
  const inSections = context.sections.reduce((sum, section) => sum + section.tokens, 0);
  const frame = context.tokens - inSections;
  const parts = [...context.sections.map((section) => ({ name: sectionTitle(section.name), value: section.tokens })), ...(frame > 0 ? [{ name: "Opening and closing lines", value: frame, tone: 7, title: "They stand around the sections, and tell the model that these are data" }] : [])];
  const kept = context.sections.reduce((count, section) => count + section.items.length, 0);
  const milliseconds = Number(context.took_ms.total ?? 0).toFixed(0);
  return html`<section class="box"><h2>Budget</h2>
      <p>${context.tokens} of ${context.budget} tokens, ${milliseconds} ms.
        <span class="quiet"> The query has ${context.query_tokens} tokens of its own.</span></p>
      <p class="quiet">Intent <b>${context.intent}</b>: ${INTENTS[context.intent].changes}, ${intent ? "as you set it" : `because ${INTENTS[context.intent].chosen}`}.</p>
      <${Bar} label="Tokens of the budget by section" parts=${parts} whole=${context.budget} digits=${0} />
      ${[...context.errors, ...context.warnings].map((one) => html`<p class="problem">${one.code}: ${one.detail}</p>`)}</section>
    <div class="two prompted"><section class="box"><h2>The prompt</h2>
        ${context.messages.length ? context.messages.map((message) => html`<h3>${message.role}</h3><pre class="plain prompt" tabindex="0">${message.content ?? ""}</pre>`)
          : context.text ? html`<div class="wrapped"><${Code} text=${context.text} label="Copy the prompt" /></div>` : html`<p class="quiet">Nothing is remembered that fits.</p>`}</section>
      <section class="box" aria-label="Kept"><h2>Kept (${kept})</h2><${Kept} context=${context} at=${at} facts=${facts} origins=${origins} /></section>
      <div><section class="box" aria-label="Dropped"><details open><summary><b>${context.dropped.length} dropped${context.dropped.length > 0 && ":"}</b> ${droppedTold(context)}</summary><${Dropped} context=${context} origins=${origins} least=${min_score} /></details></section>${children}</div></div>`;
}
