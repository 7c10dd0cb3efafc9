/** Tasks: how far each is, and one beside the list: the plan, working memory as the model sees it, checkpoints and restore. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Add, Chips, ChosenFilter, DetailHead, Form, Order, lines, orderOf } from "../parts/collection.js";
import { Confirm, Empty, Loaded, More, ProblemBox, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { Json, Status, Value } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
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
  const { params, rest: [chosen] } = route;
  const { agent_id, user_id } = params;
  const status = STATUSES.find((one) => one === params.status);
  const query = { agent_id, user_id, status, order: orderOf(params), limit: 30 };
  const tasks = usePages((cursor, signal) => ask(api.GET("/v1/tasks", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["task"]);
  const set = (/** @type {Record<string, string>} */ given) => go(to("tasks", chosen ? [chosen] : [], { ...params, ...given }), { replace: true });
  const toast = useToast();
  const add = async (/** @type {Record<string, string>} */ { plan = "", ...given }) => {
    const steps = lines(plan).map((action) => ({ action }));
    const made = await ask(api.POST("/v1/tasks", { body: { .../** @type {{ agent_id: string, goal: string }} */ (/** @type {unknown} */ (given)), plan: steps } }));
    tasks.again();
    toast({ text: "The task is added." });
    go(to("tasks", [made.task_id]));
  };
  const body = { agent_id: "research", goal: "Compare vector stores", plan: [{ action: "search" }] };
  return html`<h1>Tasks</h1>
    <form role="search" aria-label="Tasks" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="filters"><${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${STATUSES} any="any status" /><${Order} params=${params} set=${set} />
        ${may(caller, "write") && html`<${Add} title="Add a task" save=${add} fields=${[{ name: "goal", label: "Goal" }, { name: "plan", label: "Plan, a step on each line", long: true, optional: true },
          { name: "agent_id", label: "Agent", value: agent_id }, { name: "user_id", label: "Person", value: user_id, optional: true }]} />`}</div>
      <${Chips} params=${params} set=${set} names=${{ status: "Status" }} /></form>
    <${ProblemBox} problem=${tasks.error} again=${tasks.again} />
    <div class=${chosen ? "two detail wide" : ""}>
      ${(tasks.items ?? tasks.loading) && html`<section class="box" aria-label="List of tasks" aria-busy=${tasks.loading}>
        <${WaitingRows} of=${tasks} />
        ${tasks.items?.length === 0 && html`<${Empty} title="No task. An agent begins one like this:" curl=${curl("POST", `${BASE}/v1/tasks`, body, Boolean(key.get()))} />`}
        <ul class="list">${tasks.items?.map((task) => html`<${Row} key=${task.task_id} task=${task} params=${params} chosen=${task.task_id === chosen} />`)}</ul>
        <${More} of=${tasks} /></section>`}
      ${chosen && html`<${One} key=${chosen} id=${chosen} back=${to("tasks", [], params)} caller=${caller} />`}</div>`;
}

/** @param {{ task: Task, params: Record<string, string>, chosen: boolean }} props */
function Row({ task, params, chosen }) {
  return html`<li class=${chosen ? "chosen" : ""}><a class="title" href=${to("tasks", [task.task_id], params)} aria-current=${chosen ? "true" : undefined}><${Text} text=${task.goal} long=${160} /></a>
    <div class="small quiet"><${Status} of=${task.status} /> <${Whose} task=${task} /> · <${Time} at=${task.updated_at} /></div>
    <${Plan} task=${task} /></li>`;
}

/** The agent, and for whom. @param {{ task: Task }} props */
function Whose({ task }) {
  const names = useNames();
  return html`<span>${names.agent(task.agent_id)}${task.user_id && ` for ${names.person(task.user_id)}`}</span>`;
}

