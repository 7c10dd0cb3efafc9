/** Forgetting by policy: a dry run says what would go and why; applied, an operation archives it. */
import { api, ask, may } from "../api.js";
import { html, useState } from "../ui.js";
import { Confirm, ProblemBox, useAction } from "../parts/feedback.js";
import { Chart } from "../parts/chart.js";
import { Tag, Text } from "../parts/text.js";
import { to } from "../route.js";
import { Progress } from "../parts/results.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const BARS = 10;

/** @param {FormData} form @returns {Schemas["ForgetRequest"]} */
function requestOf(form) {
  const text = (/** @type {string} */ name) => String(form.get(name) ?? "").trim();
  const policy = { older_than_days: Number(text("older")), ...(text("importance") && { max_importance: Number(text("importance")) }),
    ...(text("score") && { max_score: Number(text("score")) }) };
  return { policy, ...(text("agent") && { agent_id: text("agent") }), ...(text("user") && { user_id: text("user") }) };
}

/** @param {{ items: Schemas["Forgettable"][] }} props */
function Spread({ items }) {
  const counts = Array(BARS).fill(0);
  for (const { importance } of items) counts[Math.min(BARS - 1, Math.floor(importance * BARS))] += 1;
  return html`<${Chart} label="What would go, by importance" x=${counts.map((_, bar) => bar / BARS)} time=${false} height=${140}
    series=${[{ name: "memories", values: counts, bars: true }]} />`;
}

/** @param {{ caller: import("../api.js").Caller }} props */
export default function Forget({ caller }) {
  const [asked, setAsked] = useState(/** @type {Schemas["ForgetRequest"] | undefined} */ (undefined));
  const [plan, setPlan] = useState(/** @type {Schemas["ForgetPlan"] | undefined} */ (undefined));
  const [sure, setSure] = useState(false);
  const [operation, setOperation] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const look = useAction(async (/** @type {HTMLFormElement} */ form) => {
    const body = requestOf(new FormData(form));
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
  if (!may(caller, "write")) return html`<p>Forgetting needs a key with the verb write, its dry run, too.</p>`;
  return html`<section class="box"><h2>Forget by policy</h2>
    <p class="quiet">Look first: that changes nothing, and shows the button that forgets. What is forgotten goes to the archive for 30 days, and until then an undo brings it back.</p>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); look.start(event.target); }}>
      <label>Agent <input name="agent" size="12" /></label><label>Person <input name="user" size="12" /></label>
      <label>Older than (days) <input name="older" type="number" min="0" max="36500" step="any" defaultValue="365" required /></label>
      <label>Importance at most <input name="importance" type="number" min="0" max="1" step="any" /></label>
      <label>Worth at most, in points <input name="score" type="number" min="0" max="1000" step="any" /></label>
      <button type="submit" class="main" disabled=${look.busy}>Show what would go</button></form>
    <${ProblemBox} problem=${look.error} />
    ${plan && html`<h3>${plan.total === 0 ? "Nothing would go." : `${plan.total} would go`}</h3>
      ${plan.total > 0 && html`<${Spread} items=${plan.items} />
        <ul class="list">${plan.items.map((item) => html`<li key=${item.memory_id}><a href=${to("memories", [item.memory_id])}><${Text} text=${item.content} long=${160} /></a>
          <div class="small quiet"><${Tag} of=${item.memory_type} /> importance ${item.importance.toFixed(2)}, score ${item.score.toFixed(0)}:
            ${item.reasons.map((reason) => ` ${reason.reason} ${reason.points.toFixed(0)} (${reason.detail})`).join(",")}</div></li>`)}</ul>
        <button type="button" class="danger" onClick=${() => setSure(true)}>Forget these ${plan.total}</button>`}`}
    ${sure && html`<${Confirm} title=${`Forget ${plan?.total} memories?`} button="Forget" action=${apply} onClose=${() => setSure(false)}>
      <p>They go to the archive. The operation can be undone for 30 days.</p></${Confirm}>`}
    ${operation && html`<${Progress} key=${operation.operation_id} operation=${operation} />`}</section>`;
}
