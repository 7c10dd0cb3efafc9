/** Findings: what reflection and reviews found, with the evidence side by side; accept, dismiss, undo. And what is disputed. Which of two claims holds is decided in the same words for both. */
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { html, useState } from "../ui.js";
import { Chips, Order, orderOf } from "../parts/collection.js";
import { Confirm, Empty, Loaded, More, ProblemBox, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { Json, ended } from "../parts/records.js";
import { BOTH_IN, Deciding, DisputeOf, Doubt, NEEDS_WRITE, claimsOf, disputes, fieldOfFinding, statusOf, titleOf } from "../parts/doubts.js";
import { useNames } from "../parts/scope.js";
import { Icon, Text, Time, curl, percent, words } from "../parts/text.js";
import { go, to } from "../route.js";
import { Progress } from "../parts/results.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["ReflectionFinding"]} Finding */
/** @typedef {import("../api.js").Caller} Caller */
/** @typedef {Record<string, string>} Params */

const KINDS = /** @type {const} */ (["contradiction", "stale", "insight", "failing_procedure"]);
const STATUSES = /** @type {const} */ (["open", "accepted", "dismissed", "settled", "any"]);
const TONES = /** @type {Record<string, string>} */ ({ open: "bad", accepted: "good" });
const EFFECTS = /** @type {Record<string, string>} */ ({
  supersede: "The record that would stay takes the place of the other one, which stays in the history.",
  end: "The record stops being valid. It stays, and leaves answers and prompts.",
  store: "This sentence is stored as a memory, as far trusted as the least of its sources.",
  revise: "The procedure is changed; its former version stays in its history.",
  none: "Nothing is changed.",
});
const ARCHIVES = "The procedure is archived: it leaves answers and prompts, and can be brought back.";
const DISMISSES = "Nothing is changed. It is not found again as long as its evidence stays as it is, and this cannot be undone.";
/** @param {string} finding_id */
const at = (finding_id) => ({ params: { path: { finding_id } } });

/** What can be done with a finding. @param {Finding} finding @param {() => void} onDone */
function useSettle(finding, onDone) {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const undo = async (/** @type {string} */ operation_id) => {
    await ended(await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: { operation_id } } })));
    onDone();
  };
  const accept = useAction(async (/** @type {string | undefined} */ keep) => {
    const done = await ask(api.POST("/v1/findings/{finding_id}/accept", { ...at(finding.finding_id), body: { keep } }));
    const id = done.operation_id;
    onDone();
    toast({ text: chosen(finding) ? "Decided. The other one stays in the history." : "Accepted.", undo: id ? () => undo(id) : undefined });
  });
  const dismiss = async () => {
    await ask(api.POST("/v1/findings/{finding_id}/dismiss", at(finding.finding_id)));
    onDone();
    toast({ text: chosen(finding) ? "Decided: both hold." : "Dismissed." });
  };
  const back = useAction(async () => { await undo(finding.operation_id ?? ""); toast({ text: "Undone." }); });
  return { accept, dismiss, back, asks, setAsks };
}

/** Whether it is decided which of two claims holds: one of them would take the place of the other. @param {Finding} finding */
const chosen = ({ kind, proposal, evidence }) => kind === "contradiction" && proposal.action === "supersede" && Boolean(proposal.keep) && evidence.length === 2;

/** The claims of a finding, with the decision that one holds.
 * @param {Finding} finding @param {(id: string) => string} person @param {ReturnType<typeof useSettle>} settle @param {boolean} writes */
function decided(finding, person, { accept }, writes) {
  const decides = writes && finding.status === "open" && chosen(finding);
  const does = "The other one leaves answers and stays in the history. This can be undone.";
  return claimsOf(finding, person).map((claim) => (decides ? { ...claim, hold: { act: () => accept.start(claim.id), busy: accept.busy, does } } : claim));
}

