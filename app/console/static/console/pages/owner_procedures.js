/** Procedures of a person or agent: how often each worked, and one beside the list with its steps, outcomes and history. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Interval, wilson } from "../parts/bars.js";
import { Add, Chips, ChosenFilter, DetailHead, Form, Order, TypedFilter, lines, orderOf } from "../parts/collection.js";
import { Diff, changes } from "../parts/diff.js";
import { Confirm, Empty, Loaded, More, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { RecordLink, Status } from "../parts/records.js";
import { Icon, Tag, Text, Time, counted, curl, percent, words } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Procedure"]} Procedure */
/** @typedef {{ procedure: Procedure, versions: Schemas["ProcedureVersion"][] }} Known */

const FILTERS = { status: "Status", tag: "Tag", name: "Name" };
const STATUSES = /** @type {const} */ (["active", "archived"]);
const FIELDS = (/** @type {Partial<Procedure>} */ { name, trigger, preconditions = [], steps = [], notes = [] }) => [
  { name: "name", label: "Name", value: name }, { name: "trigger", label: "When it is for", value: trigger, hint: "A parcel never arrived" },
  { name: "steps", label: "Steps, one on each line", value: steps.join("\n"), long: true },
  { name: "preconditions", label: "What must hold first, one on each line", value: preconditions.join("\n"), long: true, optional: true },
  { name: "notes", label: "What was learned on the way, one on each line", value: notes.join("\n"), long: true, optional: true },
];

/** What somebody wrote of a procedure: the rest of it counts what came of it. */
const WRITTEN = ["name", "trigger", "steps", "preconditions", "notes", "status", "trust", "tags"];
const text = (/** @type {unknown} */ value) => (Array.isArray(value) ? value.join("\n") : value);

/** What a form of a procedure says. @param {Record<string, string>} given */
const said = ({ name = "", trigger = "", steps = "", preconditions = "", notes = "" }) => ({ name, trigger, steps: lines(steps), preconditions: lines(preconditions), notes: lines(notes) });

/** @param {string} procedure_id */
const at = (procedure_id) => ({ params: { path: { procedure_id } } });

