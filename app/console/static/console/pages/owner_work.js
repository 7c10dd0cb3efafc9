/** What an owner's agents do: procedures with their success, and statistics of actions. */
import { html } from "../ui.js";
import { BASE, api, ask, key, useLoad, usePages } from "../api.js";
import { Chart } from "../parts/chart.js";
import { Empty, Loaded, More, ProblemBox } from "../parts/feedback.js";
import { Status } from "../parts/records.js";
import { Text, Time, curl, percent } from "../parts/text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const Z = 1.96;
const DAYS = 60;

/** The 95 % Wilson interval of a rate. @param {number} successes @param {number} total @returns {{ low: number, high: number }} */
export function wilson(successes, total) {
  if (!total) return { low: 0, high: 1 };
  const rate = successes / total;
  const middle = (rate + (Z * Z) / (2 * total)) / (1 + (Z * Z) / total);
  const half = (Z / (1 + (Z * Z) / total)) * Math.sqrt((rate * (1 - rate)) / total + (Z * Z) / (4 * total * total));
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

/** A rate as a mark on its interval. @param {{ value: number, low: number, high: number }} props */
function Interval({ value, low, high }) {
  return html`<div class="interval" role="img" aria-label=${`${percent(value)}, between ${percent(low)} and ${percent(high)}`}>
      <i style=${{ left: `${low * 100}%`, width: `${(high - low) * 100}%` }}></i><b style=${{ left: `${Math.min(99, value * 100)}%` }}></b></div>
    <span class="small">${percent(value)} <span class="quiet">(${percent(low)} – ${percent(high)})</span></span>`;
}

/** @param {import("./owners.js").PartProps} props */
export function Procedures({ owner }) {
  const found = usePages((cursor, signal) => ask(api.GET("/v1/procedures", { params: { query: { ...owner, status: "any", limit: 20, cursor } }, signal })), []);
  const body = { ...owner, name: "Refund a lost parcel", trigger: "A parcel never arrived", steps: ["Ask the carrier", "Refund the order"] };
  return html`<${ProblemBox} problem=${found.error} />
    ${found.items?.length === 0 && html`<${Empty} title="No procedures. Write one:" curl=${curl("POST", `${BASE}/v1/procedures`, body, Boolean(key.get()))} />`}
    ${found.items?.map((procedure) => {
      const total = procedure.success_count + procedure.failure_count;
      return html`<section class="box" key=${procedure.procedure_id}><div class="row apart"><h2><${Text} text=${procedure.name} /></h2><${Status} of=${procedure.status} /></div>
        <p class="quiet">When: <${Text} text=${procedure.trigger} long=${300} /></p>
        ${total ? html`<${Interval} value=${procedure.success_count / total} ...${wilson(procedure.success_count, total)} />` : html`<p class="quiet">Never tried.</p>`}
        <p class="small">${procedure.success_count} worked, ${procedure.failure_count} failed; the last outcomes, oldest first:
          ${procedure.recent_outcomes.map((one) => html` <span title=${`${one.at}${one.note ? `: ${one.note}` : ""}`}>${one.success ? "✓" : "✗"}</span>`)}
          <span class="quiet"> Last used <${Time} at=${procedure.last_used} /></span></p>
        <details><summary>Steps and notes</summary><ol class="plan">${procedure.steps.map((step) => html`<li><${Text} text=${step} /></li>`)}</ol>
          <ul>${procedure.notes.map((note) => html`<li><${Text} text=${note} /></li>`)}</ul></details></section>`;
    })}
    <${More} of=${found} />`;
}

/** @param {{ agent_id: string, user_id?: string }} owner @param {AbortSignal} signal */
async function statistics(owner, signal) {
  const query = { ...owner, window_days: DAYS };
  const [types, days] = await Promise.all([
    ask(api.GET("/v1/actions/stats", { params: { query: { ...query, group_by: "action_type" } }, signal })),
    ask(api.GET("/v1/actions/stats", { params: { query: { ...query, group_by: "day" } }, signal })),
  ]);
  return { types, days: days.groups ?? [] };
}

/** @param {import("./owners.js").PartProps} props */
export function Actions({ id, route }) {
  const user_id = route.params.user_id || undefined;
  const owner = { agent_id: id, user_id };
  const loaded = useLoad((signal) => statistics(owner, signal), [user_id]);
  const body = { ...owner, action_type: "refund", outcome: "success" };
  return html`<${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof statistics>>} */ { types, days }) => {
    if (!types.total_actions) return html`<${Empty} title=${`No actions in ${DAYS} days. Log one:`} curl=${curl("POST", `${BASE}/v1/actions`, body, Boolean(key.get()))} />`;
    const x = days.map((day) => Date.parse(day.key) / 1000);
    return html`<ul class="tiles"><li><b>${types.total_actions}</b>actions in ${types.window_days} days</li>
        <li><b>${types.success_rate ? percent(types.success_rate.value) : "–"}</b>succeeded</li>
        <li><b>${types.p95_duration_ms?.toFixed(0) ?? "–"}</b>ms, 95th percentile</li><li><b>${types.mean_rating?.toFixed(1) ?? "–"}</b>mean rating</li></ul>
      <div class="grid"><${Chart} label="Actions a day" x=${x} range=${[0, Math.max(4, ...days.map((day) => day.total_actions)) + 1]} series=${[{ name: "actions", values: days.map((day) => day.total_actions), bars: true }]} />
        <${Chart} label="Success rate by day" x=${x} range=${[0, 1]} digits=${2} series=${[{ name: "success", values: days.map((day) => day.success_rate?.value ?? null), tone: 2, points: true }]} /></div>
      <section class="box"><h2>By type</h2><div class="scroll" tabindex="0" role="region" aria-label="Actions by type"><table><thead><tr><th>Type</th><th class="number">Actions</th><th>Success, with its 95 % interval</th><th class="number">p95 ms</th><th class="number">Rating</th></tr></thead>
        <tbody>${(types.groups ?? []).map((group) => html`<tr key=${group.key}><td><${Text} text=${group.key} long=${80} /></td><td class="number">${group.total_actions}</td>
          <td>${group.success_rate ? html`<${Interval} ...${group.success_rate} />` : "–"}</td><td class="number">${group.p95_duration_ms?.toFixed(0) ?? "–"}</td>
          <td class="number">${group.mean_rating?.toFixed(1) ?? "–"}</td></tr>`)}</tbody></table></div></section>`;
  }}</${Loaded}>`;
}
