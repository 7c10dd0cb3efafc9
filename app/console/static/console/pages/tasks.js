/** Tasks: the plan as progress, working memory as the model sees it, checkpoints and restore. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Add, Chips, Order, orderOf } from "../parts/collection.js";
import { Confirm, Empty, Loaded, More, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { Json, Status, Value } from "../parts/records.js";
import { Icon, Text, Time, curl, words } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Task"]} Task */
/** @typedef {Schemas["Checkpoint"]} Checkpoint */

const STATUSES = /** @type {const} */ (["pending", "in_progress", "completed", "failed", "cancelled"]);
const STEP_STATUSES = /** @type {const} */ (["pending", "in_progress", "completed", "failed", "skipped"]);
const DONE = ["completed", "skipped"];

/** @type {import("../console.js").Page} */
export default function Tasks({ route, caller }) {
  const [id] = route.rest;
  return id ? html`<${One} key=${id} id=${id} caller=${caller} />` : html`<${List} route=${route} caller=${caller} />`;
}

/** How far a plan is. @param {{ task: Task, long?: boolean }} props */
function Plan({ task }) {
  const done = task.plan.filter((step) => DONE.includes(step.status)).length;
  if (!task.plan.length) return html`<p class="quiet">No plan.</p>`;
  return html`<div class="entry small"><progress max=${task.plan.length} value=${done} aria-label=${`${done} of ${task.plan.length} steps done`}></progress>
    <span>${done} of ${task.plan.length} steps</span></div>`;
}

/** @param {{ route: import("../route.js").Route, caller: import("../api.js").Caller }} props */
function List({ route, caller }) {
  const { agent_id, user_id } = route.params;
  const status = /** @type {Task["status"] | undefined} */ (route.params.status || undefined);
  const query = { agent_id, user_id, status };
  const tasks = usePages((cursor, signal) => ask(api.GET("/v1/tasks", { params: { query: { ...query, order: orderOf(route.params), cursor, limit: 30 } }, signal })),
    [agent_id, user_id, status, route.params.order], ["task"]);
  const set = (/** @type {Record<string, string>} */ given) => go(to("tasks", [], { ...route.params, ...given }), { replace: true });
  const toast = useToast();
  const add = async (/** @type {Record<string, string>} */ { plan = "", ...given }) => {
    const steps = plan.split("\n").map((line) => line.trim()).filter(Boolean).map((action) => ({ action }));
    const made = await ask(api.POST("/v1/tasks", { body: { .../** @type {{ agent_id: string, goal: string }} */ (/** @type {unknown} */ (given)), plan: steps } }));
    toast({ text: "The task is added." });
    go(to("tasks", [made.task_id]));
  };
  const body = { agent_id: "research", goal: "Compare vector stores", plan: [{ action: "search" }] };
  return html`<h1>Tasks</h1>
    <div class="filters"><label>Status <select value=${status ?? ""} onChange=${(/** @type {any} */ event) => set({ status: event.target.value })}>
      <option value="">any</option>${STATUSES.map((one) => html`<option value=${one}>${words(one)}</option>`)}</select></label><${Order} params=${route.params} set=${set} />
      ${may(caller, "write") && html`<${Add} title="Add a task" save=${add} fields=${[{ name: "goal", label: "Goal" }, { name: "plan", label: "Plan, a step on each line", long: true, optional: true },
        { name: "agent_id", label: "Agent", value: agent_id }, { name: "user_id", label: "Person", value: user_id, optional: true }]} />`}</div>
    <${Chips} params=${route.params} set=${set} names=${{ status: "Status" }} />
    <${ProblemBox} problem=${tasks.error} />
    ${tasks.items?.length === 0 && html`<${Empty} title="No task. An agent begins one like this:" curl=${curl("POST", `${BASE}/v1/tasks`, body, Boolean(key.get()))} />`}
    ${(tasks.items?.length ?? 0) > 0 && html`<section class="box" aria-label="List of tasks"><ul class="list">${tasks.items?.map((task) => html`<li key=${task.task_id}>
      <a class="title" href=${to("tasks", [task.task_id])}><${Text} text=${task.goal} long=${160} /></a> <${Status} of=${task.status} />
      <span class="small quiet"> ${task.agent_id}${task.user_id && ` for ${task.user_id}`} · <${Time} at=${task.updated_at} /></span>
      <${Plan} task=${task} /></li>`)}</ul>
    <${More} of=${tasks} /></section>`}`;
}

/** @param {string} task_id @param {AbortSignal} signal */
async function load(task_id, signal) {
  const path = { task_id };
  const [task, working, checkpoints] = await Promise.all([
    ask(api.GET("/v1/tasks/{task_id}", { params: { path }, signal })),
    ask(api.GET("/v1/tasks/{task_id}/working-memory", { params: { path }, signal })),
    ask(api.GET("/v1/tasks/{task_id}/checkpoints", { params: { path, query: { limit: 50, order: "desc" } }, signal })),
  ]);
  return { task, working, checkpoints };
}

