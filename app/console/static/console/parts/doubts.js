/** What is contradicted: the mark of it where it stands, and its decision, which is the same on every page and of a finding as of a dispute: both claims
 * side by side, this one holds, or both hold. */
import { html } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { to } from "../route.js";
import { ProblemBox, useAction, useToast } from "./feedback.js";
import { Json, Sources, addressOf, place, takeBack } from "./records.js";
import { useNames } from "./scope.js";
import { Tag, Text, Time, percent, statement, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["ReflectionFinding"]} Finding */
/** @typedef {Schemas["FindingEvidence"]} Evidence */
/** @typedef {Schemas["Fact"]} Fact */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Source"]} Source */
/** Whose records: both, one or nobody named. @typedef {{ user_id?: string, agent_id?: string }} Owner */
/** A record that contradicts what has more trust, and what it contradicts. @typedef {{ record: Fact | Memory, others?: (Fact | Memory)[] }} Disputed `others`: those that are still there, where they were loaded */

const MOST = 100;
/** Disputes of a list whose other side is loaded at once, and other sides of one record. */
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
  return which(claims);
}

/** @param {string[]} claims */
const which = (claims) => `${claims.length > 1 ? "Which holds" : "Does it hold"}: ${claims.map((claim) => `“${shortened(claim)}”`).join(" or ")}?`;

/** What a finding is about: "nina lives in: Rome or Oslo?", where the service says "They give different values (home).".
 * @param {Finding} finding @param {(id: string) => string} person */
function titleOf(finding, person) {
  const { kind, status, reason, evidence } = finding;
  const claims = evidence.map((piece) => saidBy(piece, finding, person));
  const kept = claims[evidence.findIndex(({ id }) => id === finding.proposal.keep?.id)];
  if (kind === "contradiction" && status === "accepted" && kept) return `Decided: ${kept}`;
  if (kind === "contradiction" && claims.length > 1 && claims.every((claim) => typeof claim === "string")) return matter(/** @type {string[]} */ (claims));
  const subject = kind === "failing_procedure" ? evidence[0] : undefined;
  return subject?.text ? `${subject.text}: ${reason.replace(/^It /, "it ")}` : reason;
}

/** What a piece of evidence says; a fact about the person says "The user", whoever that is. @param {Evidence} piece @param {Finding} finding @param {(id: string) => string} person */
const saidBy = ({ kind, text }, { user_id }, person) => (text && kind === "fact" && user_id ? text.replace(/^The user /, `${person(user_id)} `) : text);

/** What waits to be decided in a sentence: what a finding is about, or whether it holds what was contradicted when it was stored. @param {Finding | Fact | Memory} doubt @param {(id: string) => string} person */
export const aboutOf = (doubt, person) => ("finding_id" in doubt ? titleOf(doubt, person) : which(["fact_id" in doubt ? statement(doubt, doubt.user_id && person(doubt.user_id)) : doubt.content]));

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

/** @param {Fact | Memory} record */
export const idOf = (record) => ("fact_id" in record ? record.fact_id : record.memory_id);

/** What a record contradicts. @param {Fact | Memory} record */
const contradictedBy = (record) => ("fact_id" in record ? record.disputes : record.contradicts);

/** The other sides of a disputed record that are still there, the first few. @param {Fact | Memory} record @param {AbortSignal} signal @param {number} [most] @returns {Promise<(Fact | Memory)[]>} */
export const sidesOf = async (record, signal, most = SIDES) => (await Promise.all(contradictedBy(record).slice(0, most).map((id) => contradicted(record, id, signal)))).filter((side) => side !== undefined);

/** The same with the other side of each, for the first few. @param {Owner} owner @param {AbortSignal} signal @returns {Promise<Disputed[]>} */
export async function disputes(owner, signal) {
  const records = await disputedOf(owner, signal);
  return Promise.all(records.map(async (record, index) => ({ record, others: index < SIDES ? await sidesOf(record, signal, 1) : undefined })));
}

