/** One fact: its two times, where it comes from, all that was stated of it, and what can be done with it. */
import { html, useEffect, useRef, useState } from "../ui.js";
import { api, ask, may, useLoad } from "../api.js";
import { DetailHead } from "../parts/collection.js";
import { DisputeOf, sidesOf } from "../parts/doubts.js";
import { Confirm, Loaded, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { RecordLink, SourceLink, Sources, Status, place } from "../parts/records.js";
import { Icon, Text, Time, span, words } from "../parts/text.js";
import { useNames } from "../parts/scope.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Fact"]} Fact */
/** @typedef {{ fact: Fact, history: Fact[], replaced: Fact[], sides: (Fact | Schemas["Memory"])[], said: Schemas["Memory"] | undefined }} Known `sides`: what a disputed one contradicts; `said`: the message that it was learned from */

/** Facts that it replaced: so many are loaded. */
const REPLACED = 2;
const KNOWN = ["active", "disputed"];

/** When a fact holds: "since 2026-05-01", and until when it was known where it is known no longer. @param {Fact} fact */
export function held({ valid_from, valid_until, known_until }) {
  const valid = valid_until ? span(valid_from, valid_until) : valid_from ? `since ${valid_from.slice(0, 10)}` : "always";
  return known_until ? `${valid}, known until ${known_until.slice(0, 10)}` : valid;
}

/** A fact that another took the place of, as it was: the other one's beginning ended it, or it was corrected. @param {Fact} old @param {Fact} now */
const replacedBy = (old, now) => (now.valid_from && now.valid_from > (old.valid_from ?? "") ? span(old.valid_from, now.valid_from) : `known until ${old.known_until?.slice(0, 10) ?? "now"}`);

/** @param {string} fact_id */
const at = (fact_id) => ({ params: { path: { fact_id } } });

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Known>} */
async function load(id, signal) {
  const [fact, history] = await Promise.all([
    ask(api.GET("/v1/facts/{fact_id}", { ...at(id), signal })),
    ask(api.GET("/v1/facts/{fact_id}/history", { params: { path: { fact_id: id }, query: { limit: 20 } }, signal })),
  ]);
  const own = new Set(history.items.map((one) => one.fact_id));
  const others = fact.supersedes.filter((other) => !own.has(other)).slice(0, REPLACED);
  const [memory_id] = fact.source.memory_ids ?? [];
  const [sides, said, ...replaced] = await Promise.all([
    fact.status === "disputed" ? sidesOf(fact, signal) : [],
    memory_id ? ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id } }, signal })).catch(() => undefined) : undefined,
    ...others.map((other) => ask(api.GET("/v1/facts/{fact_id}", { ...at(other), signal })).catch(() => undefined)),
  ]);
  return { fact, sides, said, history: history.items, replaced: replaced.filter((one) => one !== undefined) };
}

/** @param {{ id: string, told: (fact: Fact) => string, route: import("../route.js").Route, caller: import("../api.js").Caller }} props */
export function FactView({ id, told, route, caller }) {
  const loaded = useLoad((signal) => load(id, signal), [id], ["fact"]);
  const names = useNames();
  const address = (/** @type {string} */ fact) => to(route.page, route.rest, { ...route.params, fact });
  return html`<section class="box" aria-label="Fact"><${DetailHead} title=${loaded.data ? told(loaded.data.fact) : "Fact"} back=${address("")} all="All facts" />
    <${Loaded} of=${loaded}>${(/** @type {Known} */ { fact, sides, said, history, replaced }) => html`
      ${fact.status === "disputed" ? html`<${DisputeOf} record=${fact} others=${sides} person=${names.person} writes=${may(caller, "write")} message=${(/** @type {Fact["source"]} */ { memory_ids }) => (said && said.memory_id === memory_ids?.[0] ? said : undefined)}
        onDone=${(/** @type {string} */ kept) => { go(address(kept)); loaded.again(); }} />` : html`<p><${Status} of=${fact.status} /></p>`}
      ${may(caller, "write") && KNOWN.includes(fact.status) && html`<${Actions} fact=${fact} open=${(/** @type {string} */ other) => go(address(other))} again=${loaded.again} />`}
      <dl class="pairs"><dt>True</dt><dd>${span(fact.valid_from, fact.valid_until)}</dd><dt>Known</dt><dd>${span(fact.known_from, fact.known_until)}</dd>
        <dt>Where from</dt><dd><${Sources} of=${fact.source} said=${said} />${fact.source.note && html` <span class="quiet"><${Text} text=${fact.source.note} long=${200} /></span>`}</dd>
        ${said && html`<dt>Made from</dt><dd><a href=${place(said.memory_id)}>${said.memory_type === "message" ? "the message" : `a ${words(said.memory_type)}`}</a></dd>`}
        <dt>Trust</dt><dd>${fact.trust.toFixed(2)}</dd><dt>Id</dt><dd><${RecordLink} id=${fact.fact_id} own=${true} /></dd></dl>
      ${replaced.length > 0 && html`<h3>In place of</h3><ul class="list">${replaced.map((one) => html`<li key=${one.fact_id}>
        <a class="title" href=${address(one.fact_id)}><${Text} text=${told(one)} long=${160} /></a><div class="small quiet">${replacedBy(one, fact)} · <${SourceLink} of=${one.source} /></div></li>`)}</ul>`}
      <h3>All that was stated of it</h3><ul class="list">${history.map((one) => html`<li key=${one.fact_id}><${Status} of=${one.status} /> true ${span(one.valid_from, one.valid_until)}, known <${Time} at=${one.known_from} day=${true} /></li>`)}</ul>`}</${Loaded}></section>`;
}

