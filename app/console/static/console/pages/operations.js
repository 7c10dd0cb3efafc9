/** Operations: jobs, dry runs, what was asked for and its undo; for admin keys also keys, audit and settings. */
import { api, ask, may, useLoad, useModule, usePages } from "../api.js";
import { html, useState } from "../ui.js";
import { Confirm, Empty, Loaded, More, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { Tabs } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Progress, Result, TONE } from "../parts/results.js";
import { Table } from "../parts/table.js";
import { Fold, Tag, Time, visible, words } from "../parts/text.js";
import { to } from "../route.js";
import { OPERATIONS } from "./index.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Operation"]} Operation */

const TABS = [
  { name: "", title: "Jobs and operations" }, { name: "forget", title: "Forget" }, { name: "keys", title: "Keys", admin: true },
  { name: "audit", title: "Audit", admin: true }, { name: "settings", title: "Settings", admin: true },
];

const SPANS = /** @type {const} */ ([["week", 604_800], ["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]]);

/** Seconds between two looks of a job, or NaN for a schedule of another form. @param {string} schedule */
const period = (schedule) => Number(/^every (\d+(?:\.\d+)?) s$/.exec(schedule)?.[1]);

/** Whether the last look found no work: a job looks at each of its times, and runs where there is something to do.
 * One of every 5 seconds that ran 7 minutes ago waits; so does one that never had work, for which no time of a run is kept.
 * @param {Schemas["JobInfo"]} job */
const waits = ({ schedule, last_run }) => !last_run || Date.now() - Date.parse(last_run) > 2000 * period(schedule);

/** "every 86400 s" as "every day"; a schedule of another form stays. @param {string} schedule */
function every(schedule) {
  const seconds = period(schedule);
  const [span, size] = SPANS.find(([, length]) => seconds >= length && seconds % length === 0) ?? ["", 1];
  if (!span) return schedule;
  return seconds === size ? `every ${span}` : `every ${seconds / size}\u00a0${span}s`;
}

/** What a job does, where its name does not say it. */
const JOB_NAMES = /** @type {Record<string, string>} */ ({
  embed_pending: "vectors that are missing", decay: "fading of importance", expiry: "what has expired", consolidation: "roll-ups of actions", reflection: "what contradicts itself", retention: "what policies forget",
});
const jobName = (/** @type {string} */ name) => (JOB_NAMES[name] ? html`${words(name)}<div class="small quiet">${JOB_NAMES[name]}</div>` : words(name));

/** @param {{ onRun: (operation: Operation) => void, running?: Operation, onEnd: () => void }} props */
function Jobs({ onRun, running, onEnd }) {
  const jobs = useLoad((signal) => ask(api.GET("/v1/jobs", { signal })), []);
  const run = useAction(async (name, dry_run) =>
    onRun(await ask(api.POST("/v1/jobs/{name}/run", { params: { path: { name } }, body: { dry_run } }))));
  return html`<section class="box"><h2>Jobs</h2><${ProblemBox} problem=${run.error} />
    <p class="quiet small">A job looks for work at each of its times and runs where there is some. A run of the schedule is not listed among the operations below; what it changed of one agent or person is.</p>
    <${Loaded} of=${jobs}>${(/** @type {Schemas["Jobs"]} */ { items }) => html`<${Table} label="Jobs" heads=${["Job", "Looks", "Last work", "Next look", "Run now"]} rows=${items.map((job) => ({ key: job.name, cells: [
      jobName(job.name), every(job.schedule), html`<div class="ran"><${Time} at=${job.last_run} />${job.outcome && html`<span><${Tag} of=${job.outcome} tone=${TONE[job.outcome] ?? ""} /></span>`}</div>`,
      waits(job) ? html`<span class="quiet">waits for work</span>` : html`<${Time} at=${job.next_run} />`,
      html`<div class="runs"><button type="button" class="small" disabled=${run.busy} aria-label=${`Dry run of ${job.name}`} onClick=${() => run.start(job.name, true)}>Dry run</button> <button type="button" class="small" disabled=${run.busy} aria-label=${`Run ${job.name}`} onClick=${() => run.start(job.name, false)}>Run</button></div>`] }))} />`}</${Loaded}>
    ${running && html`<${Progress} key=${running.operation_id} operation=${running} onEnd=${onEnd} />`}</section>`;
}

/** @param {{ operation: Operation, writes: boolean, onUndone: () => void, open?: boolean }} props `open`: with its result */
function Row({ operation, writes, onUndone, open = false }) {
  const [asking, ask_] = useState(false);
  const toast = useToast();
  const names = useNames();
  const owner = [operation.agent_id && names.agent(operation.agent_id), operation.user_id && names.person(operation.user_id)].filter(Boolean).join(" · ");
  const undo = async () => {
    await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: { operation_id: operation.operation_id } } }));
    toast({ text: `Undoing ${words(operation.kind)}.` });
    onUndone();
  };
  return html`<li class="operation"><div class="cells"><b class="kind">${words(operation.kind)}</b><span class="status"><${Tag} of=${operation.status} tone=${TONE[operation.status] ?? ""} /></span>
      <span class="whose quiet small">${owner}${operation.session_id && html`${owner && " · "}<a href=${to("sessions", [operation.session_id])}>${visible(operation.session_id)}</a>`}</span><span class="age quiet small"><${Time} at=${operation.created_at} /></span>
      ${operation.can_undo && writes && html`<button type="button" class="small undo" onClick=${() => ask_(true)}>Undo</button>`}</div>
    <${Fold} title="Result" open=${open}>${() => html`<${Result} operation=${operation} />`}</${Fold}>
    ${asking && html`<${Confirm} title=${`Undo ${words(operation.kind)}?`} button="Undo" action=${undo} onClose=${() => ask_(false)}>
      <p>What it made goes, and what it changed is set back, except where somebody changed it since.</p></${Confirm}>`}</li>`;
}

