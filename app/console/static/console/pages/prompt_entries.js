/** The entries of a prompt: what was kept and what was left out, each with the turn that it comes from. */
import { html, useEffect, useState } from "../ui.js";
import { api, ask } from "../api.js";
import { ProblemBox, useAction } from "../parts/feedback.js";
import { RecordLink, SourceLink } from "../parts/records.js";
import { Strength } from "../parts/scores.js";
import { Since, useFactsOf } from "../parts/since.js";
import { Tag, Text, counted, statement, words } from "../parts/text.js";
import { ContradictedBy, useChallenged } from "../parts/doubts.js";
import { parse, scopeOf, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Context"]} Context */
/** @typedef {{ text: string, source: Schemas["Source"], href: string }} Origin */

/** Why entries were left out, as it stands beside a number and, with a capital, above the entries: "12 hardly fits". */
const REASONS = /** @type {Record<Schemas["DropReason"], string>} */ ({
  budget: "no room left", section_budget: "section full", limit: "enough in the section", duplicate: "said already", enough: "more than was asked for",
  score: "hardly fits", importance: "unimportant by now",
});
const ENTRY = /^- \[([^\]]+)\] (.*)$/;
const HEADING = /^(#|<)/;

/** The texts of the entries by what they are cited as: "- [3] home: Bergedorf". An entry may have several lines.
 * @param {Context} context @returns {Map<string, string>} */
export function entryTexts(context) {
  const whole = [context.text ?? "", ...context.messages.map((message) => (typeof message.content === "string" ? message.content : ""))].join("\n");
  /** @type {Map<string, string>} */
  const texts = new Map();
  let current = "";
  for (const line of whole.split("\n")) {
    const entry = ENTRY.exec(line);
    if (entry) texts.set(current = entry[1], entry[2]);
    else if (HEADING.test(line)) current = "";
    else if (current) texts.set(current, `${texts.get(current)}\n${line}`);
  }
  return texts;
}

/** What an entry was made of, or undefined where it is no record. @param {string} id @returns {Promise<Origin> | undefined} */
function originOf(id) {
  if (id.startsWith("mem_")) {
    return ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id: id } } }))
      .then((memory) => ({ text: memory.content, source: memory.source, href: to("memories", [id]) }));
  }
  if (id.startsWith("fact_")) {
    return ask(api.GET("/v1/facts/{fact_id}", { params: { path: { fact_id: id } } })).then((fact) => ({
      text: statement(fact), source: fact.source,
      href: to("owners", [...(fact.user_id ? ["users", fact.user_id] : ["agents", fact.agent_id ?? ""]), "facts"], { fact: id }),
    }));
  }
  return undefined;
}

const RECORD = /^(mem|fact)_/;
/** What has an id of the service and no page of its own, by how the id begins. */
const KINDS = /** @type {Record<string, string>} */ ({ act: "action", proc: "procedure" });
/** What was left out is told by its id alone: the first few are looked up at once. */
const LOOKED_UP = 5;
/** Where what was left out stands open with the page, so many: a view asks for twelve things at most. */
const OPEN_AT_ONCE = 3;

/** Entries of the prompt that show at once where they come from. */
const OPEN_AT_FIRST = 2;

/** The page of what is no record with an id of its own: a field of the profile, a lesson, an action, a talk that was recorded.
 * @param {string} type @param {{ user_id?: string, agent_id?: string }} owner */
function pageOf(type, { user_id, agent_id }) {
  if (["profile", "interaction", "issue", "solution"].includes(type)) return user_id && to("owners", ["users", user_id, "profile"]);
  const part = { experience: "experience", action: "actions", procedure: "procedures" }[type];
  return part && agent_id && to("owners", ["agents", agent_id, part]);
}

/** The turn that an entry comes from, when it is asked for or `atOnce`. @param {{ id: string, withText?: boolean, atOnce?: boolean }} props */
function WhereFrom({ id, withText = false, atOnce = false }) {
  const [origin, set] = useState(/** @type {Origin | undefined} */ (undefined));
  const look = useAction(async () => set(await originOf(id)));
  useEffect(() => { if (atOnce && RECORD.test(id) && !origin) look.start(); }, [atOnce]);
  if (!RECORD.test(id)) return null;
  if (look.error?.status === 404) return html`<span class="small quiet">It is gone, or not for this key.</span>`;
  if (!origin) return html`<button type="button" class="plain small" disabled=${look.busy} onClick=${look.start}>Where from</button><${ProblemBox} problem=${look.error} />`;
  return html`${withText && html`<div class="whole"><${Text} text=${origin.text} long=${200} /></div>`}
    <span class="small quiet"><${SourceLink} of=${origin.source} /> · <a href=${origin.href}>open the record</a></span>`;
}

