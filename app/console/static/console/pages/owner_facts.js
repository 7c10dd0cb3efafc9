/** The facts of a user or agent: on a timeline and as a list, as of a time and as known at a time; one fact beside them. */
import { html } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Add, Chips, ChosenFilter, Order, TypedFilter, orderOf } from "../parts/collection.js";
import { Empty, More, ProblemBox, useToast } from "../parts/feedback.js";
import { SourceLink, Status } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Text, curl, statement } from "../parts/text.js";
import { go, to } from "../route.js";
import { FactView, held, span } from "./owner_fact.js";

/** @typedef {import("schema").components["schemas"]["Fact"]} Fact */
/** A fact as a sentence. @typedef {(fact: Fact) => string} Told */
/** The address of a fact beside the list. @typedef {(fact: Fact) => string} Open */

const DAY = 86_400_000;
const ROWS = 50;
const OTHERS = /** @type {const} */ (["disputed", "superseded", "retracted", "any"]);
const FILTERS = { status: "Status", subject: "About", predicate: "What of it", object: "Value", as_of: "As of", known_at: "Known at" };

/** The end of a day, so that the day itself is included; today means now. @param {number} day days since 1970 */
const momentOf = (day) => new Date(day * DAY + DAY - 1).toISOString();
const today = () => Math.floor(Date.now() / DAY);
/** @param {string | undefined} date a date such as 2026-05-01 */
const dayOf = (date) => (date ? Math.floor(Date.parse(date) / DAY) : today());
/** @param {number} day */
const dateOf = (day) => new Date(day * DAY).toISOString().slice(0, 10);

/** The filters of the address as the list takes them. @param {Record<string, string>} params */
function listQuery({ as_of, known_at, status, subject, predicate, object, order = "" }) {
  return {
    ...(as_of ? { as_of: momentOf(dayOf(as_of)) } : { timeline: true }), ...(known_at && { known_at: momentOf(dayOf(known_at)) }),
    status: OTHERS.find((one) => one === status) ?? /** @type {const} */ ("active"), subject, predicate, object, order: orderOf({ order }), limit: ROWS,
  };
}

