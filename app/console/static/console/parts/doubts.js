/** What is uncertain: what an open finding contradicts, marked where it stands, and disputes, with both claims side by side. Each is decided
 * in the same words: this one holds, the other one holds, or both hold. */
import { html } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { to } from "../route.js";
import { ProblemBox, useAction, useToast } from "./feedback.js";
import { Sources, addressOf, place } from "./records.js";
import { useNames } from "./scope.js";
import { Tag, Text, Time, percent, statement, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["ReflectionFinding"]} Finding */
/** @typedef {Schemas["FindingEvidence"]} Evidence */
/** @typedef {Schemas["Fact"]} Fact */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Source"]} Source */
/** Whose records: both, one or nobody named. @typedef {{ user_id?: string, agent_id?: string }} Owner */
/** A record that contradicts what has more trust, and what it contradicts. @typedef {{ record: Fact | Memory, others: (Fact | Memory)[] }} Disputed */

const MOST = 100;
/** Disputes whose other side is loaded at once. */
const SIDES = 4;

/** What waits to be decided, as the pages call it. @param {Finding["status"]} status */
export const statusOf = (status) => (status === "open" ? "to decide" : words(status));

/** Characters of a claim in a title. */
const SHORT = 60;
/** @param {string} text */
const shortened = (text) => (text.length > SHORT ? `${text.slice(0, SHORT).trimEnd()}…` : text);

/** The matter of claims that contradict each other: "nina lives in: Rome or Oslo?", or both of them where they begin in different words. @param {string[]} claims */
function matter(claims) {
  const split = claims.map((claim) => claim.split(" "));
  const differs = split[0].findIndex((word, place) => split.some((claim) => claim[place] !== word || claim.length === place + 1));
  if (differs > 0) return `${split[0].slice(0, differs).join(" ")}: ${split.map((claim) => shortened(claim.slice(differs).join(" "))).join(" or ")}?`;
  return `Which holds: ${claims.map((claim) => `“${shortened(claim)}”`).join(" or ")}?`;
}

/** What a finding is about: "nina lives in: Rome or Oslo?", where the service says "They give different values (home).".
 * @param {Finding} finding @param {(id: string) => string} person */
export function titleOf(finding, person) {
  const { kind, reason, evidence } = finding;
  const claims = evidence.map((piece) => saidBy(piece, finding, person));
  if (kind === "contradiction" && claims.length > 1 && claims.every((claim) => typeof claim === "string")) return matter(/** @type {string[]} */ (claims));
  const subject = kind === "failing_procedure" ? evidence[0] : undefined;
  return subject?.text ? `${subject.text}: ${reason.replace(/^It /, "it ")}` : reason;
}

/** What a piece of evidence says; a fact about the person says "The user", whoever that is. @param {Evidence} piece @param {Finding} finding @param {(id: string) => string} person */
const saidBy = ({ kind, text }, { user_id }, person) => (text && kind === "fact" && user_id ? text.replace(/^The user /, `${person(user_id)} `) : text);

/** The disputed facts and memories of an owner, without the other side of each. @param {Owner} owner @param {AbortSignal} signal @returns {Promise<(Fact | Memory)[]>} */
export async function disputedOf({ user_id, agent_id }, signal) {
  const query = { user_id, agent_id, status: /** @type {const} */ ("disputed"), limit: MOST };
  const [facts, memories] = await Promise.all([
    ask(api.GET("/v1/facts", { params: { query: { ...query, timeline: true } }, signal })), ask(api.GET("/v1/memories", { params: { query }, signal })),
  ]);
  return [...facts.items, ...memories.items];
}

/** All that waits to be decided of an owner: open findings, and facts and memories that are disputed. @param {Owner} owner @param {AbortSignal} signal */
export async function waitingOf({ user_id, agent_id }, signal) {
  const query = { user_id, agent_id, status: /** @type {const} */ ("open"), limit: MOST };
  const [findings, disputed] = await Promise.all([ask(api.GET("/v1/findings", { params: { query }, signal })), disputedOf({ user_id, agent_id }, signal)]);
  return [...findings.items, ...disputed];
}

/** What a record contradicts, or undefined where it is gone. @param {Fact | Memory} record @param {string} id @param {AbortSignal} signal @returns {Promise<Fact | Memory | undefined>} */
async function contradicted(record, id, signal) {
  try {
    return "fact_id" in record ? await ask(api.GET("/v1/facts/{fact_id}", { params: { path: { fact_id: id } }, signal }))
      : await ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id: id } }, signal }));
  } catch {
    return undefined;
  }
}