/** @param {import("./owners.js").PartProps} props */
export default function Procedures({ owner, route, caller }) {
  const { procedure: chosen, ...params } = route.params;
  const query = { ...owner, status: STATUSES.find((one) => one === params.status) ?? /** @type {const} */ ("any"), tag: params.tag, name: params.name, order: orderOf(params), limit: 30 };
  const found = usePages((cursor, signal) => ask(api.GET("/v1/procedures", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["procedure"]);
  const set = (/** @type {Record<string, string>} */ given) => go(to(route.page, route.rest, { ...route.params, ...given }), { replace: true });
  const toast = useToast();
  const add = async (/** @type {Record<string, string>} */ given) => {
    const made = await ask(api.POST("/v1/procedures", { body: { ...owner, ...said(given) } }));
    found.again();
    toast({ text: "The procedure is added.", about: made.procedure_id, undo: async () => {
      await ask(api.DELETE("/v1/procedures/{procedure_id}", at(made.procedure_id)));
      set({ procedure: "" });
      found.again();
    } });
  };
  const body = { ...owner, name: "Refund a lost parcel", trigger: "A parcel never arrived", steps: ["Ask the carrier", "Refund the order"] };
  const filtered = Object.keys(FILTERS).some((name) => params[name]);
  return html`<form role="search" aria-label="Procedures" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="filters"><${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${STATUSES} any="any status" /><${Order} params=${params} set=${set} />
        ${may(caller, "write") && html`<${Add} title="Add a procedure" save=${add} fields=${FIELDS({})} />`}
        <details class="more"><summary>More filters</summary><div class="filters"><${TypedFilter} name="name" label="Name" params=${params} set=${set} /><${TypedFilter} name="tag" label="Tag" params=${params} set=${set} /></div></details></div>
      <${Chips} params=${params} set=${set} names=${FILTERS} /></form>
    <${ProblemBox} problem=${found.error} />
    ${found.items?.length === 0 && (filtered ? html`<${Empty} title="No procedure is like this." />`
      : html`<${Empty} title="No procedures. Write one:" curl=${curl("POST", `${BASE}/v1/procedures`, body, Boolean(key.get()))} />`)}
    <div class=${chosen ? "two detail" : ""}>
      <div>${found.items && found.items.length > 0 && html`<section class="box" aria-label="List of procedures"><ul class="list">${found.items.map((procedure) => html`<${Row} key=${procedure.procedure_id} procedure=${procedure}
        chosen=${procedure.procedure_id === chosen} href=${to(route.page, route.rest, { ...params, procedure: procedure.procedure_id })} />`)}</ul><${More} of=${found} /></section>`}</div>
      ${chosen && html`<${ProcedureView} key=${chosen} id=${chosen} back=${to(route.page, route.rest, params)} caller=${caller} />`}</div>`;
}

/** @param {{ procedure: Procedure, chosen: boolean, href: string }} props */
function Row({ procedure, chosen, href }) {
  const { success_count, failure_count } = procedure;
  const total = success_count + failure_count;
  return html`<li class=${chosen ? "chosen" : ""}><a class="title" href=${href} aria-current=${chosen ? "true" : undefined}><${Text} text=${procedure.name} long=${160} /></a>
    <div class="small quiet">${procedure.status !== "active" && html`<${Status} of=${procedure.status} /> `}${total ? html`worked ${success_count} of ${counted(total, "reported use")}, ${percent(success_count / total)} · last reported <${Time} at=${procedure.last_used} day=${true} />` : "no use reported"} · when: <${Text} text=${procedure.trigger} long=${160} /></div></li>`;
}

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Known>} */
async function load(id, signal) {
  const [procedure, history] = await Promise.all([
    ask(api.GET("/v1/procedures/{procedure_id}", { ...at(id), signal })),
    ask(api.GET("/v1/procedures/{procedure_id}/history", { params: { path: { procedure_id: id }, query: { limit: 10, order: "desc" } }, signal })),
  ]);
  return { procedure, versions: history.items };
}

/** @param {{ id: string, back: string, caller: import("../api.js").Caller }} props */
function ProcedureView({ id, back, caller }) {
  const loaded = useLoad((signal) => load(id, signal), [id], ["procedure"]);
  return html`<section class="box" aria-label="Procedure"><${DetailHead} title=${loaded.data?.procedure.name ?? "Procedure"} back=${back} all="All procedures" />
    <${Loaded} of=${loaded}>${(/** @type {Known} */ { procedure, versions }) => html`<${Details} procedure=${procedure} versions=${versions} back=${back} caller=${caller} again=${loaded.again} />`}</${Loaded}></section>`;
}

/** @param {Known & { back: string, caller: import("../api.js").Caller, again: () => void }} props */
function Details({ procedure, versions, back, caller, again }) {
  const total = procedure.success_count + procedure.failure_count;
  const [edits, setEdits] = useState(false);
  const toast = useToast();
  const patch = async (/** @type {Schemas["ProcedurePatch"]} */ body) => {
    await ask(api.PATCH("/v1/procedures/{procedure_id}", { ...at(procedure.procedure_id), body }));
    again();
  };
  const save = async (/** @type {Record<string, string>} */ given) => {
    const { name, trigger, steps, preconditions, notes } = procedure;
    await patch(said(given));
    toast({ text: "Saved.", about: procedure.procedure_id, undo: () => patch({ name, trigger, steps, preconditions, notes }) });
  };
  if (edits) return html`<${Form} fields=${FIELDS(procedure)} button="Save" save=${save} onClose=${() => setEdits(false)} />`;
  return html`<p class="quiet">When: <${Text} text=${procedure.trigger} long=${300} /> ${procedure.status !== "active" && html`<${Status} of=${procedure.status} />`}</p>
    ${may(caller, "write") && html`<${Actions} procedure=${procedure} patch=${patch} edit=${() => setEdits(true)} back=${back} />`}
    ${total ? html`<${Interval} value=${procedure.success_count / total} ...${wilson(procedure.success_count, total)} />` : html`<p class="quiet">No use was reported.</p>`}
    ${total > 0 && html`<p class="small">Of the uses that were reported for this procedure, ${procedure.success_count} worked and ${procedure.failure_count} failed, the last on <${Time} at=${procedure.last_used} day=${true} />. Logged actions are counted on their own page.</p>`}
    ${procedure.preconditions.length > 0 && html`<h3>What must hold first</h3><ul class="values">${procedure.preconditions.map((one) => html`<li><${Text} text=${one} /></li>`)}</ul>`}
    <h3>Steps</h3><ol class="plan">${procedure.steps.map((step) => html`<li><${Text} text=${step} /></li>`)}</ol>
    ${procedure.notes.length > 0 && html`<h3>What was learned on the way</h3><ul class="values">${procedure.notes.map((note) => html`<li><${Text} text=${note} /></li>`)}</ul>`}
    ${procedure.recent_outcomes.length > 0 && html`<h3>Last outcomes</h3><ul class="list">${[...procedure.recent_outcomes].reverse().map((one) => html`<li><${Tag} of=${one.success ? "worked" : "failed"} tone=${one.success ? "good" : "bad"} />
      ${one.note && html` <${Text} text=${one.note} long=${200} />`} <span class="small quiet"><${Time} at=${one.at} day=${true} /></span></li>`)}</ul>`}
    <h3>History</h3>${!versions.length && html`<p class="quiet small">It has not changed since it was written.</p>`}
    <ol class="list">${versions.map((version, index) => {
      const [old, now] = [version.record, /** @type {Record<string, unknown>} */ (index ? versions[index - 1].record : procedure)];
      return html`<li key=${version.version}><div class="small quiet">version ${version.version} → ${version.version + 1}, <${Time} at=${version.changed_at} day=${true} /></div>
        ${changes(old, now).filter((name) => WRITTEN.includes(name)).map((name) => html`<div><b class="small">${words(name)}</b> <${Diff} old=${text(old[name])} now=${text(now[name])} /></div>`)}</li>`;
    })}</ol>
    <p class="small quiet">Trust ${procedure.trust.toFixed(2)}${procedure.tags.map((tag) => html` <${Tag} of=${`#${tag}`} />`)} <${RecordLink} id=${procedure.procedure_id} own=${true} /></p>`;
}

/** @param {{ procedure: Procedure, patch: (body: Schemas["ProcedurePatch"]) => Promise<void>, edit: () => void, back: string }} props */
function Actions({ procedure, patch, edit, back }) {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const archived = procedure.status === "archived";
  const turn = useAction(async () => {
    await patch({ status: archived ? "active" : "archived" });
    toast({ text: archived ? "Brought back." : "Archived.", about: procedure.procedure_id, undo: () => patch({ status: procedure.status }) });
  });
  const remove = async () => {
    await ask(api.DELETE("/v1/procedures/{procedure_id}", at(procedure.procedure_id)));
    toast({ text: "Deleted.", gone: procedure.procedure_id });
    go(back);
  };
  return html`<div class="actions"><button type="button" onClick=${edit}><${Icon} of="pencil" /> Edit</button>
      <button type="button" disabled=${turn.busy} onClick=${turn.start}><${Icon} of=${archived ? "archive-restore" : "archive"} /> ${archived ? "Bring back" : "Archive"}</button>
      <button type="button" class="danger" onClick=${() => setAsks(true)}><${Icon} of="trash-2" /> Delete</button></div><${ProblemBox} problem=${turn.error} />
    ${asks && html`<${Confirm} title="Delete this procedure?" button="Delete" action=${remove} onClose=${() => setAsks(false)}>
      <p>Its outcomes and its history go, too, and this cannot be undone. To keep it out of answers only, archive it.</p></${Confirm}>`}`;
}