/** What a dispute is about: of facts the values, "Elbe Riders meets in: Wandsbek or Bergedorf?"; of memories what each says.
 * @param {Fact | Memory} record @param {(Fact | Memory)[]} others @param {(id: string) => string} person */
function matterOf(record, others, person) {
  if (!("fact_id" in record)) return which([record, ...others].flatMap((claim) => ("content" in claim ? [claim.content] : [])));
  const values = [record, ...others].flatMap((claim) => ("fact_id" in claim ? [claim.object] : []));
  return `${statement({ ...record, object: "" }, record.user_id && person(record.user_id)).trim()}: ${values.join(" or ")}?`;
}

/** Why it is disputed. @param {Fact | Memory} record @param {(Fact | Memory)[]} others */
const whyDisputed = (record, others) => (others.length
  ? `Trust ${record.trust.toFixed(2)} against ${Math.max(...others.map(({ trust }) => trust)).toFixed(2)}.` : "It contradicts what has more trust.");

/** How it is until a dispute is decided, and until a finding is. */
const LEFT_OUT = "Until it is decided, the one of less trust is left out of answers.";
const BOTH_IN = "Until it is decided, both are in answers.";

/** The predicates of the fields of a profile that are facts. Each has one value at a time, so that two cannot both hold. */
export const PREDICATES = /** @type {Record<string, string>} */ ({ name: "has_name", age: "has_age", home: "lives_in", occupation: "works_as" });

/** The field of the profile that a fact states, or undefined. @param {Fact | Memory} record */
export const fieldOf = (record) => ("fact_id" in record && record.subject === "@user" ? Object.keys(PREDICATES).find((field) => PREDICATES[field] === record.predicate) : undefined);

/** Who said a claim and in which words, or how else it came; when, and how far it is believed.
 * @param {{ source: Source | null | undefined, who?: string, said?: Memory, at: string | null | undefined, trust: number | null | undefined }} props
 *   `who`: the person that it is about, whose words a quote is; `said`: the memory of the message that it was learned from, where it is there */
const SaidBy = ({ source, who, said, at, trust }) => html`${source && html`<div><${Sources} of=${source} said=${said} who=${who} since=${at} />${source.note && html`, noted: <${Text} text=${source.note} long=${160} />`}</div>`}
  ${at && html`<${Time} at=${at} day=${true} />`}${at && typeof trust === "number" && " · "}${typeof trust === "number" && `trust ${trust.toFixed(2)}`}`;

/** A disputed record, or one that it contradicts, as a claim. @param {Fact | Memory} claim @param {(id: string) => string} person @param {Memory} [said] @returns {Claim} */
function claimOf(claim, person, said) {
  const who = claim.user_id ? person(claim.user_id) : undefined;
  const at = "fact_id" in claim ? claim.valid_from ?? claim.known_from : claim.event_at ?? claim.created_at;
  return { text: "fact_id" in claim ? statement(claim, who) : claim.content, href: addressOf(claim), about: html`<${SaidBy} source=${claim.source} who=${who} said=${said} at=${at} trust=${claim.trust} />` };
}

/** A dispute: both its claims and its decision, on every page where it stands. Where its other side was not loaded, a button leads to where it is.
 * @param {Disputed & { person: (id: string) => string, writes: boolean, whose?: string, message?: (source: Source) => Memory | undefined, onDone: (kept: string) => void }} props
 *   `message`: that a record was learned from; `onDone`: gets the id of what holds */
