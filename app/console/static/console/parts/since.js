/** What the facts of a person say of the memories that they were learned from: what of a memory is outdated, and what holds since. */
import { api, ask, useLoad } from "../api.js";
import { html, useMemo } from "../ui.js";
import { to } from "../route.js";
import { useNames } from "./scope.js";
import { Tag, Text, Time, statement, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

/** Facts of a person that are asked for, and notes of a memory about them. */
const FACTS = 100;
const NOTES = 2;

/** Of the facts the one that took the place of one that has ended: it begins when that one ends.
 * @param {Schemas["Fact"]} ended @param {Schemas["Fact"][]} facts */
export const replacementOf = (ended, facts) => facts.find((fact) => fact.status === "active" && fact.subject === ended.subject && fact.predicate === ended.predicate && fact.valid_from === ended.valid_until);

/** What was learned from a memory: a fact, and the one that followed it where it has ended. @typedef {{ fact: Schemas["Fact"], next?: Schemas["Fact"] }} Learned */

/** What the facts of a person say of the memories that they were learned from, by the id of the memory.
 * @param {Schemas["Fact"][]} facts @returns {Map<string, Learned[]>} */
export function learnedFrom(facts) {
  /** @type {Map<string, Learned[]>} */
  const places = new Map();
  const now = Date.now();
  for (const fact of facts) {
    if (fact.status !== "active") continue;
    const ended = fact.valid_until && Date.parse(fact.valid_until) <= now;
    const next = ended ? replacementOf(fact, facts) : undefined;
    for (const id of fact.source.memory_ids ?? []) places.set(id, [...(places.get(id) ?? []), { fact, next }]);
  }
  return places;
}

/** @param {string | undefined} user_id nobody: nothing is asked for */
export function useFactsOf(user_id) {
  const loaded = useLoad(async (signal) => (user_id ? (await ask(api.GET("/v1/facts", { params: { query: { user_id, timeline: true, limit: FACTS } }, signal }))).items : []), [user_id], user_id ? ["fact"] : []);
  return useMemo(() => learnedFrom(loaded.data ?? []), [loaded.data]);
}

/** What of it is out of date, without whom it is about: "lives in Altona", where the rest of a message still holds. @param {Schemas["Fact"]} fact */
const part = ({ subject, predicate, object }) => `${subject === "@user" ? "" : `${subject} `}${words(predicate)} ${object}`;

/** What took the place of what a hit says or, where nothing did, since when it holds. @param {{ of: Learned[] }} props */
export function Since({ of }) {
  const names = useNames();
  const told = (/** @type {Schemas["Fact"]} */ fact) => html`<a href=${to("owners", ["users", fact.user_id ?? "", "facts"], { fact: fact.fact_id })}><${Text} text=${statement(fact, fact.user_id && names.person(fact.user_id))} long=${120} /></a>`;
  const replaced = of.filter(({ next }) => next);
  return html`${(replaced.length ? replaced : of).slice(0, NOTES).map(({ fact, next }) => html`<div class="small" key=${fact.fact_id}>${next ? html`<${Tag} of=${`outdated: ${part(fact)}`} /> since <${Time} at=${next.valid_from} day=${true} /> ${told(next)}`
    : html`<span class="quiet">${fact.valid_until ? "until" : "since"} <${Time} at=${fact.valid_until ?? fact.valid_from} day=${true} /></span> ${told(fact)}`}</div>`)}`;
}