/** The same with the other side of each, for the first few. @param {Owner} owner @param {AbortSignal} signal @returns {Promise<Disputed[]>} */
export async function disputes(owner, signal) {
  const records = await disputedOf(owner, signal);
  return Promise.all(records.map(async (record, index) => {
    const [id] = "fact_id" in record ? record.disputes : record.contradicts;
    const other = index < SIDES && id ? await contradicted(record, id, signal) : undefined;
    return { record, others: other ? [other] : [] };
  }));
}

/** What a dispute is about, without the values: "Elbe Riders meets in: Wandsbek or Bergedorf?", and of memories what the disputed one says.
 * @param {Fact | Memory} record @param {(Fact | Memory)[]} others @param {(id: string) => string} person */
export function matterOf(record, others, person) {
  if (!("fact_id" in record)) return `Does it hold? “${record.content}”`;
  const values = [record, ...others].flatMap((claim) => ("fact_id" in claim ? [claim.object] : []));
  return `${statement({ ...record, object: "" }, record.user_id && person(record.user_id)).trim()}: ${values.join(" or ")}?`;
}

/** Why it is disputed. @param {Fact | Memory} record @param {(Fact | Memory)[]} others */
export const whyDisputed = (record, others) => (others.length
  ? `Trust ${record.trust.toFixed(2)} against ${Math.max(...others.map(({ trust }) => trust)).toFixed(2)}.` : "It contradicts what has more trust.");

/** What becomes of the other claim when one holds. */
const LEAVES = "The other one leaves answers and stays in the history.";
/** How it is until a dispute is decided, and until a finding is. */
export const LEFT_OUT = "Until it is decided, the one of less trust is left out of answers.";
export const BOTH_IN = "Until it is decided, both are in answers.";
/** What the decision on a dispute does. */
const KEEPS = `If one holds, the other one leaves answers and stays in the history. If both hold, both are in answers. It cannot be undone here. ${LEFT_OUT}`;

/** The predicates of the fields of a profile that are facts. Each has one value at a time, so that two cannot both hold. */
export const PREDICATES = /** @type {Record<string, string>} */ ({ name: "has_name", age: "has_age", home: "lives_in", occupation: "works_as" });

/** The field of the profile that a fact states, or undefined. @param {Fact | Memory} record */
const fieldOf = (record) => ("fact_id" in record && record.subject === "@user" ? Object.keys(PREDICATES).find((field) => PREDICATES[field] === record.predicate) : undefined);

/** Settles a dispute: the function for each claim, and for both where both can hold.
 * @param {Fact | Memory} record @param {(kept: string) => void} onDone */
function useResolve(record, onDone) {
  const toast = useToast();
  const resolve = useAction(async (/** @type {string} */ keep) => {
    const kept = await ("fact_id" in record ? ask(api.POST("/v1/facts/{fact_id}/resolve", { params: { path: { fact_id: record.fact_id } }, body: { keep } }))
      : ask(api.POST("/v1/memories/{memory_id}/resolve", { params: { path: { memory_id: record.memory_id } }, body: { keep } })));
    toast({ text: keep === "both" ? "Decided: both hold." : "Decided. The other one stays in the history." });
    onDone("fact_id" in kept ? kept.fact_id : kept.memory_id);
  });
  return { ...resolve, single: fieldOf(record) !== undefined };
}

/** Who said a claim and in which words, or how else it came; when, and how far it is believed.
 * @param {{ source: Source | null | undefined, who?: string, said?: Memory, at: string | null | undefined, trust: number | null | undefined }} props
 *   `who`: the person that it is about, whose words a quote is; `said`: the memory of the message that it was learned from, where it is there */
export const SaidBy = ({ source, who, said, at, trust }) => html`${source && html`<div><${Sources} of=${source} said=${said} who=${who} since=${at} />${source.note && html`, noted: <${Text} text=${source.note} long=${160} />`}</div>`}
  ${at && html`<${Time} at=${at} day=${true} />`}${at && typeof trust === "number" && " · "}${typeof trust === "number" && `trust ${trust.toFixed(2)}`}`;