/** @param {{ context: Context, at?: string }} props `at`: the moment that the prompt is built for; without it, now */
export function Kept({ context, at }) {
  const texts = entryTexts(context);
  const owner = scopeOf(parse(location.hash));
  const marked = /** @type {typeof owner} */ (at ? {} : owner); // what is known of an entry today was not known at an earlier moment
  const learned = useFactsOf(marked.user_id);
  /** What of an entry is outdated; that the rest still holds needs no word. @param {string} id */
  const outdated = (id) => (learned.get(id) ?? []).filter(({ next }) => next);
  const challenged = useChallenged(marked);
  const headings = (/** @type {Context["sections"][number]} */ { tokens, items }) => tokens - items.reduce((sum, item) => sum + item.tokens, 0);
  const first = new Set(context.sections.flatMap(({ items }) => items.map(({ id }) => id)).filter((id) => RECORD.test(id)).slice(0, OPEN_AT_FIRST));
  return html`${context.sections.map((section) => html`<section key=${section.name}><h3 class="capital">${words(section.name)} <span class="quiet">${counted(section.tokens, "token")}${headings(section) > 0 && `, ${headings(section)} of them for headings`}</span></h3>
    <ul class="list">${section.items.map((item) => html`<li key=${item.id}>
      <div>${item.citation && html`<span class="quiet">[${item.citation}]</span> `}${texts.has(item.citation ?? "") ? html`<${Text} text=${texts.get(item.citation ?? "")} long=${300} />` : html`<${RecordLink} id=${item.id} />`}</div>
      <${Since} of=${outdated(item.id)} />
      <div class="entry small"><${Tag} of=${words(item.type)} /><${ContradictedBy} of=${[item.id, ...item.links].map((id) => challenged.get(id)).find(Boolean)} />${item.score !== null && html`<${Strength} probability=${item.score} />`}<span class="quiet">${counted(item.tokens, "token")}</span><${WhereFrom} id=${item.id} atOnce=${first.has(item.id)} />${!RECORD.test(item.id) && pageOf(item.type, owner) && html`<a href=${pageOf(item.type, owner)}>Where from</a>`}</div></li>`)}</ul></section>`)}`;
}

/** How many were left out for which reason: "20 said already, 12 hardly fits". @param {Context} context */
export const droppedTold = ({ dropped }) => [...Map.groupBy(dropped, ({ reason }) => reason)].sort(([, one], [, other]) => other.length - one.length)
  .map(([reason, items]) => `${items.length} ${REASONS[reason]}`).join(", ");

/** What was left out, by the reason.
 * @param {{ context: Context, open: boolean }} props `open`: with what the first reason left out; each record that is shown is one request */
export function Dropped({ context, open }) {
  const items = context.dropped;
  const citations = new Map(context.sections.flatMap((section) => section.items).map((item) => [item.id, item.citation]));
  if (!items.length) return html`<p class="quiet">Nothing: all that was found is in it.</p>`;
  const reasons = /** @type {Schemas["DropReason"][]} */ (Object.keys(REASONS)).filter((reason) => items.some((item) => item.reason === reason));
  return reasons.map((reason, index) => html`<${Reason} key=${reason} reason=${reason} atFirst=${open && index === 0} dropped=${items.filter((item) => item.reason === reason)} citations=${citations} left=${context.budget - context.tokens} />`);
}

/** What was left out for one reason. @param {{ reason: Schemas["DropReason"], dropped: Context["dropped"], citations: Map<string, string | null>, left: number, atFirst: boolean }} props `citations`: what stands for each entry of the prompt; `left`: tokens of the budget that nothing took */
function Reason({ reason, dropped, citations, left, atFirst }) {
  const [open, setOpen] = useState(atFirst);
  const records = dropped.filter((item) => RECORD.test(item.id));
  const same = (/** @type {string[]} */ repeats) => repeats.map((id) => citations.get(id)).filter(Boolean).map((citation) => `[${citation}]`).join(", ");
  const row = (/** @type {Context["dropped"][number]} */ { id, repeats = [] }, /** @type {boolean} */ atOnce) => html`<li key=${id}><div class="entry"><${WhereFrom} id=${id} withText=${true} atOnce=${atOnce} /><${RecordLink} id=${id} />${same(repeats) && html`<span class="small quiet">same as ${same(repeats)}</span>`}</div></li>`;
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}><summary>${REASONS[reason].replace(/^./, (letter) => letter.toUpperCase())}${reason === "budget" && ` (${counted(left, "token")})`} <span class="quiet">(${dropped.length})</span></summary>
      <ul class="list">${records.slice(0, LOOKED_UP).map((item, index) => row(item, open && (!atFirst || index < OPEN_AT_ONCE)))}</ul>
      ${records.length > LOOKED_UP && html`<details class="rest"><summary class="small">${counted(records.length - LOOKED_UP, "more record")}</summary><ul class="list">${records.slice(LOOKED_UP).map((item) => row(item, false))}</ul></details>`}
      ${others(dropped).map(([name, count]) => html`<p key=${name} class="small quiet">Also ${counted(count, "entry", "entries")} of the kind ${name}</p>`)}</details>`;
}

/** What is no record of its own, by its kind: ["experience", 4]. @param {Context["dropped"]} items */
function others(items) {
  const names = items.filter((item) => !RECORD.test(item.id)).map(({ id }) => KINDS[id.split("_")[0]] ?? words(id.split(":")[0]));
  return [...new Set(names)].map((name) => /** @type {[string, number]} */ ([name, names.filter((one) => one === name).length]));
}