/** The operation that the address names: a link of the audit leads to it. @param {{ id: string, caller: import("../api.js").Caller }} props */
function Chosen({ id, caller }) {
  const loaded = useLoad((signal) => ask(api.GET("/v1/operations/{operation_id}", { params: { path: { operation_id: id } }, signal })), [id]);
  return html`<section class="box" aria-label="Operation"><div class="row apart"><h2>Operation</h2><a href=${to("operations")}>All operations</a></div>
    ${loaded.error?.status === 404 ? html`<p class="quiet">It is gone: ${KEPT}</p>`
      : html`<${Loaded} of=${loaded}>${(/** @type {Operation} */ operation) => html`<ul class="list"><${Row} operation=${operation} writes=${may(caller, "write")} onUndone=${loaded.again} open=${true} /></ul>`}</${Loaded}>`}</section>`;
}

/** How long the service keeps operations: `OPERATION_DAYS`, and longer where what was forgotten can be brought back for longer. */
const KEPT = "an operation is kept for at least 30\u00a0days after it has ended.";

/** @param {{ user_id: string | undefined, caller: import("../api.js").Caller }} props */
function Work({ user_id, caller }) {
  const [running, run] = useState(/** @type {Operation | undefined} */ (undefined));
  const list = usePages(async (cursor, signal) => {
    const page = await ask(api.GET("/v1/operations", { params: { query: { user_id, limit: 20, cursor } }, signal }));
    return { items: page.items, next_cursor: page.next_cursor ?? null };
  }, [user_id]);
  const names = useNames();
  return html`${may(caller, "admin") && html`<${Jobs} running=${running} onRun=${run} onEnd=${list.again} />`}
    <section class="box"><div class="row apart"><h2>Operations${user_id && ` for ${names.person(user_id)}`}</h2><button type="button" class="small" onClick=${list.again}>Load again</button></div>
      <p class="quiet small">The newest first; ${KEPT} What a session left behind that ended earlier is with the session, and its operation is not listed.</p>
      <${ProblemBox} problem=${list.error} />
      ${list.items?.length === 0 && html`<${Empty} title=${`No operation${user_id ? ` for ${names.person(user_id)}` : ""} in the last 30 days.`}><p>Ending a session, running a job and forgetting begin one.</p></${Empty}>`}
      <ul class="list">${list.items?.map((one) => html`<${Row} key=${one.operation_id + one.status} operation=${one} writes=${may(caller, "write")} onUndone=${list.again} />`)}</ul>
      <${More} of=${list} /></section>`;
}

/** @type {import("../console.js").Page} */
export default function Operations({ route, caller }) {
  const tab = route.rest[0] ?? "";
  const tabs = TABS.filter((one) => !one.admin || may(caller, "admin"));
  return html`<h1>Operations</h1><${Tabs} label="Parts of operations" current=${tab} tabs=${tabs.map((one) => ({ ...one, href: to("operations", one.name ? [one.name] : []) }))} />
    ${tab === "" && (route.params.operation ? html`<${Chosen} key=${route.params.operation} id=${route.params.operation} caller=${caller} />` : html`<${Work} user_id=${route.params.user_id} caller=${caller} />`)}
    ${Object.hasOwn(OPERATIONS, tab) && html`<${Part} key=${tab} file=${OPERATIONS[tab]} route=${route} caller=${caller} />`}`;
}

/** @param {import("../console.js").PageProps & { file: string }} props */
const Part = ({ file, ...props }) => html`<${Loaded} of=${useModule(file)}>${(/** @type {import("./index.js").Module} */ module) => html`<${module.default} ...${props} />`}</${Loaded}>`;