/** A disputed record, or one that it contradicts, as a claim. @param {Fact | Memory} claim @param {(id: string) => string} person @param {Memory} [said] @returns {Claim} */
export function claimOf(claim, person, said) {
  const who = claim.user_id ? person(claim.user_id) : undefined;
  const at = "fact_id" in claim ? claim.valid_from ?? claim.known_from : claim.event_at ?? claim.created_at;
  return { text: "fact_id" in claim ? statement(claim, who) : claim.content, href: addressOf(claim), about: html`<${SaidBy} source=${claim.source} who=${who} said=${said} at=${at} trust=${claim.trust} />` };
}

/** A dispute as both its claims, and its decision. @param {{ of: Disputed, person: (id: string) => string, writes: boolean, onDone: () => void }} props */
export function DisputeOf({ of: { record, others }, person, writes, onDone }) {
  const resolve = useResolve(record, onDone);
  const idOf = (/** @type {Fact | Memory} */ claim) => ("fact_id" in claim ? claim.fact_id : claim.memory_id);
  const claims = [record, ...others].map((claim) => ({ ...claimOf(claim, person),
    hold: writes && others.length ? { act: () => resolve.start(idOf(claim)), busy: resolve.busy, does: `${LEAVES} This cannot be undone.` } : undefined }));
  const here = others.length > 0;
  return html`<${Doubt} kind="disputed" decide=${writes && addressOf(record)} title=${matterOf(record, others, person)} about=${whyDisputed(record, others)} claims=${claims}>
    ${writes && here && html`<${Deciding} told=${`${resolve.single ? ONE_VALUE : ""} ${LEFT_OUT}`} field=${fieldOf(record)} both=${resolve.single ? undefined : { act: () => resolve.start("both"), busy: resolve.busy, does: "Both are in answers. This cannot be undone." }} /><${ProblemBox} problem=${resolve.error} />`}
    ${writes && !here && html`<div class="actions"><a class="button" href=${addressOf(record)}>Decide which holds</a></div>`}
    ${!writes && html`<p class="small quiet">${NEEDS_WRITE}</p>`}</${Doubt}>`;
}

/** What is told where both cannot hold. */
const ONE_VALUE = "A profile has one value at a time: the other one leaves answers and stays in the history.";

/** The decision on a dispute, on the page of the disputed record. @param {{ record: Fact | Memory, onDone: (kept: string) => void }} props `kept`: the id of what holds */
export function Resolve({ record, onDone }) {
  const { single, busy, error, start } = useResolve(record, onDone);
  const isFact = "fact_id" in record;
  // a fact contradicts one group, of which this one holds; a memory may contradict several
  const [id, others] = isFact ? [record.fact_id, record.disputes.slice(0, 1)] : [record.memory_id, record.contradicts];
  return html`<div class="problem"><p>It contradicts a ${isFact ? "fact" : "memory"} of more trust. Which holds?</p><div class="actions">
      <button type="button" disabled=${busy} onClick=${() => start(id)}>This one holds</button>
      ${others.map((other) => html`<button type="button" disabled=${busy} onClick=${() => start(other)}>The one it contradicts holds</button>`)}
      ${!single && html`<button type="button" disabled=${busy} onClick=${() => start("both")}>Both hold</button>`}</div>
    <p class="small">${single ? ONE_VALUE : KEEPS}</p><${ProblemBox} problem=${error} /></div>`;
}

/** A button of a decision, and what it does. @param {{ of: Hold, label?: string, children: unknown }} props */
const Choose = ({ of, label, children }) => html`<div class="choose"><button type="button" aria-label=${label} disabled=${of.busy} onClick=${of.act}>${children}</button> <span class="small quiet">${of.does}</span></div>`;

/** The decision that both hold, and how it is until then. @param {{ told: string, field?: string, both?: Hold }} props `field`: of the profile, which follows the decision */
export const Deciding = ({ told, field, both }) => html`${both && html`<${Choose} of=${both}>Both hold</${Choose}>`}
  <p class="small quiet">${field && `The profile follows: its ${words(field)} becomes the one that holds${both ? "; if both hold, it stays as it is" : ""}. `}${told}</p>`;

/** What happens to a record that is retired: so far it would, and once the finding is accepted it has. */
const FATES = /** @type {Record<string, string>} */ ({ supersede: "replaced", end: "ended", revise: "changed" });

/** What accepting does to a record, or "" where it does nothing or will not be done.
 * @param {Finding} finding @param {boolean} keeps @param {boolean} retires */
