/** The entries of a prompt: what was kept and what was left out, each with the turn that it comes from. */
import { html, useMemo, useState } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { ProblemBox, useAction } from "../parts/feedback.js";
import { RecordLink, SourceLink, addressOf, place } from "../parts/records.js";
import { LIKELY, Strength } from "../parts/scores.js";
import { useNames } from "../parts/scope.js";
import { Since, learnedFrom } from "../parts/since.js";
import { Fold, Tag, Text, Time, counted, percent, statement, typeOf, visible, words } from "../parts/text.js";
import { ContradictedBy, PREDICATES, useChallenged } from "../parts/doubts.js";
import { parse, scopeOf, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Context"]} Context */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Fact"]} Fact */
/** What an entry was made of: whose it is, what kind of record, and when it was said.
 * @typedef {{ text: string, source: Schemas["Source"], href: string, user_id?: string | null, agent_id?: string | null, at: string, kind: string }} Origin */

/** Why entries were left out, as it stands beside a number and, with a capital, above the entries: "12 too weak". */
const REASONS = /** @type {Record<Schemas["DropReason"], string>} */ ({
  budget: "over budget", section_budget: "over the share of their section", limit: "over the limit of their section", duplicate: "said already", enough: "not needed for the query",
  score: "too weak", importance: "unimportant by now",
});
/** What decides it, below the reason. @type {Partial<Record<Schemas["DropReason"], (of: { dropped: Context["dropped"], unused: number, least?: string }) => string>>}
 * `unused`: tokens of the budget that nothing took; `least`: the least score that the request asks for, where it does */
const EXPLAINED = {
  enough: () => "What the query asks for was in the prompt before them: the service stops there, though tokens are left.",
  score: ({ least }) => `${weakest(least)} A kept entry is called weak below ${percent(LIKELY)}, so the weak ones above that line are in.`,
  limit: () => "The section takes so many entries at most, whatever the budget.",
  section_budget: () => "The section takes so much of the budget at most.",
  budget: ({ dropped, unused }) => {
    const reserved = unused - (dropped.findLast(isMisfit)?.entry?.left ?? unused);
    return `What scores most for each token goes in first, and packing ends at the first entry that does not fit; those behind it were not tried.${reserved > 0 ? ` Of the ${counted(unused, "token")} left, ${reserved} are of sections that did not fill their share.` : ""}`;
  },
};
/** Whether it was tried and did not fit. @param {Context["dropped"][number]} item */
const isMisfit = ({ entry }) => typeof entry?.needed === "number";
/** The least score of an entry that the service keeps where no request says another. */
const LEAST = 0.001;
/** @param {string} [least] */
const weakest = (least) => `Left out is what helps with a probability below ${least ? `${percent(Number(least))}, the least score of this request` : `${percent(LEAST)}, the service's default, or less where the query asks for little`}.`;

/** The sections as the prompt heads them; `app/context/sources` is where the headings are made. @type {Record<string, string>} */
const TITLES = { instructions: "Rules set by the user or the operator", newer: "Newer than the beginning of this conversation", profile: "Profile", uncertain: "Uncertain", working: "In hand and due",
  summary: "Summary", messages: "Recent messages", memories: "Memories", facts: "Facts", procedures: "Procedures", experience: "Experience", episodes: "Past actions" };
/** What a section is called, wherever the console names it: by its heading in the prompt. @param {string} section */
export const sectionTitle = (section) => TITLES[section] ?? words(section);
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

/** @param {Memory | Fact} record @returns {Origin} */
const originFrom = (record) => ("memory_id" in record ? { text: record.content, source: record.source, href: addressOf(record), user_id: record.user_id, agent_id: record.agent_id, at: record.event_at ?? record.created_at, kind: record.memory_type }
  : { text: statement(record), source: record.source, href: addressOf(record), user_id: record.user_id, agent_id: record.agent_id, at: record.valid_from ?? record.known_from, kind: "fact" });

