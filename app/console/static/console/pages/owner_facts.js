/** The facts of a person or agent: on a timeline and as a list, as of a time and as known at a time; one fact beside them. */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Add, Chips, ChosenFilter, Order, TypedFilter, orderOf } from "../parts/collection.js";
import { Empty, More, ProblemBox, useToast } from "../parts/feedback.js";
import { ContradictedBy, useChallenged } from "../parts/doubts.js";
import { Sources, Status } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Tag, Text, curl, span, statement, words } from "../parts/text.js";
import { go, to } from "../route.js";
import { FactView, held } from "./owner_fact.js";

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
export default function Facts({ id, owner, route, caller }) {
  const { fact: chosen, ...params } = route.params;
  const name = useNames().person(id);
  const told = (/** @type {Fact} */ fact) => statement(fact, owner.user_id && name);
  const set = (/** @type {Record<string, string>} */ given) => go(to(route.page, route.rest, { ...route.params, ...given }), { replace: true });
  const query = { ...owner, ...listQuery(params) };
  const facts = usePages((cursor, signal) => ask(api.GET("/v1/facts", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["fact"]);
  const first = useLoad((signal) => ask(api.GET("/v1/facts", { params: { query: { ...owner, timeline: true, status: "any", order: "asc", limit: 1 } }, signal })), []);
  const from = first.data?.items.length ? dayOf(first.data.items[0].known_from) - 1 : today() - 30;
  const challenged = useChallenged(owner);
  const open = (/** @type {Fact} */ fact) => to(route.page, route.rest, { ...params, fact: fact.fact_id });
  // the bars and rows are drawn again when one of these has changed, not with each answer that the page gets
  const rows = useMemo(() => {
    const moment = params.as_of ? Date.parse(momentOf(dayOf(params.as_of))) : Date.now();
    // the service sorts by when a fact was told; by when it was true can be sorted where all are here
    const shown = facts.next ? facts.items ?? [] : sorted(facts.items ?? [], orderOf(params), moment);
    return shown.length > 0 && html`<${Timeline} facts=${shown} challenged=${challenged} told=${told} open=${open} chosen=${chosen} moment=${moment} /><${List} facts=${shown} challenged=${challenged} told=${told} open=${open} chosen=${chosen} moment=${moment}>${facts.next && html`<p class="quiet small">These ${shown.length} stand in the order in which they were told. Once all are shown, in the order in which they were true.</p>`}<${More} of=${facts} /></${List}>`;
  }, [facts.items, facts.next, JSON.stringify(route), location.hash, name, JSON.stringify([...challenged])]);
  const body = { ...owner, subject: "Ada", predicate: "lives_in", object: "Boston" };
  return html`<form role="search" aria-label="Facts" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="box"><p class="quiet small">A fact has two times: when it is true, and when it was known.</p>
        <${DaySlider} label="As of (true then)" unset="any time" from=${from} value=${params.as_of} onChange=${(/** @type {string} */ date) => set({ as_of: date })} />
        <${DaySlider} label="Known at" unset="now" from=${from} value=${params.known_at} onChange=${(/** @type {string} */ date) => set({ known_at: date })} /></div>
      <div class="filters"><${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${OTHERS} any=${params.as_of ? "holds then" : "holds or ended"} /><${Order} params=${params} set=${set} />
        ${may(caller, "write") && html`<${AddFact} owner=${owner} again=${facts.again} />`}
        <details class="more"><summary>More filters</summary><div class="filters"><${TypedFilter} name="subject" label="About" hint=${owner.user_id ? "@user" : ""} params=${params} set=${set} />
          <${TypedFilter} name="predicate" label="What of it" hint="lives in" params=${params} set=${set} /><${TypedFilter} name="object" label="Value" params=${params} set=${set} /></div></details></div>
      <${Chips} params=${params} set=${set} names=${FILTERS} /></form>
    <${ProblemBox} problem=${facts.error} />
    ${facts.items?.length === 0 && (first.data?.items.length ? html`<${Empty} title="Nothing is known for these times and filters." />`
      : html`<${Empty} title="No facts. Assert one:" curl=${curl("POST", `${BASE}/v1/facts`, body, Boolean(key.get()))} />`)}
    <div class=${chosen ? "two detail" : ""}>
      <div>${rows}</div>
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

/** Whether it was true, and is no longer. @param {Fact} fact @param {number} moment */
const hasEnded = (fact, moment) => fact.status === "active" && fact.valid_until !== null && Date.parse(fact.valid_until) <= moment;

/** The order of what is true, not of the rows: "lives in Bergedorf, since November" is newer than "lived in Altona, since May", whichever was written first.
 * @param {Fact[]} facts @param {"asc" | "desc" | undefined} order @param {number} moment */
function sorted(facts, order, moment) {
  const start = (/** @type {Fact} */ fact) => Date.parse(fact.valid_from ?? fact.known_from);
  const newest = [...facts].sort((one, other) => start(other) - start(one) || Number(hasEnded(one, moment)) - Number(hasEnded(other, moment)));
  return order === "asc" ? newest.reverse() : newest;
}

/** @param {{ facts: Fact[], challenged: Map<string, import("../parts/doubts.js").Challenge>, told: Told, open: Open, chosen: string | undefined, moment: number, children: unknown }} props */
function List({ facts, challenged, told, open, chosen, moment, children }) {
  const names = useNames();
  const rowOf = (/** @type {Fact} */ fact) => [fact.fact_id === chosen ? "chosen" : "", hasEnded(fact, moment) ? "ended" : ""].join(" ").trim();
  return html`<section class="box" aria-label="List of facts"><ul class="list">${facts.map((fact) => html`<li key=${fact.fact_id} class=${rowOf(fact)}>
      <a class="title" href=${open(fact)} aria-current=${fact.fact_id === chosen ? "true" : undefined}><${Text} text=${told(fact)} long=${200} /></a>
      <div class="small quiet">${fact.status !== "active" && html`<${Status} of=${fact.status} /> `}${fact.status === "disputed" && "left out of answers until it is decided · "}${hasEnded(fact, moment) && html`<${Tag} of="ended" /> `}${fact.status === "active" && challenged.has(fact.fact_id) && html`<${ContradictedBy} of=${challenged.get(fact.fact_id)} /> · `}${held(fact)} · <${Sources} of=${fact.source} who=${fact.user_id ? names.person(fact.user_id) : undefined} /></div></li>`)}</ul>${children}</section>`;
}

/** A slider over days; its right end means the time of now, or any time.
 * @param {{ label: string, unset: string, from: number, value: string | undefined, onChange: (date: string) => void }} props */
function DaySlider({ label, unset, from, value, onChange }) {
  const last = today();
  return html`<label class="slide">${label}<input type="range" min=${from} max=${last + 1} step="1" value=${value ? dayOf(value) : last + 1}
    aria-valuetext=${value || unset} onInput=${(/** @type {any} */ event) => onChange(Number(event.target.value) > last ? "" : dateOf(Number(event.target.value)))} />
    <output>${value || unset}</output></label>`;
}

/** The width of a letter of a bar's label, and of the space around the label, in pixels. */
const LETTER = 7;
const AROUND = 20;
const LONGEST = 40;
/** The most of the width that a label beside its bar takes; a longer one has two lines. */
const MOST_BESIDE = 0.4;
const LOOKS = 3;
/** The width of a date of the axis, in pixels, and the months from one tick to the next. */
const DATE = 72;
const STEPS = [1, 2, 3, 6, 12, 24, 60, 120];

/** The firsts of months between two times. @param {number} begin @param {number} end @param {number} most @returns {number[]} */
function months(begin, end, most) {
  const first = new Date(begin);
  const all = [];
  for (let month = 1; ; month++) {
    const at = Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + month, 1);
    if (at >= end) break;
    all.push(at);
  }
  const step = STEPS.find((one) => all.length / one <= most) ?? 120;
  return all.filter((at) => (new Date(at).getUTCFullYear() * 12 + new Date(at).getUTCMonth()) % step === 0);
}

const MONTH = new Intl.DateTimeFormat("en-GB", { month: "short", year: "numeric", timeZone: "UTC" });
const dayAt = (/** @type {number} */ at) => new Date(at).toISOString().slice(0, 10);

/** @param {{ begin: number, end: number, share: (at: number) => number, scale: number, pixels: number }} props */
function Axis({ begin, end, share, scale, pixels }) {
  const near = (DATE / pixels) * 100; // a tick there would stand in the date of an end
  const ticks = months(begin, end, pixels / DATE).filter((at) => share(at) > near && share(at) < scale * 100 - 2 * near);
  return html`<div class="lane axis small quiet"><span></span><div class="spans"><span class="first">${dayAt(begin)}</span>
    ${ticks.map((at) => html`<span key=${at} style=${{ left: `${share(at)}%` }}>${MONTH.format(at)}</span>`)}<span class="last" style=${{ right: `${(1 - scale) * 100}%` }}>${dayAt(end)}</span></div></div>`;
}

/** A bar in percent of the width, where its label stands, and how far both reach.
 * @typedef {{ fact: Fact, left: number, width: number, label: "" | "after", from: number, until: number }} Span */

/** @param {{ facts: Fact[], challenged: Map<string, import("../parts/doubts.js").Challenge>, told: Told, open: Open, chosen: string | undefined, moment: number }} props */
function Timeline({ facts, challenged, told, open, chosen, moment }) {
  const node = useRef(/** @type {HTMLElement | null} */ (null));
  const [pixels, setPixels] = useState(800);
  useLayoutEffect(() => {
    const box = node.current?.querySelector(".spans");
    if (!box) return undefined;
    const resized = new ResizeObserver(() => setPixels(box.clientWidth)); // which calls first before the browser paints
    resized.observe(box);
    return () => resized.disconnect();
  }, []);
  const starts = facts.map((fact) => Date.parse(fact.valid_from ?? fact.known_from));
  const end = Math.max(Date.now(), ...facts.map((fact) => (fact.valid_until ? Date.parse(fact.valid_until) : 0)));
  const begin = Math.min(...starts, end - DAY);
  /** @param {Fact} fact */
  const isContradicted = (fact) => fact.status === "disputed" || (fact.status === "active" && challenged.has(fact.fact_id));
  /** What stands on a bar: the value, and that something else contradicts it. @param {Fact} fact */
  const labelOf = (fact) => `${fact.object}${isContradicted(fact) ? " · contradicted" : ""}`;
  const needed = (/** @type {Fact} */ fact) => Math.min((Math.min(labelOf(fact).length, LONGEST) * LETTER + AROUND) / pixels, MOST_BESIDE);
  const part = (/** @type {number} */ at) => Math.max(0, Math.min(1, (at - begin) / (end - begin)));
  const scale = 1 - beside(facts.map((fact) => ({ from: fact.valid_from ? part(Date.parse(fact.valid_from)) : 0, until: fact.valid_until ? part(Date.parse(fact.valid_until)) : 1, needs: needed(fact) })));
  const share = (/** @type {number} */ at) => part(at) * scale * 100;
  /** @type {Map<string, Fact[]>} */
  const lanes = new Map();
  for (const fact of facts) {
    const lane = told({ ...fact, object: "" }).trim();
    lanes.set(lane, [...(lanes.get(lane) ?? []), fact]);
  }
  const placed = (/** @type {Fact} */ fact) => {
    const left = fact.valid_from ? Math.min(scale * 100 - 1, share(Date.parse(fact.valid_from))) : 0;
    const width = Math.max(1, (fact.valid_until ? share(Date.parse(fact.valid_until)) : scale * 100) - left);
    return spanOf(fact, left, width, needed(fact) * 100);
  };
  const bar = (/** @type {Span} */ { fact, left, width, label }) => html`<a key=${fact.fact_id} class=${`${hasEnded(fact, moment) ? "ended" : fact.status}${isContradicted(fact) ? " contradicted" : ""}`} href=${open(fact)} style=${{ left: `${left}%`, width: `${width}%` }}
    title=${describe(fact)} aria-current=${fact.fact_id === chosen ? "true" : undefined}><span class=${label && needed(fact) * pixels < labelOf(fact).length * LETTER ? `${label} lines` : label} style=${label && { maxWidth: `${needed(fact) * pixels}px` }}>${labelOf(fact).slice(0, label ? LONGEST : 200)}</span></a>`;
  return html`<section class="box" aria-label="Timeline" ref=${node}><${Axis} begin=${begin} end=${end} share=${share} scale=${scale} pixels=${pixels} />
    ${[...lanes].map(([lane, items]) => html`<div class="lane" key=${lane}><${Text} text=${lane} long=${120} /><div>${rows(items.map(placed)).map((row) => html`<div class="spans">${row.map(bar)}</div>`)}</div></div>`)}</section>`;
}

/** How much of the width the labels behind bars that end late and are too narrow for them need. A label before its bar would
 * look as if it held earlier. @param {{ from: number, until: number, needs: number }[]} spans as parts of the width */
function beside(spans) {
  let free = 0;
  for (let look = 0; look < LOOKS; look++) { // the more is left free, the more bars are too narrow
    const narrow = spans.filter(({ from, until, needs }) => (until - from) * (1 - free) < needs);
    free = Math.max(free, ...narrow.map(({ until, needs }) => 1 - (1 - needs) / until));
  }
  return free;
}

/** The label of a bar that is too narrow for it stands behind the bar, where there is room.
 * @param {Fact} fact @param {number} left @param {number} width @param {number} needs the width of the label @returns {Span} */
function spanOf(fact, left, width, needs) {
  const until = left + width;
  if (width < needs && until + needs <= 100) return { fact, left, width, label: "after", from: left, until: until + needs };
  return { fact, left, width, label: "", from: left, until };
}

/** Rows of spans that do not overlap. @param {Span[]} spans @returns {Span[][]} */
function rows(spans) {
  /** @type {Span[][]} */
  const made = [];
  for (const span of [...spans].sort((one, other) => one.from - other.from)) {
    const free = made.find((row) => row[row.length - 1].until <= span.from + 0.01);
    if (free) free.push(span);
    else made.push([span]);
  }
  return made;
}

/** @param {Fact} fact */
const describe = (fact) => `${fact.object.slice(0, 200)}: ${words(fact.status)}, true ${span(fact.valid_from, fact.valid_until)}, known ${span(fact.known_from, fact.known_until)}`;