/** How far a plan is. @param {{ task: Task, long?: boolean }} props */
function Plan({ task }) {
  const done = task.plan.filter((step) => DONE.includes(step.status)).length;
  if (!task.plan.length) return html`<p class="quiet">No plan.</p>`;
  return html`<div class="entry small"><progress max=${task.plan.length} value=${done} aria-label=${`${done} of ${task.plan.length} steps done`}></progress>
    <span>${done} of ${task.plan.length} steps</span></div>`;
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

/** @param {{ id: string, back: string, caller: import("../api.js").Caller }} props */
function One({ id, back, caller }) {
  const loaded = useLoad((signal) => load(id, signal), [id], ["task", "checkpoint"]);
  return html`<section aria-label="Task"><${DetailHead} title=${loaded.data?.task.goal ?? "Task"} back=${back} all="All tasks" />
    <${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof load>>} */ data) => html`
      <p><${Status} of=${data.task.status} /> <span class="quiet"><${Whose} task=${data.task} />,
        version ${data.task.version}, changed <${Time} at=${data.task.updated_at} day=${true} /></span>
        ${data.task.session_id && html` <a href=${to("sessions", [data.task.session_id])}>Its session</a>`}</p>
      ${may(caller, "write") && html`<${Edit} task=${data.task} again=${loaded.again} />`}
      <${Steps} task=${data.task} caller=${caller} again=${loaded.again} />
      <section class="box"><h2>Working memory, as the model sees it</h2><p class="quiet small">${data.working.tokens} tokens; scratchpad and evidence at most ${data.task.max_tokens} each.${data.task.scratchpad.length > 0 && ` “note (${data.task.scratchpad[0].priority})” is a note of priority ${data.task.scratchpad[0].priority}: those of a higher one come first, and stay longer where the scratchpad is full.`}</p>
        <pre class="plain prompt" tabindex="0">${data.working.text}</pre>
        <${Json} title="Context" value=${data.task.context} /><${Json} title="Metadata" value=${data.task.metadata} /></section>
      <${Checkpoints} data=${data} caller=${caller} again=${loaded.again} />`}</${Loaded}></section>`;
}

/** Changes the goal, the status and what is open, and offers to set them back. @param {{ task: Task, again: () => void }} props */
function Edit({ task, again }) {
  const [open, setOpen] = useState(false);
  const toast = useToast();
  const patch = async (/** @type {Schemas["TaskPatch"]} */ body) => {
    await ask(api.PATCH("/v1/tasks/{task_id}", { params: { path: { task_id: task.task_id } }, body }));
    again();
  };
  const save = async (/** @type {Record<string, string>} */ { goal, status, open_questions = "" }) => {
    const before = { goal: task.goal, status: task.status, open_questions: task.open_questions };
    await patch({ goal, status: /** @type {Task["status"]} */ (status), open_questions: lines(open_questions) });
    toast({ text: "Saved.", about: task.task_id, undo: () => patch(before) });
  };
  if (!open) return html`<div class="actions"><button type="button" onClick=${() => setOpen(true)}><${Icon} of="pencil" /> Edit</button></div>`;
  return html`<section class="box"><${Form} button="Save" save=${save} onClose=${() => setOpen(false)} fields=${[{ name: "goal", label: "Goal", value: task.goal }, { name: "status", label: "Status of the task", options: STATUSES, value: task.status },
    { name: "open_questions", label: "Open questions, one on each line", value: task.open_questions.join("\n"), long: true, optional: true }]} /></section>`;
}

/** The steps of the plan; a writer may move one on. @param {{ task: Task, caller: import("../api.js").Caller, again: () => void }} props */
function Steps({ task, caller, again }) {
  const move = useAction(async (index, status) => {
    await ask(api.PATCH("/v1/tasks/{task_id}/plan/{index}", { params: { path: { task_id: task.task_id, index } }, body: { status } }));
    again();
  });
  return html`<section class="box"><h2>Plan</h2><${Plan} task=${task} /><${ProblemBox} problem=${move.error} />
    <ol class="plan">${task.plan.map((step, index) => html`<li key=${index}><div class="beside"><span><${Text} text=${step.action} long=${300} /></span>
      ${may(caller, "write") ? html` <select class="small" aria-label=${`Status of step ${index + 1}`} value=${step.status} disabled=${move.busy}
        onChange=${(/** @type {any} */ event) => move.start(index, event.target.value)}>${STEP_STATUSES.map((one) => html`<option value=${one}>${words(one)}</option>`)}</select>`
        : html` <${Status} of=${step.status} />`}</div>
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
    <ul class="list">${items.map((checkpoint) => html`<li key=${checkpoint.seq}><div class="beside"><span><strong>#${checkpoint.seq}</strong>
      ${checkpoint.label && html` <${Text} text=${checkpoint.label} long=${80} />`}
      <span class="quiet small"> ${checkpoint.reason === "asked" ? "kept on request" : words(checkpoint.reason)}, <${Time} at=${checkpoint.created_at} day=${true} /></span></span>
      ${writes && html` <button type="button" class="small" aria-label=${`Restore checkpoint ${checkpoint.seq}`} onClick=${() => choose(checkpoint)}>Restore</button>`}</div>
      <${Json} title="What it holds" value=${checkpoint.state} /></li>`)}</ul>
    ${data.checkpoints.next_cursor && html`<p class="quiet small">Older checkpoints are not drawn.</p>`}
    ${chosen && html`<${Confirm} title=${`Restore checkpoint ${chosen.seq}?`} button="Restore" action=${() => restore(chosen.seq)} onClose=${() => choose(undefined)}>
      <p>Plan, context, scratchpad, evidence and questions go back to what they were. A checkpoint of the present state is kept first${over ? ", and the task is opened again" : ""}.</p></${Confirm}>`}
  </section>`;
}
