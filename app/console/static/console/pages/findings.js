/** Findings: what reflection and reviews found, and what was contradicted when it was stored, each with its decision. */
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { html, useState } from "../ui.js";
import { Chips, Order, orderOf } from "../parts/collection.js";
import { Empty, Loaded, More, ProblemBox, WaitingRows, useAction } from "../parts/feedback.js";
import { DisputeOf, FindingOf, disputes, idOf, statusOf } from "../parts/doubts.js";
import { useNames } from "../parts/scope.js";
import { Icon, curl, words } from "../parts/text.js";
import { go, to } from "../route.js";
import { Progress } from "../parts/results.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["ReflectionFinding"]} Finding */
/** @typedef {import("../api.js").Caller} Caller */
/** @typedef {Record<string, string>} Params */

const KINDS = /** @type {const} */ (["contradiction", "stale", "insight", "failing_procedure"]);
const STATUSES = /** @type {const} */ (["open", "accepted", "dismissed", "settled", "any"]);
/** @param {string} finding_id */
const at = (finding_id) => ({ params: { path: { finding_id } } });

/** Whose a record is: the agent and the person. @param {{ agent_id?: string | null, user_id?: string | null }} record @param {ReturnType<typeof useNames>} names @param {Caller} caller */
const whoseOf = ({ agent_id, user_id }, names, caller) => [agent_id && names.agent(agent_id), user_id ? names.person(user_id) : caller.users?.length && "shared with everyone"].filter(Boolean).join(" · ");

/** @param {{ finding: Finding, caller: Caller, onDone: () => void }} props */
function Card({ finding, caller, onDone }) {
  const names = useNames();
  return html`<${FindingOf} finding=${finding} person=${names.person} writes=${may(caller, "write")} whose=${whoseOf(finding, names, caller)} onDone=${onDone} />`;
}

/** Facts and memories that contradict what has more trust: no finding is made of them.
 * @param {{ owner: { user_id?: string, agent_id?: string }, caller: Caller }} props */
function Disputed({ owner, caller }) {
  const found = useLoad((signal) => disputes(owner, signal), [JSON.stringify(owner)], ["fact", "memory"]);
  const names = useNames();
  return html`<${ProblemBox} problem=${found.error} />${found.data && found.data.length > 0 && html`<section aria-label="Contradicted when it was stored"><h2>Contradicted when it was stored</h2>
    <ul class="list">${found.data.map(({ record, others }) => html`<li class="box" key=${idOf(record)}><${DisputeOf} record=${record} others=${others}
      person=${names.person} writes=${may(caller, "write")} whose=${whoseOf(record, names, caller)} onDone=${found.again} /></li>`)}</ul></section>`}`;
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