function fateOf({ kind, status, proposal, confidence }, keeps, retires) {
  const fate = proposal.details?.status === "archived" ? "archived" : FATES[proposal.action];
  if (status === "open" && kind === "contradiction") return keeps ? `suggested by reflection, ${percent(confidence)}` : "";
  if (status === "open") return keeps ? "would stay" : retires && fate ? `would be ${fate}` : "";
  return status !== "accepted" ? "" : keeps ? "kept" : retires ? fate ?? "" : "";
}

/** The address of a piece of evidence, or undefined where no page shows it. @param {Evidence} piece @param {Finding} finding */
function addressOfPiece({ kind, id }, { user_id, agent_id }) {
  const owner = user_id ? ["users", user_id] : agent_id ? ["agents", agent_id] : undefined;
  if (kind === "fact") return owner && to("owners", [...owner, "facts"], { fact: id });
  if (kind === "profile") return to("owners", ["users", id.slice(0, id.lastIndexOf("/")), "profile"]);
  if (kind === "procedure") return owner && to("owners", [...owner, "procedures"]);
  if (kind === "action") return agent_id ? to("owners", ["agents", agent_id, "actions"]) : undefined;
  return place(id);
}

/** The evidence of a finding as claims, each with who said it and what becomes of it.
 * @param {Finding} finding @param {(id: string) => string} person @param {(source: Source) => Memory | undefined} [message] that a record was learned from @returns {Claim[]} */
export function claimsOf(finding, person, message) {
  const { keep, retire } = finding.proposal;
  return finding.evidence.map((piece) => {
    const is = (/** @type {{ kind: string, id: string } | null | undefined} */ named) => named?.kind === piece.kind && named.id === piece.id;
    const fate = fateOf(finding, is(keep), Boolean(retire?.some(is)));
    return { text: saidBy(piece, finding, person), href: addressOfPiece(piece, finding), id: piece.id,
      about: html`${fate && html`<${Tag} of=${fate} tone=${is(keep) ? "good" : "bad"} /> `}<${SaidBy} source=${piece.source} who=${finding.user_id ? person(finding.user_id) : undefined} said=${piece.source ? message?.(piece.source) : undefined} at=${piece.said_at} trust=${piece.trust} />
        ${piece.quote && html`<div>Only this sentence is meant: <${Text} text=${piece.quote} long=${200} /></div>`}` };
  });
}

/** The field of the profile that a finding is about, or undefined. @param {Finding} finding */
export const fieldOfFinding = ({ user_id, proposal: { details } }) => (user_id ? Object.keys(PREDICATES).find((field) => field === details?.aspect) : undefined);

/** The open finding that contradicts a field of a person's profile: "They give different values (home)."
 * @param {Finding[]} findings @param {string} user_id @param {string} field */
export const againstField = (findings, user_id, field) => findings.find((one) => one.kind === "contradiction" && one.user_id === user_id
  && (one.proposal.details?.aspect === field || one.evidence.some((piece) => piece.kind === "profile" && piece.id === `${user_id}/${field}`)));

/** How much of an owner waits to be decided, with the way to it. @param {{ count: number, owner: Owner }} props */
export const ToDecide = ({ count, owner }) => (count ? html` <a href=${to("findings", [], owner)}><${Tag} of=${`${count} to decide`} tone="bad" /></a>` : null);

/** What contradicts a record: a sentence and where it is decided. @typedef {{ text: string, href: string }} Challenge */

/** What contradicts the records of an owner, by the id of what is contradicted: the fact or memory that is disputed, or the finding.
 * @param {Owner} owner @returns {Map<string, Challenge>} */
export function useChallenged({ user_id, agent_id }) {
  const names = useNames();
  const asked = user_id || agent_id;
  const loaded = useLoad((signal) => (asked ? waitingOf(user_id ? { user_id } : { agent_id }, signal) : Promise.resolve([])), [user_id, agent_id], ["fact", "memory", "finding"]);
  return new Map((loaded.data ?? []).flatMap((doubt) => {
    if ("finding_id" in doubt) {
      const href = to("findings", [doubt.finding_id]);
      return doubt.kind === "contradiction" ? doubt.evidence.map((piece) => {
        const other = doubt.evidence.find(({ id }) => id !== piece.id);
        return /** @type {[string, Challenge]} */ ([piece.id, { text: (other && saidBy(other, doubt, names.person)) ?? "", href }]);
      }) : [];
    }
    const text = "fact_id" in doubt ? statement(doubt, doubt.user_id && names.person(doubt.user_id)) : doubt.content;
    return ("fact_id" in doubt ? doubt.disputes : doubt.contradicts).map((id) => /** @type {[string, Challenge]} */ ([id, { text, href: addressOf(doubt) }]));
  }));
}

