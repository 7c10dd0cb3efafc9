/** What an agent did: statistics of its actions. */
import { html } from "../ui.js";
import { BASE, api, ask, key, useLoad } from "../api.js";
import { Interval } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { Empty, Loaded } from "../parts/feedback.js";
import { Table } from "../parts/table.js";
import { Text, curl, percent } from "../parts/text.js";

const DAYS = 60;

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
      <section class="box"><h2>By type</h2><${Table} label="Actions by type" heads=${["Type", { figure: "Actions" }, "Success, with its 95 % interval", { figure: "p95 ms" }, { figure: "Rating" }]}
        rows=${(types.groups ?? []).map((group) => ({ key: group.key, cells: [html`<${Text} text=${group.key} long=${80} />`, group.total_actions,
          group.success_rate ? html`<${Interval} ...${group.success_rate} />` : "–", group.p95_duration_ms?.toFixed(0) ?? "–", group.mean_rating?.toFixed(1) ?? "–"] }))} /></section>`;
  }}</${Loaded}>`;
}