/** @param {{ finding: Finding, settle: ReturnType<typeof useSettle> }} props */
function Settle({ finding, settle: { accept, dismiss, back, asks, setAsks } }) {
  const { action, details } = finding.proposal;
  const isChoice = chosen(finding);
  const accepts = action === "revise" && details?.status === "archived" ? ARCHIVES : EFFECTS[action] ?? action;
  return html`${finding.status === "open" && (isChoice
    ? html`<${Deciding} told=${BOTH_IN} field=${fieldOfFinding(finding)} both=${{ act: () => setAsks(true), busy: false, does: "Both stay in answers. This cannot be undone." }} />`
    : html`<dl class="pairs">${action !== "none" && html`<dt>Accept</dt><dd>${accepts}</dd>`}<dt>Dismiss</dt><dd>${DISMISSES}</dd></dl>
      <div class="actions">${action !== "none" && html`<button type="button" class="main" disabled=${accept.busy} onClick=${() => accept.start()}>Accept</button>`}
      <button type="button" onClick=${() => setAsks(true)}>Dismiss</button></div>`)}
    ${finding.status === "accepted" && finding.operation_id && html`<div class="actions">
      <button type="button" disabled=${back.busy} onClick=${back.start}>Undo</button></div>`}
    <${ProblemBox} problem=${accept.error ?? back.error} />
    ${asks && html`<${Confirm} title=${isChoice ? "Do both hold?" : "Dismiss this finding?"} button=${isChoice ? "Both hold" : "Dismiss"} action=${dismiss} onClose=${() => setAsks(false)}>
      <p>${DISMISSES}</p></${Confirm}>`}`;
}

/** @param {{ finding: Finding, caller: Caller, onDone: () => void }} props */
function Card({ finding, caller, onDone }) {
  const content = finding.proposal.details?.content;
  const names = useNames();
  const settle = useSettle(finding, onDone);
  const writes = may(caller, "write");
  const owner = [finding.agent_id && names.agent(finding.agent_id), finding.user_id ? names.person(finding.user_id) : caller.users?.length && "shared with everyone"].filter(Boolean).join(" · ");
  const title = titleOf(finding, names.person);
  return html`<section aria-label=${`${finding.kind}: ${title}`}>
    <${Doubt} title=${title} kind=${finding.kind} status=${statusOf(finding.status)} tone=${TONES[finding.status] ?? ""} claims=${decided(finding, names.person, settle, writes)}
      about=${html`${owner && `${owner} · `}<a href=${to("findings", [finding.finding_id])}>found <${Time} at=${finding.created_at} /></a>`}>
      ${typeof content === "string" && content && html`<p>Together: <b><${Text} text=${content} /></b></p>`}
      ${finding.status === "open" && !writes && html`<p class="small quiet">${NEEDS_WRITE}</p>`}
      ${writes && html`<${Settle} finding=${finding} settle=${settle} />`}
      <p class="quiet small">It was found with a confidence of ${percent(finding.confidence)}; the least trusted record has trust ${finding.trust.toFixed(2)}.${finding.settled_at && html` Settled <${Time} at=${finding.settled_at} /> by ${finding.settled_by ?? "somebody"}.`}</p>
      <${Json} title="The suggestion in full" value=${finding.proposal} /></${Doubt}></section>`;
}

/** Facts and memories that contradict what has more trust: no finding is made of them.
 * @param {{ owner: { user_id?: string, agent_id?: string }, caller: Caller }} props */
function Disputed({ owner, caller }) {
  const found = useLoad((signal) => disputes(owner, signal), [JSON.stringify(owner)], ["fact", "memory"]);
  const names = useNames();
  return html`<${ProblemBox} problem=${found.error} />${found.data && found.data.length > 0 && html`<section aria-label="Disputes"><h2>Disputes</h2>
    <p class="quiet small">What was stored although it contradicts what has more trust. Searches and prompts leave it out until somebody decides.</p>
    <ul class="list">${found.data.map((dispute) => html`<li class="box" key=${"fact_id" in dispute.record ? dispute.record.fact_id : dispute.record.memory_id}><${DisputeOf} of=${dispute} person=${names.person} writes=${may(caller, "write")} onDone=${found.again} /></li>`)}</ul></section>`}`;
}

/** A choice of the address. @param {{ route: import("../route.js").Route, name: string, label: string, of: readonly string[], all?: string, value?: string }} props */
function Choice({ route, name, label, of, all, value }) {
  const change = (/** @type {any} */ event) => go(to(route.page, [], { ...route.params, [name]: event.target.value === value ? "" : event.target.value }), { replace: true });
  return html`<label>${label} <select value=${route.params[name] ?? value ?? ""} onChange=${change}>
    ${all && html`<option value="">${all}</option>`}${of.map((one) => html`<option value=${one}>${one === "open" ? statusOf(one) : words(one)}</option>`)}</select></label>`;
}