/** @param {{ fact: Fact, open: (id: string) => void, again: () => void }} props */
function Actions({ fact, open, again }) {
  const [doing, start] = useState(/** @type {"" | "edit" | "retract"} */ (""));
  const toast = useToast();
  const stop = () => start("");
  const retract = async () => {
    await ask(api.POST("/v1/facts/{fact_id}/retract", at(fact.fact_id)));
    toast({ text: "Retracted. That it was known stays on record.", about: fact.fact_id, undo: async () => open(await stated(fact, fact)) });
    again();
  };
  if (doing === "edit") return html`<${EditFact} fact=${fact} open=${open} onClose=${stop} />`;
  return html`<div class="actions">${fact.status === "active" && html`<button type="button" onClick=${() => start("edit")}><${Icon} of="pencil" /> Edit</button>`}
      <button type="button" class="danger" onClick=${() => start("retract")}>Retract…</button></div>
    ${doing === "retract" && html`<${Confirm} title="Retract this fact?" button="Retract" action=${retract} onClose=${stop}>
      <p>From now on it is not known. That it was known until now stays on record.</p></${Confirm}>`}`;
}

/**
 * States something in place of a fact, or the fact again: same subject and predicate, and the same source.
 * Returns the id of what holds now.
 * @param {Fact} fact @param {Partial<Pick<Fact, "object" | "valid_from" | "valid_until" | "trust">>} now
 * @param {{ on_conflict?: Schemas["FactConflictPolicy"], note?: string }} [how]
 */
async function stated(fact, now, { on_conflict = "temporal", note = fact.source.note ?? undefined } = {}) {
  const { agent_id, user_id, subject, predicate, cardinality, source } = fact;
  const { object = fact.object, valid_from = fact.valid_from, valid_until = fact.valid_until, trust } = now;
  const made = await ask(api.POST("/v1/facts", { body: { agent_id, user_id, subject, predicate, cardinality, object, valid_from, valid_until, on_conflict, ...(trust !== undefined && { trust }),
    source: { session_id: source.session_id, message_seq: source.message_seq, action_ids: source.action_ids ?? [], url: source.url ?? null, note: note ?? null } } }));
  return "fact_id" in made ? made.fact_id : fact.fact_id;
}

/** When a change of a fact begins: the day, or now where it is today; later than the fact itself. @param {Fact} fact @param {string} day */
function changeOf(fact, day) {
  const moment = day === new Date().toISOString().slice(0, 10) ? Date.now() : Date.parse(day);
  return new Date(Math.max(moment, fact.valid_from ? Date.parse(fact.valid_from) + 1 : moment)).toISOString();
}

/**
 * Another value: it was never so, and the new one takes the place of the old one for all its time; or it has changed, and
 * the old one holds until then. What was known before stays on record either way.
 * @param {{ fact: Fact, open: (id: string) => void, onClose: () => void }} props
 */
function EditFact({ fact, open, onClose }) {
  const toast = useToast();
  const [changed, setChanged] = useState(true);
  const value = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => value.current?.focus(), []);
  const retract = (/** @type {string} */ id) => ask(api.POST("/v1/facts/{fact_id}/retract", at(id)));
  const correct = async (/** @type {string} */ object) => {
    const made = await stated(fact, { object }, { on_conflict: "last_write_wins", note: "A correction of what was known." });
    if (fact.cardinality === "many") await retract(fact.fact_id); // several values hold at a time: the new one ends none
    return made;
  };
  const follow = async (/** @type {string} */ object, /** @type {string} */ since) => {
    if (fact.cardinality === "many") await stated(fact, { valid_until: since, trust: fact.trust });
    return stated(fact, { object, valid_from: since }, { note: "Told in the console." });
  };
  const save = useAction(async (/** @type {HTMLFormElement} */ form) => {
    const given = new FormData(form);
    const object = String(given.get("object")).trim();
    const made = changed ? await follow(object, changeOf(fact, String(given.get("since")))) : await correct(object);
    open(made);
    toast({ text: changed ? "Changed. What held before stays." : "Corrected. What was known stays on record.", undo: async () => {
      await retract(made);
      open(await stated(fact, { trust: fact.trust }));
    } });
  });
  const choice = (/** @type {boolean} */ of, /** @type {string} */ text) => html`<label><input type="radio" name="how" checked=${changed === of} onChange=${() => setChanged(of)} /> ${text}</label>`;
  return html`<form class="stack" aria-label="Edit the fact" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); save.start(event.target); }}>
    <label>Value <input name="object" required maxlength="256" defaultValue=${fact.object} ref=${value} /></label>
    <fieldset><legend class="small quiet">Why</legend>${choice(true, "It has changed")}${choice(false, "It was wrong from the start")}</fieldset>
    ${changed && html`<label>Since <input type="date" name="since" required min=${fact.valid_from?.slice(0, 10)} max=${new Date().toISOString().slice(0, 10)} defaultValue=${new Date().toISOString().slice(0, 10)} /></label>`}
    <p class="quiet small">${changed ? "The old value holds until then." : "The new value counts from the day on which the old one began."} What was known until now stays on record.</p>
    <${ProblemBox} problem=${save.error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${save.busy}>Save</button></footer></form>`;
}
