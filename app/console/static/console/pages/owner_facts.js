/** The facts of a user or agent on a timeline, as of a time and as known at a time. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad } from "../api.js";
import { Add } from "../parts/collection.js";
import { Confirm, Dialog, Empty, Loaded, useToast } from "../parts/feedback.js";
import { Status } from "../parts/records.js";
import { Text, Time, curl, statement } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]["Fact"]} Fact */

const DAY = 86_400_000;
const MOST = 100;
const SHOWN = /** @type {const} */ (["active", "any", "disputed"]);

/** The end of a day, so that the day itself is included; today means now. @param {number} day days since 1970 */
const momentOf = (day) => new Date(day * DAY + DAY - 1).toISOString();
const today = () => Math.floor(Date.now() / DAY);
/** @param {string | undefined} date a date such as 2026-05-01 */
const dayOf = (date) => (date ? Math.floor(Date.parse(date) / DAY) : today());
/** @param {number} day */
const dateOf = (day) => new Date(day * DAY).toISOString().slice(0, 10);

/** @param {import("./owners.js").PartProps} props */
export function Facts({ owner, route, caller }) {
  const { as_of, known_at, fact } = route.params;
  const status = SHOWN.find((one) => one === route.params.status) ?? "active";
  const set = (/** @type {Record<string, string>} */ given) => go(to(route.page, route.rest, { ...route.params, ...given }), { replace: true });
  const times = {
    ...(as_of ? { as_of: momentOf(dayOf(as_of)) } : { timeline: true }), ...(known_at ? { known_at: momentOf(dayOf(known_at)) } : {}),
  };
  const loaded = useLoad((signal) => ask(api.GET("/v1/facts", { params: { query: { ...owner, ...times, status, limit: MOST } }, signal })),
    [JSON.stringify([owner, times, status])], ["fact"]);
  const toast = useToast();
  const add = async (/** @type {Record<string, string>} */ { subject = "@user", predicate, object, cardinality }) => {
    const made = await ask(api.POST("/v1/facts", { body: { ...owner, subject, predicate, object, cardinality: /** @type {"one" | "many"} */ (cardinality) } }));
    loaded.again();
    toast({ text: "The fact is added.", undo: "fact_id" in made ? async () => {
      await ask(api.POST("/v1/facts/{fact_id}/retract", { params: { path: { fact_id: made.fact_id } } }));
      loaded.again();
    } : undefined });
  };
  const first = useLoad((signal) => ask(api.GET("/v1/facts", { params: { query: { ...owner, timeline: true, status: "any", order: "asc", limit: 1 } }, signal })), []);
  const from = first.data?.items.length ? dayOf(first.data.items[0].known_from) - 1 : today() - 30;
  const body = { ...owner, subject: "Ada", predicate: "lives_in", object: "Boston" };
  return html`<section class="box"><p class="quiet small">A fact has two times: when it is true, and when it was known.</p>
      <${DaySlider} label="As of (true then)" unset="any time" from=${from} value=${as_of} onChange=${(/** @type {string} */ date) => set({ as_of: date })} />
      <${DaySlider} label="Known at" unset="now" from=${from} value=${known_at} onChange=${(/** @type {string} */ date) => set({ known_at: date })} />
      <label>Show <select value=${status} onChange=${(/** @type {any} */ event) => set({ status: event.target.value })}>
        <option value="active">what is believed</option><option value="any">all that was ever said</option><option value="disputed">what is disputed</option></select></label>
      ${may(caller, "write") && html` <${Add} title="Add a fact" save=${add} fields=${[
        { name: "subject", label: owner.user_id ? "Whom or what it is about; empty: this person" : "Whom or what it is about", optional: Boolean(owner.user_id) },
        { name: "predicate", label: "What of it", hint: "lives in" }, { name: "object", label: "Value", hint: "Boston" },
        { name: "cardinality", label: "Values that hold at a time", options: ["one", "many"], value: "one" }]} />`}</section>
    <${Loaded} of=${loaded}>${(/** @type {{ items: Fact[], next_cursor: string | null }} */ page) => page.items.length
      ? html`<${Timeline} facts=${page.items} route=${route} />${page.next_cursor && html`<p class="quiet small">Only the newest ${MOST} facts are drawn.</p>`}`
      : html`<${Empty} title=${first.data?.items.length ? "Nothing is known for these times." : "No facts. Assert one:"}
          curl=${first.data?.items.length ? undefined : curl("POST", `${BASE}/v1/facts`, body, Boolean(key.get()))} />`}</${Loaded}>
    ${fact && html`<${Details} key=${fact} id=${fact} caller=${caller} onClose=${() => set({ fact: "" })} again=${loaded.again} />`}`;
}

/** A slider over days; its right end means the time of now, or any time.
 * @param {{ label: string, unset: string, from: number, value: string | undefined, onChange: (date: string) => void }} props */
function DaySlider({ label, unset, from, value, onChange }) {
  const last = today();
  return html`<label class="slide">${label}<input type="range" min=${from} max=${last + 1} step="1" value=${value ? dayOf(value) : last + 1}
    aria-valuetext=${value || unset} onInput=${(/** @type {any} */ event) => onChange(Number(event.target.value) > last ? "" : dateOf(Number(event.target.value)))} />
    <output>${value || unset}</output></label>`;
}