/** Looks for findings of the agent and user in the filters. @param {{ params: Params, onEnd: () => void }} props */
function Reflect({ params, onEnd }) {
  const [running, run] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const owner = { ...(params.agent_id && { agent_id: params.agent_id }), ...(params.user_id && { user_id: params.user_id }) };
  const start = useAction(async (dry_run) => run(await ask(api.POST("/v1/reflect", { body: { ...owner, dry_run } }))));
  return html`<div class="actions"><button type="button" disabled=${start.busy} onClick=${() => start.start(false)}>Look for findings</button>
      <button type="button" disabled=${start.busy} onClick=${() => start.start(true)}>Only count what it would find</button></div>
    <${ProblemBox} problem=${start.error} />
    ${running && html`<${Progress} key=${running.operation_id} operation=${running} onEnd=${onEnd} />`}`;
}

/** @param {{ id: string, caller: Caller }} props */
function One({ id, caller }) {
  const found = useLoad((signal) => ask(api.GET("/v1/findings/{finding_id}", { ...at(id), signal })), [id], ["finding"]);
  return html`<p><a class="back" href=${to("findings")}><${Icon} of="chevron-left" /> All findings</a></p><h1>Finding</h1><${Loaded} of=${found}>${(/** @type {Finding} */ finding) => html`
    <div class="box"><${Card} finding=${finding} caller=${caller} onDone=${found.again} /></div>`}</${Loaded}>`;
}

/** @type {import("../console.js").Page} */
export default function Findings({ route, caller }) {
  const { params } = route;
  const query = {
    agent_id: params.agent_id, user_id: params.user_id, kind: /** @type {Finding["kind"] | undefined} */ (params.kind),
    status: /** @type {Schemas["FindingListStatus"]} */ (params.status ?? "open"), order: orderOf(params), limit: 20,
  };
  const id = route.rest[0];
  const list = usePages(async (cursor, signal) => {
    if (id) return { items: /** @type {Finding[]} */ ([]), next_cursor: null };
    const page = await ask(api.GET("/v1/findings", { params: { query: { ...query, cursor } }, signal }));
    return { items: page.items, next_cursor: page.next_cursor ?? null };
  }, [id, JSON.stringify(query)], id ? [] : ["finding"]);
  const set = (/** @type {Params} */ given) => go(to("findings", [], { ...params, ...given }), { replace: true });
  if (id) return html`<${One} id=${id} caller=${caller} />`;
  const asked = { ...(params.agent_id && { agent_id: params.agent_id }), ...(params.user_id && { user_id: params.user_id }) };
  return html`<h1>Findings</h1>
    <form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${Choice} route=${route} name="kind" label="Kind" of=${KINDS} all="every kind" /><${Choice} route=${route} name="status" label="Status" of=${STATUSES} value="open" /><${Order} params=${params} set=${set} /></form>
    <${Chips} params=${params} set=${set} names=${{ kind: "Kind", status: "Status" }} />
    ${may(caller, "write") && html`<${Reflect} params=${params} onEnd=${list.again} />`}
    <${ProblemBox} problem=${list.error} again=${list.again} />${!list.items && list.loading && html`<div class="box"><${WaitingRows} of=${list} /></div>`}
    ${["open", "any"].includes(query.status) && [undefined, "contradiction"].includes(query.kind) && html`<${Disputed} owner=${asked} caller=${caller} />`}
    ${list.items?.length === 0 && html`<${Empty} title="No finding waits to be settled here. Look for what cannot be true together:"
      curl=${curl("POST", `${BASE}/v1/reflect`, asked, Boolean(key.get()))} />`}
    ${Boolean(list.items?.length) && html`<h2>Found by reflection</h2>`}
    <ul class="list" aria-label="Findings">${list.items?.map((finding) => html`<li key=${`${finding.finding_id}/${finding.version}`} class="box">
      <${Card} finding=${finding} caller=${caller} onDone=${list.again} /></li>`)}</ul><${More} of=${list} />`;
}