export function DisputeOf({ record, others, person, writes, whose, message, onDone }) {
  const toast = useToast();
  const field = fieldOf(record);
  const resolve = async (/** @type {string} */ keep) => {
    const decided = await ("fact_id" in record ? ask(api.POST("/v1/facts/{fact_id}/resolve", { params: { path: { fact_id: record.fact_id } }, body: { keep } }))
      : ask(api.POST("/v1/memories/{memory_id}/resolve", { params: { path: { memory_id: record.memory_id } }, body: { keep } })));
    onDone(idOf(decided));
    toast({ text: keep === "both" ? BOTH_DECIDED : ONE_DECIDED, undo: async () => { await takeBack(decided.operation_id); onDone(idOf(record)); } });
  };
  const decides = writes && others !== undefined, against = others ?? [];
  const claims = [record, ...against].map((side) => {
    const claim = claimOf(side, person, message?.(side.source));
    const act = () => resolve(idOf(side));
    const does = side !== record ? "The other one stays left out of answers, and in the history." : contradictedBy(record).length > 1 ? "The other ones leave answers and stay in the history." : LEAVES;
    return { ...claim, decision: decides && (side === record || side.status === "active") ? { word: HOLDS, of: claim.text, act, does } : undefined };
  });
  const title = matterOf(record, against, person);
  return html`<section aria-label=${`contradiction: ${title}`}><${Doubt} kind="contradiction" title=${title} claims=${claims} about=${html`${whose && `${whose} · `}${whyDisputed(record, against)} ${LEFT_OUT}`}>
    ${!writes ? NEEDS_WRITE : decides ? html`
      ${field ? html`<p class="small quiet">A profile has one value at a time: both cannot hold. Its ${words(field)} becomes the one that holds.</p>`
        : against.length > 0 && html`<${Decide} word=${BOTH} act=${() => resolve("both")} does="Both are in answers." />`}
      ${against.length > 0 && html`<p class="small quiet">Once it is decided, Undo is under <a href=${to("operations")}>Operations</a>.</p>`}`
      : html`<div class="actions"><a class="button" href=${addressOf(record)}>Decide which holds</a></div>`}</${Doubt}></section>`;
}

/** The words of a decision, and what becomes of the other claim. */
const HOLDS = "This one holds";
const BOTH = "Both hold";
const LEAVES = "The other one leaves answers and stays in the history.";
const ONE_DECIDED = "Decided. The other one stays in the history.";
const BOTH_DECIDED = "Decided: both hold.";

/** A decision: the word on its button and what it is of, and what it does as a sentence.
 * @typedef {{ word: string, of?: string | null, act: () => Promise<unknown>, does: string }} Decision */

/** A button that decides, and what it does. @param {Decision} props */
function Decide({ word, of, act, does }) {
  const run = useAction(act);
  return html`<div class="choose"><button type="button" aria-label=${of ? `${word}: ${of}` : undefined} disabled=${run.busy} onClick=${run.start}>${word}</button>
      <span class="small quiet">${does} It can be undone.</span></div><${ProblemBox} problem=${run.error} />`;
}

/** What happens to a record that is retired: so far it would, and once the finding is accepted it has. */
const FATES = /** @type {Record<string, string>} */ ({ supersede: "replaced", end: "ended", revise: "changed" });

/** What accepting does to a record, or "" where it does nothing or will not be done.
 * @param {Finding} finding @param {boolean} keeps @param {boolean} retires */
function fateOf({ kind, status, proposal }, keeps, retires) {
  const fate = proposal.details?.status === "archived" ? "archived" : FATES[proposal.action];
  if (status === "open" && kind === "contradiction") return keeps ? "suggested" : "";
  if (status === "open") return keeps ? "would stay" : retires && fate ? `would be ${fate}` : "";
  return status !== "accepted" ? "" : keeps ? "kept" : retires ? fate ?? "" : "";
}

/** Why the one of two claims is suggested, or "" where neither its time nor its trust tells. @param {Finding} finding @param {Evidence} kept */
function whySuggested({ evidence }, kept) {
  const others = evidence.filter(({ id }) => id !== kept.id);
  const reasons = [others.every(({ said_at }) => said_at && kept.said_at && said_at < kept.said_at) && "was said later", others.every(({ trust }) => (trust ?? 0) < (kept.trust ?? 0)) && "has more trust"].filter(Boolean);
  return reasons.length ? `because it ${reasons.join(" and ")}` : "";
}

