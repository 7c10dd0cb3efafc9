/** What an agent did: statistics of its actions, and the actions themselves, by outcome and type. */
import { html } from "../ui.js";
import { BASE, api, ask, key, useLoad, usePages } from "../api.js";
import { Interval } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { Chips, ChosenFilter } from "../parts/collection.js";
import { Empty, Loaded, More, ProblemBox, Waiting, WaitingRows } from "../parts/feedback.js";
import { Json, RecordLink, Status } from "../parts/records.js";
import { Table } from "../parts/table.js";
import { ExactTime, Text, Time, curl, percent, words } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]["Action"]} Action */

const DAYS = 60;
const ROWS = 20;
const OUTCOMES = /** @type {const} */ (["success", "failure", "partial"]);
const FILTERS = { outcome: "Outcome", action_type: "Type" };
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
  return html`${named && html`<${Chosen} id=${named} all=${to(route.page, route.rest, { ...route.params, action: "" })} />`}<${Logged} id=${id} route=${route} />`;
}

/** @param {{ id: string, route: import("../route.js").Route }} props */
function Logged({ id, route: { page, rest, params } }) {
  const owner = { agent_id: id, user_id: params.user_id || undefined };
  const filters = { outcome: OUTCOMES.find((outcome) => outcome === params.outcome), action_type: params.action_type || undefined };
  const address = (/** @type {Record<string, string>} */ given) => to(page, rest, { ...params, action: "", ...given });
  const query = { ...owner, ...filters, limit: ROWS };
  const actions = usePages((cursor, signal) => ask(api.GET("/v1/actions", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["action"]);
  // statistics read every action of these days, so that the actions are asked for first
  const counted = useLoad((signal) => statistics(owner, signal), [owner.user_id]);
  const filtered = Boolean(filters.outcome ?? filters.action_type);
  if (!filtered && actions.items?.length === 0 && counted.data?.types.total_actions === 0) {
    const body = { ...owner, action_type: "refund", outcome: "success" };
    return html`<${Empty} title=${`No actions in ${DAYS} days. Log one:`} curl=${curl("POST", `${BASE}/v1/actions`, body, Boolean(key.get()))} />`;
  }
  const types = counted.data?.types.groups?.map((group) => group.key) ?? [];
  const set = (/** @type {Record<string, string>} */ given) => go(address(given), { replace: true });
  return html`<${ProblemBox} problem=${counted.error} />${counted.data ? html`<${Figures} of=${counted.data} address=${address} />` : !counted.error && html`<section class="box"><${Waiting} lines=${8} /></section>`}
    <section class="box" aria-label="List of actions" aria-busy=${actions.loading}><h2>Actions, newest first</h2>
      <div class="filters"><${ChosenFilter} name="outcome" label="Outcome" params=${params} set=${set} options=${OUTCOMES} any="any outcome" />
        <${ChosenFilter} name="action_type" label="Type" params=${params} set=${set} options=${filters.action_type && !types.includes(filters.action_type) ? [filters.action_type, ...types] : types} any="any type" /></div>
      <${Chips} params=${params} set=${set} names=${FILTERS} /><${ProblemBox} problem=${actions.error} again=${actions.again} /><${WaitingRows} of=${actions} />
      <ul class="list">${actions.items?.map((action) => html`<li key=${action.action_id}><${Text} text=${action.content} long=${200} />
        <div class="small quiet"><${Told} action=${action} /> · <${Time} at=${action.timestamp} /></div><${Json} title="What was done" value=${action.action} /></li>`)}</ul>
      ${actions.items?.length === 0 && html`<p class="quiet">${filtered ? "No action that is kept singly is like this" : "None is kept singly"}; those of earlier days were rolled up.</p>`}
      <${More} of=${actions} /></section>`;
}

/** "1,214", or a dash where nothing was measured. @param {number | null | undefined} value */
const whole = (value) => value?.toLocaleString("en", { maximumFractionDigits: 0 }) ?? "–";

/** @param {{ of: Awaited<ReturnType<typeof statistics>>, address: (given: Record<string, string>) => string }} props `address`: of the actions with these filters */
function Figures({ of: { types, days }, address }) {
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
      <li><a href=${address({ outcome: "failure" })}><b>${(types.counts.failure ?? 0).toLocaleString("en")}</b>failed</a>${types.counts.partial ? `${types.counts.partial.toLocaleString("en")} partial` : ""}</li>
      <li><b>${whole(types.p95_duration_ms)}${types.p95_duration_ms ? " ms" : ""}</b>or less for 95 % of them</li><li><b>${types.mean_rating?.toFixed(1) ?? "–"}</b>mean rating of 1 to 5</li></ul>
    <div class="grid"><section class="box"><${Chart} label="Actions a day" x=${x} range=${[0, most * 1.1]} series=${[{ name: "actions", values: days.map((day) => day.total_actions), bars: true }]} /></section>
      <section class="box"><${Chart} label="Success rate of the seven days up to each day" x=${x} range=${[-0.05, 1.05]} digits=${2} series=${[{ name: "success", values: rates, tone: 2, points: true }]} /></section></div>
    <section class="box"><h2>By type</h2><${Table} label="Actions by type" heads=${["Type", { figure: "Actions" }, "Success, with its 95 % interval", { figure: "95 % took at most, ms" }, { figure: "Rating, 1 to 5" }]}
      rows=${(types.groups ?? []).map((group) => ({ key: group.key, cells: [html`<a href=${address({ action_type: group.key })}><${Text} text=${words(group.key)} long=${80} /></a>`, group.total_actions,
        group.success_rate ? html`<${Interval} ...${group.success_rate} />` : "–", whole(group.p95_duration_ms), group.mean_rating?.toFixed(1) ?? "–"] }))} /></section>`;
}