/** What an entry was made of, or undefined where it is no record. @param {string} id @returns {Promise<Origin> | undefined} */
function originOf(id) {
  if (id.startsWith("mem_")) return ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id: id } } })).then(originFrom);
  return id.startsWith("fact_") ? ask(api.GET("/v1/facts/{fact_id}", { params: { path: { fact_id: id } } })).then(originFrom) : undefined;
}

/** Where the entries of a prompt come from, by their ids, and the facts of the person: from the newest records of the person, or else of the agent, and of the
 * first few entries that are not among them by a request each, kept ones first. A field of the profile comes from its fact, a lesson from its session, a talk from its summary.
 * @param {Context} context @param {{ user_id?: string, agent_id?: string }} owner @param {string} [at] the moment that it is built for, if not now @returns {{ origins: Map<string, Origin> | undefined, facts: Fact[] }} */
export function useOrigins(context, { user_id, agent_id }, at) {
  const kept = context.sections.flatMap((section) => section.items);
  const learns = kept.some((item) => item.type === "experience");
  const ids = [...kept, ...byReason(context).flatMap(([, items]) => items.slice(0, ROWS))].map(({ id }) => id).filter((id) => RECORD.test(id));
  const loaded = useLoad(async (signal) => {
    const of = { ...(user_id ? { user_id } : { agent_id }), status: /** @type {const} */ ("any"), limit: MOST };
    const [memories, facts, experience] = await Promise.all([
      ask(api.GET("/v1/memories", { params: { query: of }, signal })).then((page) => page.items),
      ask(api.GET("/v1/facts", { params: { query: { ...of, timeline: true } }, signal })).then((page) => page.items),
      learns && agent_id ? ask(api.GET("/v1/agents/{agent_id}/experience", { params: { path: { agent_id } }, signal })).catch(() => null) : null,
    ]);
    const there = new Set([...memories.map((memory) => memory.memory_id), ...facts.map((fact) => fact.fact_id)]);
    const missing = ids.filter((id) => !there.has(id)).slice(0, LOOKED_UP_AT_ONCE - (learns && !at ? 1 : 0));
    const single = await Promise.all(missing.map(async (id) => /** @type {[string, Origin | undefined]} */ ([id, await originOf(id)?.catch(() => undefined)])));
    const lists = Object.values(experience ?? {}).flatMap((list) => (Array.isArray(list) ? [...list] : []));
    const lessons = lists.filter((one) => "text" in one); // a warning has none
    return { memories, facts, single, lessons };
  }, [user_id, agent_id, learns, ids.join()], ["fact"]);
  return useMemo(() => {
    if (!loaded.data) return { origins: undefined, facts: [] };
    const { memories, facts, single, lessons } = loaded.data;
    /** @type {Map<string, Origin>} */
    const origins = new Map();
    for (const [id, origin] of single) if (origin) origins.set(id, origin);
    for (const fact of facts) origins.set(fact.fact_id, originFrom(fact));
    for (const memory of memories) origins.set(memory.memory_id, originFrom(memory));
    const texts = entryTexts(context);
    const entries = kept.map(({ id, type, citation }) => ({ id, type, text: texts.get(citation ?? "") ?? "" }));
    for (const { id, entry } of context.dropped) if (entry) entries.push({ id, type: entry.type, text: entry.text });
    for (const { id, type, text } of entries) {
      const fact = type === "profile" && facts.find((known) => known.subject === "@user" && known.predicate === PREDICATES[id.split(":")[1]] && text.endsWith(`: ${known.object}`));
      const talk = type === "interaction" && memories.find((memory) => memory.memory_type === "summary" && text.includes(memory.content));
      const lesson = type === "experience" && lessons.find((known) => text.includes(known.text));
      if (fact || talk) origins.set(id, originFrom(/** @type {Memory | Fact} */ (fact || talk)));
      if (lesson) origins.set(id, { text: lesson.text, source: lesson.source, href: to("owners", ["agents", agent_id ?? "", "experience"]), user_id: null, agent_id, at: lesson.first_learned_at ?? "", kind: "lesson" });
    }
    return { origins, facts };
  }, [loaded.data, context]);
}

