/** What an agent did: its latest actions, and statistics of them. */
import { html } from "../ui.js";
import { BASE, api, ask, key, useLoad } from "../api.js";
import { Interval } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { Empty, Loaded, ProblemBox, Waiting } from "../parts/feedback.js";
import { Json, RecordLink, Status } from "../parts/records.js";
import { Table } from "../parts/table.js";
import { ExactTime, Text, Time, curl, percent, words } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]["Action"]} Action */

const DAYS = 60;
const LATEST = 8;
const WEEK_SECONDS = 7 * 86_400;

/** @param {{ agent_id: string, user_id?: string }} owner @param {AbortSignal} signal */
async function statistics(owner, signal) {
  const query = { ...owner, window_days: DAYS };
  const [types, days] = await Promise.all([
    ask(api.GET("/v1/actions/stats", { params: { query: { ...query, group_by: "action_type" } }, signal })),
    ask(api.GET("/v1/actions/stats", { params: { query: { ...query, group_by: "day" } }, signal })),
  ]);
  return { types, days: days.groups ?? [] };
}

/** What is said of an action in its row and of the one that was chosen. @param {{ action: Action }} props */
const Told = ({ action }) => html`${action.outcome && html`<${Status} of=${action.outcome} /> `}${words(action.action_type)}${action.action.tool && html` with <${Text} text=${action.action.tool} long=${60} />`}`;

/** The action that the address names: a link of the audit leads to it. @param {{ id: string, all: string }} props `all`: the address without it */
function Chosen({ id, all }) {
  const loaded = useLoad((signal) => ask(api.GET("/v1/actions/{action_id}", { params: { path: { action_id: id } }, signal })), [id]);
  return html`<section class="box" aria-label="Action"><div class="row apart"><h2>Action</h2><a href=${all}>All actions</a></div><${Loaded} of=${loaded}>${(/** @type {Action} */ action) => html`
    <p><${Text} text=${action.content} /></p><p class="small quiet"><${Told} action=${action} /></p>
    <dl class="pairs"><dt>When</dt><dd><${ExactTime} at=${action.timestamp} /></dd>${action.session_id && html`<dt>Session</dt><dd><${RecordLink} id=${action.session_id} kinds=${["conversation_sessions"]} /></dd>`}
      <dt>Id</dt><dd><${RecordLink} id=${action.action_id} own=${true} /></dd></dl><${Json} title="What was done" value=${action.action} />`}</${Loaded}></section>`;
}

/** @param {import("./owners.js").PartProps} props */
export default function Actions({ id, route }) {
  const { action: named } = route.params;
  return html`${named && html`<${Chosen} id=${named} all=${to(route.page, route.rest, { ...route.params, action: "" })} />`}<${Logged} id=${id} user_id=${route.params.user_id || undefined} />`;
}

/** @param {{ id: string, user_id: string | undefined }} props */
function Logged({ id, user_id }) {
  const owner = { agent_id: id, user_id };
  const latest = useLoad(async (signal) => (await ask(api.GET("/v1/actions", { params: { query: { ...owner, limit: LATEST } }, signal }))).items, [user_id], ["action"]);
  // statistics read every action of these days, so that the latest ones are asked for first
  const counted = useLoad((signal) => statistics(owner, signal), [user_id]);
  const times = (latest.data ?? []).map(({ timestamp }) => timestamp);
  if (latest.data?.length === 0 && counted.data?.types.total_actions === 0) {
    const body = { ...owner, action_type: "refund", outcome: "success" };
    return html`<${Empty} title=${`No actions in ${DAYS} days. Log one:`} curl=${curl("POST", `${BASE}/v1/actions`, body, Boolean(key.get()))} />`;
  }
  return html`<${ProblemBox} problem=${counted.error} />${counted.data ? html`<${Figures} of=${counted.data} />` : !counted.error && html`<section class="box"><${Waiting} lines=${8} /></section>`}
    <section class="box"><h2>Latest actions</h2><${Loaded} of=${latest}>${(/** @type {Action[]} */ actions) => html`<ul class="list">${actions.map((action) => html`<li key=${action.action_id}>
      <${Text} text=${action.content} long=${200} /><div class="small quiet"><${Told} action=${action} /> · <${Time} at=${action.timestamp} among=${times} /></div></li>`)}</ul>
      ${!actions.length && html`<p class="quiet">None is kept singly; those of earlier days were rolled up.</p>`}`}</${Loaded}></section>`;
}

/** "1,214", or a dash where nothing was measured. @param {number | null | undefined} value */
const whole = (value) => value?.toLocaleString("en", { maximumFractionDigits: 0 }) ?? "–";

/** @param {{ of: Awaited<ReturnType<typeof statistics>> }} props */
function Figures({ of: { types, days } }) {
  const x = days.map((day) => Date.parse(day.key) / 1000);
  // a day has one to three actions, whose rate jumps between 0 and 1
  const rates = x.map((at) => {
    const week = days.filter((day, index) => day.success_rate && x[index] <= at && x[index] > at - WEEK_SECONDS);
    const total = week.reduce((sum, day) => sum + day.total_actions, 0);
    return total ? week.reduce((sum, day) => sum + (day.success_rate?.value ?? 0) * day.total_actions, 0) / total : null;
  });
  const most = Math.max(4, ...days.map((day) => day.total_actions));
  return html`<p class="quiet small">Every action that was logged, whether it followed a procedure or not. The uses reported for a procedure are counted there.</p><ul class="tiles"><li><b>${types.total_actions.toLocaleString("en")}</b>actions in ${types.window_days} days</li>
      <li><b>${types.success_rate ? percent(types.success_rate.value) : "–"}</b>succeeded</li>
      <li><b>${whole(types.p95_duration_ms)}${types.p95_duration_ms ? " ms" : ""}</b>or less for 95 % of them</li><li><b>${types.mean_rating?.toFixed(1) ?? "–"}</b>mean rating of 1 to 5</li></ul>
    <div class="grid"><section class="box"><${Chart} label="Actions a day" x=${x} range=${[0, most * 1.1]} series=${[{ name: "actions", values: days.map((day) => day.total_actions), bars: true }]} /></section>
      <section class="box"><${Chart} label="Success rate of the seven days up to each day" x=${x} range=${[-0.05, 1.05]} digits=${2} series=${[{ name: "success", values: rates, tone: 2, points: true }]} /></section></div>
    <section class="box"><h2>By type</h2><${Table} label="Actions by type" heads=${["Type", { figure: "Actions" }, "Success, with its 95 % interval", { figure: "95 % took at most, ms" }, { figure: "Rating, 1 to 5" }]}
      rows=${(types.groups ?? []).map((group) => ({ key: group.key, cells: [html`<${Text} text=${words(group.key)} long=${80} />`, group.total_actions,
        group.success_rate ? html`<${Interval} ...${group.success_rate} />` : "–", whole(group.p95_duration_ms), group.mean_rating?.toFixed(1) ?? "–"] }))} /></section>`;
}
