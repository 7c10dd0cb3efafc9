/** Forgetting by age, importance and score: a dry run says what would go and why; applied, an operation archives it. */
import { api, ask, may } from "../api.js";
import { html, useState } from "../ui.js";
import { Confirm, ProblemBox, useAction } from "../parts/feedback.js";
import { Chart } from "../parts/chart.js";
import { useNames } from "../parts/scope.js";
import { Tag, Text, counted, typeOf } from "../parts/text.js";
import { scopeOf, to } from "../route.js";
import { Progress } from "../parts/results.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const BARS = 10;

/** What the points of a score are given for. */
const REASONS = /** @type {const} */ ({ recency: "for its age", type: "for its type", access: "for its use" });

/** @param {FormData} form @returns {Schemas["ForgetRequest"]["policy"]} */
function policyOf(form) {
  const text = (/** @type {string} */ name) => String(form.get(name) ?? "").trim();
  return { older_than_days: Number(text("older")), ...(text("importance") && { max_importance: Number(text("importance")) }),
    ...(text("score") && { max_score: Number(text("score")) }) };
}

/** @param {{ items: Schemas["Forgettable"][] }} props */
function Spread({ items }) {
  const counts = Array(BARS).fill(0);
  for (const { importance } of items) counts[Math.min(BARS - 1, Math.floor(importance * BARS))] += 1;
  return html`<${Chart} label="What would go, by importance" x=${counts.map((_, bar) => bar / BARS)} time=${false} height=${140}
    series=${[{ name: "memories", values: counts, bars: true }]} />`;
}

/** Whose memories are looked at, the frame says: another choice begins anew. @param {import("../console.js").PageProps} props */
export default function Forget({ route, caller }) {
  const scope = scopeOf(route);
  if (!may(caller, "write")) return html`<p>Forgetting needs a key with the verb write, its dry run, too.</p>`;
  return html`<${Policy} key=${JSON.stringify(scope)} user_id=${scope.user_id ?? (caller.users?.length === 1 ? caller.users[0] : undefined)} agent_id=${scope.agent_id ?? (caller.agents?.length === 1 ? caller.agents[0] : undefined)} />`;
}

/** @param {{ user_id?: string, agent_id?: string }} owner */
function Policy({ user_id, agent_id }) {
  const names = useNames();
  const [asked, setAsked] = useState(/** @type {Schemas["ForgetRequest"] | undefined} */ (undefined));
  const [plan, setPlan] = useState(/** @type {Schemas["ForgetPlan"] | undefined} */ (undefined));
  const [sure, setSure] = useState(false);
  const [operation, setOperation] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const look = useAction(async (/** @type {HTMLFormElement} */ form) => {
    const body = { policy: policyOf(new FormData(form)), ...(user_id && { user_id }), ...(agent_id && { agent_id }) };
    const answer = await ask(api.POST("/v1/memories/forget", { body: { ...body, dry_run: true } }));
    setPlan(/** @type {Schemas["ForgetPlan"]} */ (answer));
    setAsked(body);
    setOperation(undefined);
  });
  const apply = async () => {
    if (!asked) return;
    const answer = await ask(api.POST("/v1/memories/forget", { body: { ...asked, dry_run: false } }));
    setOperation(/** @type {Schemas["Operation"]} */ (/** @type {unknown} */ (answer)));
    setPlan(undefined);
  };
  const whose = [user_id && `of ${names.person(user_id)}`, agent_id && `kept by ${names.agent(agent_id)}`].filter(Boolean).join(", ");
  return html`<section class="box"><h2>Forget old memories${whose && ` ${whose}`}</h2>
    <p class="quiet">Look first: that changes nothing, and shows the button that forgets. Pinned memories stay. What is forgotten is archived and, after 30 days where <code>RECALLD_RETENTION_ARCHIVE_DAYS</code> says nothing else, deleted; until then an undo of the operation brings it back.</p>
    ${!whose && html`<p><b>Whose memories?</b> Choose a person or an agent at the top of the page.</p>`}
    <form class="filters" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); look.start(event.target); }}>
      <label>Older than (days) <input name="older" type="number" min="0" max="36500" step="any" defaultValue="365" required /></label>
      <label>Importance at most (0 to 1) <input name="importance" type="number" min="0" max="1" step="any" placeholder="any" /></label>
      <label>Score at most (0 to 180) <input name="score" type="number" min="0" max="1000" step="any" placeholder="any" /></label>
      <button type="submit" class="main" disabled=${look.busy || !whose}>Show what would go</button></form>
    <p class="quiet small">Only what is within all of the limits goes. Importance fades while nobody asks for a memory. The score counts what speaks for keeping it: 100 points less one for each day of its age, 50 for an issue or a solution, 30 if it was recalled more than ten times. Example: a solution of 80 days that was recalled twice has 20 + 50 = 70.</p>
    <${ProblemBox} problem=${look.error} />
    ${plan && html`<h3>${plan.total === 0 ? "Nothing would go." : `${counted(plan.total, "memory", "memories")} would go`}</h3>
      ${plan.total > 0 && html`<${Spread} items=${plan.items} />
        <ul class="list">${plan.items.map((item) => html`<li key=${item.memory_id}><a href=${to("memories", [item.memory_id])}><${Text} text=${item.content} long=${160} /></a>
          <div class="small quiet"><${Tag} of=${typeOf(item.memory_type)} /> importance ${item.importance.toFixed(2)}, score ${item.score.toFixed(0)}:
            ${item.reasons.map(({ reason, points, detail }) => ` ${points.toFixed(0)} ${REASONS[reason]} (${detail})`).join(",")}</div></li>`)}</ul>
        <button type="button" class="danger" onClick=${() => setSure(true)}>Forget these ${plan.total}</button>`}`}
    ${sure && html`<${Confirm} title=${`Forget ${counted(plan?.total ?? 0, "memory", "memories")}${whose && ` ${whose}`}?`} button="Forget" action=${apply} onClose=${() => setSure(false)}>
      <p>What is forgotten is archived. The operation can be undone until the archive is deleted, after 30 days where no other time is set.</p></${Confirm}>`}
    ${operation && html`<${Progress} key=${operation.operation_id} operation=${operation} />`}</section>`;
}