const RECORD = /^(mem|fact)_/;
/** Rows of each reason in the open; the others are a click away. */
const ROWS = 3;
/** Entries that are in no list: so many are asked for by themselves, one less where lessons and doubts of now are asked for. A view asks for twelve things at most. */
const LOOKED_UP_AT_ONCE = 2;
const MOST = 100;
/** What an agent did and learned, whoever talks with it. */
const OWN = new Set(["action", "experience", "procedure"]);

/** The page of what is no record with an id of its own: a field of the profile, a lesson, an action, a talk that was recorded.
 * @param {string} type @param {{ user_id?: string, agent_id?: string }} owner */
function pageOf(type, { user_id, agent_id }) {
  if (["profile", "interaction", "issue", "solution"].includes(type)) return user_id && to("owners", ["users", user_id, "profile"]);
  const part = { experience: "experience", action: "actions", procedure: "procedures" }[type];
  return part && agent_id && to("owners", ["agents", agent_id, part]);
}

/** Who said it and when, with the way to the turn. @param {{ of: Origin }} props */
function SaidLine({ of: { source, user_id, at, kind } }) {
  const names = useNames();
  const { session_id, message_seq, quote, speaker, role } = source;
  const day = html`<${Time} at=${at} day=${true} />`;
  if (!session_id) return html`<span><${SourceLink} of=${source} />, ${day}</span>`;
  if (message_seq) return html`<span>${speaker ?? role}, ${day}, <a href=${to("sessions", [session_id], { from: message_seq - 1 })}>turn ${message_seq} of ${visible(session_id)}</a></span>`;
  if (quote) return html`<span>${user_id ? names.person(user_id) : "said"}, ${day}: <${SourceLink} of=${source} /></span>`;
  return html`<span>${kind === "summary" ? "summary of" : "learned from"} <${SourceLink} of=${source} />, ${day}</span>`;
}

/** Where an entry comes from: its first source in the open, the rest when it is asked for. @param {{ origin: Origin, others?: Origin[] }} props `others`: of what else it is made */
function From({ origin, others = [] }) {
  const { source } = origin;
  return html`<div class="from small quiet"><${SaidLine} of=${origin} />
    <${Fold} title="More" small=${false}>${() => html`<ul class="values">${others.map((other) => html`<li key=${other.href}><a href=${other.href}><${Text} text=${other.text} long=${160} /></a> <${SaidLine} of=${other} /></li>`)}
      <li><a href=${origin.href}>open the record</a></li>${source.model && html`<li>learned by ${source.model}</li>`}${source.note && html`<li><${Text} text=${source.note} long=${200} /></li>`}</ul>`}</${Fold}></div>`;
}

/** The turn that an entry comes from: as it is known already, or when it is asked for; of what is no record, the page that has it. @param {{ id: string, type: string, known?: Origin, others?: Origin[] }} props */
function WhereFrom({ id, type, known, others }) {
  const [loaded, set] = useState(/** @type {Origin | undefined} */ (undefined));
  const origin = known ?? loaded;
  const look = useAction(async () => set(await originOf(id)));
  if (!origin && !RECORD.test(id)) {
    const page = place(id) ?? pageOf(type, scopeOf(parse(location.hash)));
    return page ? html`<div class="from small"><a href=${page}>Where from</a></div>` : null;
  }
  if (look.error?.status === 404) return html`<span class="small quiet">It is gone, or not for this key.</span>`;
  if (!origin) return html`<div class="from small"><button type="button" class="plain small" disabled=${look.busy} onClick=${look.start}>Where from</button></div><${ProblemBox} problem=${look.error} />`;
  return html`<${From} origin=${origin} others=${others} />`;
}