/** The mark of what is contradicted, and by what: a disputed record, a finding, or another value that holds beside it. One link, to where it is decided. @param {{ of: Challenge | undefined }} props */
export const ContradictedBy = ({ of }) => (of ? html`<a class="contradicted" href=${of.href}><${Tag} of="contradicted" tone="bad" /> by <${Text} text=${of.text || "a finding"} long=${80} /></a>` : null);

/** What holds of a field of the profile while an open finding contradicts it: the value of the record that would stay, or
 * else the statement of it, without whom it is about. "Rome", where "nina lives in Oslo" would take its place, is "lives in Oslo".
 * @param {string} value @param {Finding | undefined} by @param {string[]} names of the person @param {{ fact_id: string, object: string }[]} facts */
function holdsNow(value, by, names, facts) {
  const keep = by?.proposal.action === "supersede" ? by.proposal.keep : undefined;
  const stays = keep && by?.evidence.find((piece) => piece.kind === keep.kind && piece.id === keep.id)?.text;
  if (!stays || stays.toLowerCase().includes(value.toLowerCase())) return value;
  const subject = ["The user", ...names].find((name) => stays.toLowerCase().startsWith(`${name.toLowerCase()} `)) ?? "";
  return facts.find((fact) => fact.fact_id === keep.id)?.object ?? stays.slice(subject.length).trim();
}

/** A field of a person's profile as it holds now, marked where a finding waits that would change it.
 * @param {{ value: string, by: Finding | undefined, names: string[], facts?: { fact_id: string, object: string }[], lead?: string }} props `lead`: stands before the value, unless a statement is shown in its place */
export function FieldValue({ value, by, names, facts = [], lead = "" }) {
  const shown = holdsNow(value, by, names, facts);
  return html`<${Text} text=${shown === value ? `${lead}${value}` : shown} long=${160} />${by
    && html` <a href=${to("findings", [by.finding_id])}><${Tag} of="contradicted" tone="bad" /></a>`}`;
}

/** The decision that a claim, or both, hold: what it does as a sentence, and whether it can be undone. @typedef {{ act: () => void, busy: boolean, does: string }} Hold */
/** What is said (null: it is gone), where it is shown, since when and by whom, and the decision that it holds.
 * @typedef {{ text: string | null | undefined, href?: string, id?: string, about: unknown, hold?: Hold }} Claim */

/** What has two sides, of which one holds. */
const BOTH_SIDES = new Set(["disputed", "contradiction"]);

/** What is in doubt, a dispute or a finding: what it is about, its kind and what else stands beside it, each claim, and where it is decided or how.
 * @param {{ title: string, kind: string, status?: string, tone?: string, about?: unknown, claims: Claim[], decide?: string | false, children?: unknown }} props
 *   `decide`: the page where one decides, or false for a key that may not; `children`: how one decides here, in its place */
export function Doubt({ title, kind, status = "", tone = "bad", about, claims, decide, children }) {
  return html`<div class="row apart"><b><${Text} text=${title} /></b><span><${Tag} of=${words(kind)} tone=${status ? "" : tone} />${status && html` <${Tag} of=${status} tone=${tone} />`}</span></div>
    ${about && html`<p class="small quiet">${about}</p>`}
    <ul class="claims">${claims.map(({ text, href, id = "", about: more, hold }) => {
      const told = text ? html`<${Text} text=${text} long=${400} />` : html`<span class="quiet">It was changed or is gone. ${!href && html`<code>${id}</code>`}</span>`;
      return html`<li key=${`${href} ${id} ${text}`}>${href ? html`<a href=${href}>${told}</a>` : told}<div class="small quiet">${more}</div>
        ${hold && html`<${Choose} of=${hold} label=${`This one holds: ${text ?? id}`}>This one holds</${Choose}>`}</li>`;
    })}</ul>
    ${!children && decide && kind === "contradiction" && html`<p class="small quiet">${BOTH_IN}</p>`}
    ${children ?? (decide ? html`<div class="actions"><a class="button" href=${decide}>${BOTH_SIDES.has(kind) ? "Decide which holds" : "Decide"}</a></div>` : html`<p class="small quiet">${NEEDS_WRITE}</p>`)}`;
}

/** What a key that only reads is told where another one decides. */
export const NEEDS_WRITE = "To decide it, a key that writes is needed.";