/** The address of a piece of evidence, or undefined where no page shows it. @param {Evidence} piece @param {Finding} finding */
function addressOfPiece({ kind, id }, { user_id, agent_id }) {
  const owner = user_id ? ["users", user_id] : agent_id ? ["agents", agent_id] : undefined;
  if (kind === "fact") return owner && to("owners", [...owner, "facts"], { fact: id });
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
      about: html`${fate && html`<div><${Tag} of=${fate} tone=${is(keep) ? "good" : "bad"} /> ${fate === "suggested" && whySuggested(finding, piece)}</div>`}<${SaidBy} source=${piece.source} who=${finding.user_id ? person(finding.user_id) : undefined} said=${piece.source ? message?.(piece.source) : undefined} at=${piece.said_at} trust=${piece.trust} />
        ${piece.quote && html`<div>Only these words are meant: <${Text} text=${piece.quote} long=${200} /></div>`}
        ${piece.shortened && retire?.some(is) && html`<div>Accepting leaves: <${Text} text=${piece.shortened} long=${200} /></div>`}` };
  });
}

/** The field of the profile that a finding is about, or undefined. @param {Finding} finding */
const fieldOfFinding = ({ user_id, proposal: { details } }) => (user_id ? Object.keys(PREDICATES).find((field) => field === details?.aspect) : undefined);

/** The open finding that contradicts a field of a person's profile: "They give different values (home)."
 * @param {Finding[]} findings @param {string} user_id @param {string} field */
export const againstField = (findings, user_id, field) => findings.find((one) => one.kind === "contradiction" && one.user_id === user_id
  && one.proposal.details?.aspect === field);

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

/** What is said (null: it is gone), where it is shown, since when and by whom, and the decision that it holds.
 * @typedef {{ text: string | null | undefined, href?: string, id?: string, about: unknown, decision?: Decision }} Claim */

/** What is contradicted or was found: what it is about, its kind and what else stands beside it, each claim with its decision, and what can be decided besides.
 * @param {{ title: string, kind: string, status?: string, tone?: string, about?: unknown, claims: Claim[], children?: unknown }} props `status`: of what is decided, with its tone */
export function Doubt({ title, kind, status, tone = "", about, claims, children }) {
  return html`<div class="row apart"><b><${Text} text=${title} /></b><span><${Tag} of=${words(kind)} tone=${status ? "" : "bad"} />${status && html` <${Tag} of=${status} tone=${tone} />`}</span></div>
    ${about && html`<p class="small quiet">${about}</p>`}
    <ul class="claims">${claims.map(({ text, href, id = "", about: more, decision }) => {
      const told = text ? html`<${Text} text=${text} long=${400} />` : html`<span class="quiet">It was changed or is gone. ${!href && html`<code>${id}</code>`}</span>`;
      return html`<li key=${`${href} ${id} ${text}`}>${href ? html`<a href=${href}>${told}</a>` : told}<div class="small quiet">${more}</div>${decision && html`<${Decide} ...${decision} />`}</li>`;
    })}</ul>${children}`;
}

/** What a key that only reads is told where another one decides. */
const NEEDS_WRITE = html`<p class="small quiet">To decide it, a key that writes is needed.</p>`;

/** What accepting a finding does. */
const EFFECTS = /** @type {Record<string, string>} */ ({
  supersede: "The record that would stay takes the place of the other one, which stays in the history.",
  end: "The record stops being valid. It stays, and leaves answers and prompts.",
  store: "This sentence is stored as a memory, as far trusted as the least of its sources.",
  revise: "The procedure is changed; its former version stays in its history.",
});
const ARCHIVES = "The procedure is archived: it leaves answers and prompts.";
const UNFOUND = "It is not found again as long as its evidence stays as it is.";
const TONES = /** @type {Record<string, string>} */ ({ accepted: "good" });

/** Whether a finding is a choice: one of two claims would take the place of the other. @param {Finding} finding */
const isChoice = ({ kind, proposal, evidence }) => kind === "contradiction" && proposal.action === "supersede" && Boolean(proposal.keep) && evidence.length === 2;