/** What an entry is called. @param {{ id: string, type: string }} entry */
const kindOf = ({ id, type }) => (type === "experience" ? "lesson" : id.startsWith("mem_") ? typeOf(type) : words(type));

/** Says whose an entry is that is not about the person. @param {Map<string, Origin> | undefined} origins */
function useWhose(origins) {
  const owner = scopeOf(parse(location.hash));
  const names = useNames();
  return (/** @type {string} */ id, /** @type {string} */ type) => {
    const origin = origins?.get(id);
    if (!owner.user_id || (origin ? origin.user_id : !OWN.has(type))) return "";
    const agent = origin ? origin.agent_id : owner.agent_id;
    return agent ? `${names.agent(agent)}'s own` : origin ? "shared with everyone" : "";
  };
}

/** The other facts of a chain. @param {{ id: string, links?: string[] }} entry @param {Map<string, Origin>} origins */
const othersOf = ({ id, links = [] }, origins) => links.filter((link) => link !== id).flatMap((link) => origins.get(link) ?? []);

/** @param {{ context: Context, at?: string, facts: Fact[], origins: Map<string, Origin> | undefined }} props `at`: the moment that the prompt is built for; without it, now */
export function Kept({ context, at, facts, origins }) {
  const texts = entryTexts(context);
  const owner = scopeOf(parse(location.hash));
  const whose = useWhose(origins);
  const marked = /** @type {typeof owner} */ (at ? {} : owner); // what is known of an entry today was not known at an earlier moment
  const learned = useMemo(() => learnedFrom(at ? [] : facts), [facts, at]);
  /** What of an entry is outdated; that the rest still holds needs no word. @param {string} id */
  const outdated = (id) => (learned.get(id) ?? []).filter(({ next }) => next);
  const challenged = useChallenged(marked);
  const headings = (/** @type {Context["sections"][number]} */ { tokens, items }) => tokens - items.reduce((sum, item) => sum + item.tokens, 0);
  return html`${context.sections.map((section) => html`<section key=${section.name}><h3>${sectionTitle(section.name)} <span class="quiet">${counted(section.tokens, "token")}${headings(section) > 0 && `, ${headings(section)} of them for headings`}</span></h3>
    <ul class="list">${section.items.map((item) => html`<li key=${item.id}>
      <div>${item.citation && html`<span class="quiet">[${item.citation}]</span> `}${texts.has(item.citation ?? "") ? html`<${Text} text=${texts.get(item.citation ?? "")} long=${300} />` : html`<${RecordLink} id=${item.id} />`}</div>
      <${Since} of=${outdated(item.id)} />
      <div class="entry small"><${Tag} of=${kindOf(item)} />${whose(item.id, item.type) && html`<${Tag} of=${whose(item.id, item.type)} />`}<${ContradictedBy} of=${[item.id, ...item.links].map((id) => challenged.get(id)).find(Boolean)} />${item.score === null ? html`<span class="quiet">not searched for: it is always in</span>` : html`<${Strength} probability=${item.score} />`}<span class="quiet">${counted(item.tokens, "token")}</span></div>
      ${origins && html`<${WhereFrom} id=${item.id} type=${item.type} known=${origins.get(item.id)} others=${othersOf(item, origins)} />`}</li>`)}</ul></section>`)}`;
}

/** What was left out, by the reason, of each what did not fit first and then by falling score. @param {Context} context @returns {[Schemas["DropReason"], Context["dropped"]][]} */
function byReason({ dropped }) {
  const rank = (/** @type {Context["dropped"][number]} */ item) => (isMisfit(item) ? 2 : 0) + (item.entry?.score ?? 0);
  const groups = Map.groupBy(dropped, ({ reason }) => reason);
  return /** @type {Schemas["DropReason"][]} */ (Object.keys(REASONS)).flatMap((reason) => {
    const items = groups.get(reason);
    return items ? [[reason, items.sort((one, other) => rank(other) - rank(one))]] : [];
  });
}