/** @param {{ facts: Fact[], route: import("../route.js").Route }} props */
function Timeline({ facts, route }) {
  const starts = facts.map((fact) => Date.parse(fact.valid_from ?? fact.known_from));
  const end = Math.max(Date.now(), ...facts.map((fact) => (fact.valid_until ? Date.parse(fact.valid_until) : 0)));
  const begin = Math.min(...starts, end - DAY);
  const share = (/** @type {number} */ at) => Math.max(0, Math.min(100, ((at - begin) / (end - begin)) * 100));
  /** @type {Map<string, Fact[]>} */
  const lanes = new Map();
  for (const fact of facts) {
    const lane = statement({ ...fact, object: "" }).trim();
    lanes.set(lane, [...(lanes.get(lane) ?? []), fact]);
  }
  const place = (/** @type {Fact} */ fact) => {
    const left = fact.valid_from ? share(Date.parse(fact.valid_from)) : 0;
    return { left: `${left}%`, width: `${Math.max(1, (fact.valid_until ? share(Date.parse(fact.valid_until)) : 100) - left)}%` };
  };
  const open = (/** @type {Fact} */ fact) => to(route.page, route.rest, { ...route.params, fact: fact.fact_id });
  return html`<section class="box" aria-label="Timeline"><div class="row apart small quiet"><span>${new Date(begin).toISOString().slice(0, 10)}</span><span>${new Date(end).toISOString().slice(0, 10)}</span></div>
    ${[...lanes].map(([lane, items]) => html`<div class="lane" key=${lane}><${Text} text=${lane} long=${120} /><div>${rows(items).map((row) => html`<div class="spans">
      ${row.map((fact) => html`<a key=${fact.fact_id} class=${fact.status} href=${open(fact)} style=${place(fact)} title=${describe(fact)}>${fact.object.slice(0, 200)}</a>`)}</div>`)}</div></div>`)}
    <details><summary class="small">As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Facts as a table"><table>
      <thead><tr><th>Fact</th><th>Status</th><th>True</th><th>Known</th><th class="number">Trust</th></tr></thead>
      <tbody>${facts.map((fact) => html`<tr key=${fact.fact_id}><td><a href=${open(fact)}><${Text} text=${statement(fact)} long=${160} /></a></td>
        <td><${Status} of=${fact.status} /></td><td>${span(fact.valid_from, fact.valid_until)}</td><td>${span(fact.known_from, fact.known_until)}</td><td class="number">${fact.trust.toFixed(2)}</td></tr>`)}</tbody></table></div></details></section>`;
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

/** @param {string | null} from @param {string | null} until */
const span = (from, until) => `${from?.slice(0, 10) ?? "always"} – ${until?.slice(0, 10) ?? "now"}`;
/** @param {Fact} fact */
const describe = (fact) => `${fact.object.slice(0, 200)}: ${fact.status}, true ${span(fact.valid_from, fact.valid_until)}, known ${span(fact.known_from, fact.known_until)}`;

/** @param {{ id: string, caller: import("../api.js").Caller, onClose: () => void, again: () => void }} props */
function Details({ id, caller, onClose, again }) {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const path = { fact_id: id };
  const loaded = useLoad(async (signal) => {
    const [fact, history] = await Promise.all([
      ask(api.GET("/v1/facts/{fact_id}", { params: { path }, signal })),
      ask(api.GET("/v1/facts/{fact_id}/history", { params: { path, query: { limit: 20 } }, signal })),
    ]);
    return { fact, history };
  }, [id]);
  const retract = async () => {
    await ask(api.POST("/v1/facts/{fact_id}/retract", { params: { path } }));
    toast({ text: "Retracted. That it was known stays on record." });
    again();
    onClose();
  };
  if (asks) return html`<${Confirm} title="Retract this fact?" button="Retract" action=${retract} onClose=${() => setAsks(false)}>
    <p>From now on it is not known. That it was known until now stays on record.</p></${Confirm}>`;
  return html`<${Dialog} title="Fact" onClose=${onClose}><${Loaded} of=${loaded}>${(/** @type {any} */ { fact, history }) => html`
    <p><${Text} text=${statement(fact)} /> <${Status} of=${fact.status} /></p>
    <dl class="pairs"><dt>True</dt><dd>${span(fact.valid_from, fact.valid_until)}</dd><dt>Known</dt><dd>${span(fact.known_from, fact.known_until)}</dd>
      <dt>Trust</dt><dd>${fact.trust.toFixed(2)}</dd><dt>Origin</dt><dd>${fact.source.origin}${fact.source.session_id && html`, <a href=${to("sessions", [fact.source.session_id])}>its session</a>`}</dd>
      <dt>In place of</dt><dd>${fact.supersedes.join(", ") || "nothing"}</dd></dl>
    <h3>All that was stated of it</h3><ul class="list">${history.items.map((/** @type {Fact} */ one) => html`<li><${Status} of=${one.status} /> ${span(one.valid_from, one.valid_until)}, known <${Time} at=${one.known_from} /></li>`)}</ul>
    ${may(caller, "write") && ["active", "disputed"].includes(fact.status) && html`<footer><button type="button" class="danger" onClick=${() => setAsks(true)}>Retract…</button></footer>`}`}</${Loaded}></${Dialog}>`;
}