/** What can be done with a finding. @param {Finding} finding @param {() => void} onDone */
function useSettle(finding, onDone) {
  const toast = useToast();
  const at = { params: { path: { finding_id: finding.finding_id } } };
  const undo = async (/** @type {string | null | undefined} */ operation_id) => {
    await takeBack(operation_id ?? "");
    onDone();
  };
  const decided = (/** @type {Finding} */ { operation_id }, /** @type {string} */ text) => {
    onDone();
    toast({ text, undo: () => undo(operation_id) });
  };
  const accept = async (/** @type {string | undefined} */ keep = undefined) => decided(await ask(api.POST("/v1/findings/{finding_id}/accept", { ...at, body: { keep } })), isChoice(finding) ? ONE_DECIDED : "Accepted.");
  const dismiss = async () => decided(await ask(api.POST("/v1/findings/{finding_id}/dismiss", at)), isChoice(finding) ? BOTH_DECIDED : "Dismissed.");
  const back = useAction(async () => { await undo(finding.operation_id); toast({ text: "Undone." }); });
  return { accept, dismiss, back };
}

/** A finding: its claims and its decision, on every page where it stands.
 * @param {{ finding: Finding, person: (id: string) => string, writes: boolean, whose?: string, message?: (source: Source) => Memory | undefined, onDone: () => void }} props as of `DisputeOf` */
export function FindingOf({ finding, person, writes, whose, message, onDone }) {
  const { accept, dismiss, back } = useSettle(finding, onDone);
  const { proposal: { action, details }, status, reason } = finding;
  const open = status === "open", choice = isChoice(finding), field = fieldOfFinding(finding);
  const title = titleOf(finding, person);
  const claims = claimsOf(finding, person, message).map((claim) => (open && writes && choice
    ? { ...claim, decision: { word: HOLDS, of: claim.text ?? claim.id, act: () => accept(claim.id), does: LEAVES } } : claim));
  const card = (/** @type {string} */ was) => html`<a href=${to("findings", [], { status: was })}>${was}</a>`;
  const undone = html`Once it is decided, Undo is on this card under the findings that are ${card("accepted")} or ${card("dismissed")}, and under <a href=${to("operations")}>Operations</a>.`;
  return html`<section aria-label=${`${finding.kind}: ${title}`}>
    <${Doubt} title=${title} kind=${finding.kind} status=${open ? "" : statusOf(status)} tone=${TONES[status]} claims=${claims}
      about=${html`${whose && `${whose} · `}<a href=${to("findings", [finding.finding_id])}>found <${Time} at=${finding.created_at} /></a>${details?.model && ` · ${reason}`}${open && finding.kind === "contradiction" && ` · ${BOTH_IN}`}`}>
      ${typeof details?.content === "string" && details.content && html`<p>Together: <b><${Text} text=${details.content} /></b></p>`}
      ${open && !writes && NEEDS_WRITE}
      ${open && writes && !choice && action !== "none" && html`<${Decide} word="Accept" act=${() => accept()} does=${details?.status === "archived" ? ARCHIVES : EFFECTS[action] ?? action} />`}
      ${open && writes && html`<${Decide} word=${choice ? BOTH : "Dismiss"} act=${dismiss} does=${`${choice ? "Both stay in answers." : "Nothing is changed."} ${UNFOUND}`} />
        <p class="small quiet">${field && choice && `The profile follows: its ${words(field)} becomes the one that holds; if both hold, it stays as it is. `}${undone}</p>`}
      ${["accepted", "dismissed"].includes(status) && writes && finding.operation_id && html`<div class="actions"><button type="button" disabled=${back.busy} onClick=${back.start}>Undo</button></div><${ProblemBox} problem=${back.error} />`}
      ${finding.settled_at && html`<p class="quiet small">Settled <${Time} at=${finding.settled_at} />${finding.settled_by && ` by ${finding.settled_by}`}.</p>`}
      <${Json} title="The suggestion in full" value=${{ ...finding.proposal, confidence: percent(finding.confidence), "least trust": finding.trust.toFixed(2) }} /></${Doubt}></section>`;
}