/** How many were left out for which reason: "20 said already, 12 too weak". @param {Context} context */
export const droppedTold = (context) => byReason(context).sort(([, one], [, other]) => other.length - one.length).map(([reason, items]) => `${items.length} ${REASONS[reason]}`).join(", ");

/** What was left out, by the reason.
 * @param {{ context: Context, origins: Map<string, Origin> | undefined, least?: string }} props `least`: the least score of the request */
export function Dropped({ context, origins, least }) {
  const citations = new Map(context.sections.flatMap((section) => section.items).map((item) => [item.id, item.citation]));
  if (!context.dropped.length) return html`<p class="quiet">Nothing: all that was found is in it.</p>`;
  return byReason(context).map(([reason, dropped]) => html`<${Reason} key=${reason} reason=${reason} dropped=${dropped} citations=${citations} unused=${context.budget - context.tokens} origins=${origins} least=${least} />`);
}

/** What was left out for one reason. @param {{ reason: Schemas["DropReason"], dropped: Context["dropped"], citations: Map<string, string | null>, unused: number, origins: Map<string, Origin> | undefined, least?: string }} props `citations`: what stands for each entry of the prompt; `unused`: tokens of the budget that nothing took */
function Reason({ reason, dropped, citations, unused, origins, least }) {
  const row = (/** @type {Context["dropped"][number]} */ item) => html`<${DroppedEntry} key=${item.id} item=${item} citations=${citations} origins=${origins} />`;
  return html`<details open class="reason"><summary>${REASONS[reason].replace(/^./, (letter) => letter.toUpperCase())}${reason === "budget" && `, ${counted(unused, "token")} left`} <span class="quiet">(${dropped.length})</span></summary>
      ${EXPLAINED[reason] && html`<p class="small quiet">${EXPLAINED[reason]?.({ dropped, unused, least })}</p>`}
      <ul class="list">${dropped.slice(0, ROWS).map(row)}</ul>
      ${dropped.length > ROWS && html`<${Fold} title=${`${dropped.length - ROWS} more`} kind="rest">${() => html`<ul class="list">${dropped.slice(ROWS).map(row)}</ul>`}</${Fold}>`}</details>`;
}

/** An entry that was left out: what it says, how well it fits, what it needs, and where its words stand in the prompt, if they do.
 * @param {{ item: Context["dropped"][number], citations: Map<string, string | null>, origins: Map<string, Origin> | undefined }} props */
function DroppedEntry({ item, citations, origins }) {
  const whose = useWhose(origins);
  const { id, reason, entry, repeats = [] } = item;
  if (!entry) return html`<li><${RecordLink} id=${id} /></li>`;
  const same = repeats.map((other) => citations.get(other)).filter(Boolean).map((citation) => `[${citation}]`).join(", ");
  const size = isMisfit(item) ? `needs ${counted(entry.needed ?? 0, "token")}, ${entry.left} were left${reason === "section_budget" ? ` in ${sectionTitle(entry.section)}` : ""}` : counted(entry.tokens, "token");
  return html`<li><div><${Text} text=${entry.text} long=${200} /></div>
    <div class="entry small"><${Tag} of=${kindOf({ id, type: entry.type })} />${whose(id, entry.type) && html`<${Tag} of=${whose(id, entry.type)} />`}${typeof entry.score === "number" && html`<${Strength} probability=${entry.score} />`}<span class="quiet">${size}</span>
      ${same && html`<span>${reason === "duplicate" ? "same as" : "its words are in as"} ${same}</span>`}</div>
    ${origins && html`<${WhereFrom} id=${id} type=${entry.type} known=${origins.get(id)} others=${othersOf(item, origins)} />`}</li>`;
}