/** @param {import("./owners.js").PartProps} props */
export function Facts({ id, owner, route, caller }) {
  const { fact: chosen, ...params } = route.params;
  const name = useNames().person(id);
  const told = (/** @type {Fact} */ fact) => statement(fact, owner.user_id && name);
  const set = (/** @type {Record<string, string>} */ given) => go(to(route.page, route.rest, { ...route.params, ...given }), { replace: true });
  const query = { ...owner, ...listQuery(params) };
  const facts = usePages((cursor, signal) => ask(api.GET("/v1/facts", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["fact"]);
  const first = useLoad((signal) => ask(api.GET("/v1/facts", { params: { query: { ...owner, timeline: true, status: "any", order: "asc", limit: 1 } }, signal })), []);
  const from = first.data?.items.length ? dayOf(first.data.items[0].known_from) - 1 : today() - 30;
  const open = (/** @type {Fact} */ fact) => to(route.page, route.rest, { ...params, fact: fact.fact_id });
  const body = { ...owner, subject: "Ada", predicate: "lives_in", object: "Boston" };
  return html`<form role="search" aria-label="Facts" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="box"><p class="quiet small">A fact has two times: when it is true, and when it was known.</p>
        <${DaySlider} label="As of (true then)" unset="any time" from=${from} value=${params.as_of} onChange=${(/** @type {string} */ date) => set({ as_of: date })} />
        <${DaySlider} label="Known at" unset="now" from=${from} value=${params.known_at} onChange=${(/** @type {string} */ date) => set({ known_at: date })} /></div>
      <div class="filters"><${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${OTHERS} any="believed" /><${Order} params=${params} set=${set} />
        ${may(caller, "write") && html`<${AddFact} owner=${owner} again=${facts.again} />`}
        <details class="more"><summary>More filters</summary><div class="filters"><${TypedFilter} name="subject" label="About" hint=${owner.user_id ? "@user" : ""} params=${params} set=${set} />
          <${TypedFilter} name="predicate" label="What of it" hint="lives in" params=${params} set=${set} /><${TypedFilter} name="object" label="Value" params=${params} set=${set} /></div></details></div>
      <${Chips} params=${params} set=${set} names=${FILTERS} /></form>
    <${ProblemBox} problem=${facts.error} />
    ${facts.items?.length === 0 && (first.data?.items.length ? html`<${Empty} title="Nothing is known for these times and filters." />`
      : html`<${Empty} title="No facts. Assert one:" curl=${curl("POST", `${BASE}/v1/facts`, body, Boolean(key.get()))} />`)}
    <div class=${chosen ? "two detail" : ""}>
      <div>${facts.items && facts.items.length > 0 && html`<${Timeline} facts=${facts.items} told=${told} open=${open} chosen=${chosen} /><${List} facts=${facts.items} told=${told} open=${open} chosen=${chosen}><${More} of=${facts} /></${List}>`}</div>
      ${chosen && html`<${FactView} key=${chosen} id=${chosen} told=${told} route=${route} caller=${caller} />`}</div>`;
}

/** @param {{ owner: import("./owners.js").Owner, again: () => void }} props */
function AddFact({ owner, again }) {
  const toast = useToast();
  const save = async (/** @type {Record<string, string>} */ { subject = "@user", predicate, object, cardinality }) => {
    const made = await ask(api.POST("/v1/facts", { body: { ...owner, subject, predicate, object, cardinality: /** @type {"one" | "many"} */ (cardinality) } }));
    again();
    toast({ text: "The fact is added.", undo: "fact_id" in made ? async () => {
      await ask(api.POST("/v1/facts/{fact_id}/retract", { params: { path: { fact_id: made.fact_id } } }));
      again();
    } : undefined });
  };
  return html`<${Add} title="Add a fact" save=${save} fields=${[
    { name: "subject", label: owner.user_id ? "Whom or what it is about; empty: this person" : "Whom or what it is about", optional: Boolean(owner.user_id) },
    { name: "predicate", label: "What of it", hint: "lives in" }, { name: "object", label: "Value", hint: "Boston" },
    { name: "cardinality", label: "Values that hold at a time", options: ["one", "many"], value: "one" }]} />`;
}

/** @param {{ facts: Fact[], told: Told, open: Open, chosen: string | undefined, children: unknown }} props */
function List({ facts, told, open, chosen, children }) {
  return html`<section class="box" aria-label="List of facts"><ul class="list">${facts.map((fact) => html`<li key=${fact.fact_id} class=${fact.fact_id === chosen ? "chosen" : ""}>
      <a class="title" href=${open(fact)} aria-current=${fact.fact_id === chosen ? "true" : undefined}><${Text} text=${told(fact)} long=${200} /></a>
      <div class="small quiet">${fact.status !== "active" && html`<${Status} of=${fact.status} /> `}${held(fact)} · <${SourceLink} of=${fact.source} /></div></li>`)}</ul>${children}</section>`;
}

/** A slider over days; its right end means the time of now, or any time.
 * @param {{ label: string, unset: string, from: number, value: string | undefined, onChange: (date: string) => void }} props */
function DaySlider({ label, unset, from, value, onChange }) {
  const last = today();
  return html`<label class="slide">${label}<input type="range" min=${from} max=${last + 1} step="1" value=${value ? dayOf(value) : last + 1}
    aria-valuetext=${value || unset} onInput=${(/** @type {any} */ event) => onChange(Number(event.target.value) > last ? "" : dateOf(Number(event.target.value)))} />
    <output>${value || unset}</output></label>`;
}

/** @param {{ facts: Fact[], told: Told, open: Open, chosen: string | undefined }} props */
function Timeline({ facts, told, open, chosen }) {
  const starts = facts.map((fact) => Date.parse(fact.valid_from ?? fact.known_from));
  const end = Math.max(Date.now(), ...facts.map((fact) => (fact.valid_until ? Date.parse(fact.valid_until) : 0)));
  const begin = Math.min(...starts, end - DAY);
  const share = (/** @type {number} */ at) => Math.max(0, Math.min(100, ((at - begin) / (end - begin)) * 100));
  /** @type {Map<string, Fact[]>} */
  const lanes = new Map();
  for (const fact of facts) {
    const lane = told({ ...fact, object: "" }).trim();
    lanes.set(lane, [...(lanes.get(lane) ?? []), fact]);
  }
  const place = (/** @type {Fact} */ fact) => {
    const left = fact.valid_from ? share(Date.parse(fact.valid_from)) : 0;
    return { left: `${left}%`, width: `${Math.max(1, (fact.valid_until ? share(Date.parse(fact.valid_until)) : 100) - left)}%` };
  };
  return html`<section class="box" aria-label="Timeline"><div class="row apart small quiet"><span>${new Date(begin).toISOString().slice(0, 10)}</span><span>${new Date(end).toISOString().slice(0, 10)}</span></div>
    ${[...lanes].map(([lane, items]) => html`<div class="lane" key=${lane}><${Text} text=${lane} long=${120} /><div>${rows(items).map((row) => html`<div class="spans">
      ${row.map((fact) => html`<a key=${fact.fact_id} class=${fact.status} href=${open(fact)} style=${place(fact)} title=${describe(fact)} aria-current=${fact.fact_id === chosen ? "true" : undefined}>${fact.object.slice(0, 200)}</a>`)}</div>`)}</div></div>`)}</section>`;
}

/** Rows of spans that do not overlap. @param {Fact[]} facts @returns {Fact[][]} */
function rows(facts) {
  /** @type {{ until: string, row: Fact[] }[]} */
  const made = [];
  for (const fact of [...facts].sort((one, other) => (one.valid_from ?? "").localeCompare(other.valid_from ?? ""))) {
    const free = made.find((one) => one.until <= (fact.valid_from ?? ""));
    const until = fact.valid_until ?? "9999";
    if (free) {
      free.row.push(fact);
      free.until = until;
    } else made.push({ until, row: [fact] });
  }
  return made.map((one) => one.row);
}

/** @param {Fact} fact */
const describe = (fact) => `${fact.object.slice(0, 200)}: ${fact.status}, true ${span(fact.valid_from, fact.valid_until)}, known ${span(fact.known_from, fact.known_until)}`;