/** @param {{ id: string, caller: import("../api.js").Caller }} props */
function One({ id, caller }) {
  const loaded = useLoad((signal) => load(id, signal), [id], ["task", "checkpoint"]);
  return html`<p><a class="back" href=${to("tasks")}><${Icon} of="chevron-left" /> All tasks</a></p>
    <${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof load>>} */ data) => html`
      <h1><${Text} text=${data.task.goal} /></h1>
      <p><${Status} of=${data.task.status} /> <span class="quiet">${data.task.agent_id}${data.task.user_id && ` for ${data.task.user_id}`},
        version ${data.task.version}, changed <${Time} at=${data.task.updated_at} /></span>
        ${data.task.session_id && html` <a href=${to("sessions", [data.task.session_id])}>Its session</a>`}</p>
      <div class="two"><div><${Steps} task=${data.task} caller=${caller} again=${loaded.again} />
        <${Checkpoints} data=${data} caller=${caller} again=${loaded.again} /></div>
      <div><section class="box"><h2>Working memory, as the model sees it</h2><p class="quiet small">${data.working.tokens} tokens; scratchpad and evidence at most ${data.task.max_tokens} each</p>
        <pre class="plain prompt" tabindex="0">${data.working.text}</pre>
        <${Json} title="Context" value=${data.task.context} /><${Json} title="Metadata" value=${data.task.metadata} /></section></div></div>`}</${Loaded}>`;
}

/** The steps of the plan; a writer may move one on. @param {{ task: Task, caller: import("../api.js").Caller, again: () => void }} props */
function Steps({ task, caller, again }) {
  const move = useAction(async (index, status) => {
    await ask(api.PATCH("/v1/tasks/{task_id}/plan/{index}", { params: { path: { task_id: task.task_id, index } }, body: { status } }));
    again();
  });
  return html`<section class="box"><h2>Plan</h2><${Plan} task=${task} /><${ProblemBox} problem=${move.error} />
    <ol class="plan">${task.plan.map((step, index) => html`<li key=${index}><${Text} text=${step.action} long=${300} />
      ${may(caller, "write") ? html` <select class="small" aria-label=${`Status of step ${index + 1}`} value=${step.status} disabled=${move.busy}
        onChange=${(/** @type {any} */ event) => move.start(index, event.target.value)}>${STEP_STATUSES.map((one) => html`<option value=${one}>${words(one)}</option>`)}</select>`
        : html` <${Status} of=${step.status} />`}
      ${step.result !== null && html`<div class="quiet small"><${Value} of=${step.result} /></div>`}</li>`)}</ol></section>`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, caller: import("../api.js").Caller, again: () => void }} props */
function Checkpoints({ data, caller, again }) {
  const toast = useToast();
  const [chosen, choose] = useState(/** @type {Checkpoint | undefined} */ (undefined));
  const path = { task_id: data.task.task_id };
  const over = ["completed", "cancelled"].includes(data.task.status);
  const save = useAction(async () => {
    const made = await ask(api.POST("/v1/tasks/{task_id}/checkpoints", { params: { path }, body: { label: "from the console" } }));
    toast({ text: `Checkpoint ${made.seq} is kept.` });
    again();
  });
  const restore = async (/** @type {number} */ seq) => {
    await ask(api.POST("/v1/tasks/{task_id}/restore", { params: { path }, body: { seq, reopen: over } }));
    toast({ text: `The task is as it was at checkpoint ${seq}.` });
    again();
  };
  const writes = may(caller, "write");
  const { items } = data.checkpoints;
  return html`<section class="box"><div class="row apart"><h2>Checkpoints</h2>
      ${writes && html`<button type="button" disabled=${save.busy} onClick=${save.start}>Keep a checkpoint</button>`}</div>
    <${ProblemBox} problem=${save.error} />
    ${!items.length && html`<p class="quiet">None yet.</p>`}
    <ul class="list">${items.map((checkpoint) => html`<li key=${checkpoint.seq}><strong>#${checkpoint.seq}</strong>
      ${checkpoint.label && html` <${Text} text=${checkpoint.label} long=${80} />`}
      <span class="quiet small"> ${checkpoint.reason}, <${Time} at=${checkpoint.created_at} /></span>
      ${writes && html` <button type="button" class="small" aria-label=${`Restore checkpoint ${checkpoint.seq}`} onClick=${() => choose(checkpoint)}>Restore</button>`}
      <${Json} title="What it holds" value=${checkpoint.state} /></li>`)}</ul>
    ${data.checkpoints.next_cursor && html`<p class="quiet small">Older checkpoints are not drawn.</p>`}
    ${chosen && html`<${Confirm} title=${`Restore checkpoint ${chosen.seq}?`} button="Restore" action=${() => restore(chosen.seq)} onClose=${() => choose(undefined)}>
      <p>Plan, context, scratchpad, evidence and questions go back to what they were. A checkpoint of the present state is kept first${over ? ", and the task is opened again" : ""}.</p></${Confirm}>`}
  </section>`;
}
