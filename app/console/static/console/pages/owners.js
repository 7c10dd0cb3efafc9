/** People and agents: what is known of them, and what they do. */
import { html, useEffect, useState } from "../ui.js";
import { BASE, api, ask, key, useLoad, useModule, usePages } from "../api.js";
import { Empty, Loaded, More, ProblemBox, WaitingRows } from "../parts/feedback.js";
import { FieldValue, ToDecide, againstField, disputedOf } from "../parts/doubts.js";
import { Tabs } from "../parts/records.js";
import { Icon, Text, curl, visible } from "../parts/text.js";
import { to } from "../route.js";
import { called, owning, useKnown, useNames } from "../parts/scope.js";
import { PARTS, partOf } from "./index.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {{ user_id?: string, agent_id?: string }} Owner */
/** @typedef {{ id: string, owner: Owner, route: import("../route.js").Route, caller: import("../api.js").Caller }} PartProps */

/** A part of a person or an agent. Its module is fetched when it is shown: the graph alone brings a library of 400 kB.
 * @param {PartProps & { file: string }} props */
const Shown = ({ file, ...props }) => html`<${Loaded} of=${useModule(file)}>${(/** @type {import("./index.js").Module} */ module) => html`<${module.default} ...${props} />`}</${Loaded}>`;

/** @type {import("../console.js").Page} */
export default function Owners({ route, caller }) {
  const [kind, id] = route.rest;
  const part = partOf(route.rest);
  const known = useKnown();
  // who is remembered first while the console is open is not in the list yet: it is asked for once more
  const missing = kind === "users" && Boolean(id) && known.everyone && !known.users.some((user) => user.user_id === id);
  useEffect(() => { if (missing) known.again(); }, [missing, id]);
  if (!part) return html`<${Lists} />`;
  const owner = kind === "users" ? { user_id: id } : { agent_id: id };
  const absent = missing && (part === PARTS.users[0] || part.name === "data");
  return html`<p><a class="back" href=${to("owners")}><${Icon} of="chevron-left" /> All people and agents</a></p>
    <${Heading} kind=${kind} id=${id} />
    ${!absent && html`<${Tabs} label="Parts" current=${part.name} tabs=${PARTS[kind].map((tab) => ({ ...tab, href: to("owners", [kind, id, tab.name]) }))} />`}
    ${absent ? html`<${Empty} title="There is no such person: nothing is stored under this id. The first memory makes one:"
      curl=${curl("POST", `${BASE}/v1/memories`, { user_id: id, content: "Prefers tea to coffee" }, Boolean(key.get()))} />`
    : html`<${Shown} key=${`${kind}/${id}/${part.name}`} file=${part.file} id=${id} owner=${owner} route=${route} caller=${caller} />`}`;
}

/** The name of the person or agent, and the id where it is another word. @param {{ kind: string, id: string }} props */
function Heading({ kind, id }) {
  const names = useNames();
  const name = kind === "users" ? names.person(id) : names.agent(id);
  return html`<h1><span class="text">${visible(name)}</span>${name.toLowerCase() !== id.toLowerCase() && html` <code class="quiet">${visible(id)}</code>`}</h1>`;
}

/** The fields of a profile that a list of people shows. */
const LISTED = /** @type {const} */ (["occupation", "home"]);

function Lists() {
  const users = usePages((cursor, signal) => ask(api.GET("/v1/users", { params: { query: { cursor, limit: 100 } }, signal })), []);
  const [typed, type] = useState("");
  const sought = typed.trim().toLowerCase();
  useEffect(() => { if (sought && users.next) users.more(); }, [sought, users.items]); // a name may be on a page that is not here yet
  const people = users.items?.filter((user) => called(user.user_id, user.name).toLowerCase().includes(sought))
    .sort((one, other) => (other.last_active ?? "").localeCompare(one.last_active ?? "") || called(one.user_id, one.name).localeCompare(called(other.user_id, other.name)));
  const agents = usePages((cursor, signal) => ask(api.GET("/v1/agents", { params: { query: { cursor, limit: 30, order: "asc" } }, signal })), []);
  const findings = useLoad(async (signal) => (await ask(api.GET("/v1/findings", { params: { query: { status: "open", limit: 100 } }, signal }))).items, [], ["finding"]).data ?? [];
  const disputed = useLoad((signal) => disputedOf({}, signal), [], ["fact", "memory"]).data ?? [];
  /** By the person or else the agent it is about, so that each is counted once. @type {Map<string, unknown[]>} */
  const waiting = Map.groupBy([...findings, ...disputed], ({ user_id, agent_id }) => (user_id ? `users/${user_id}` : agent_id ? `agents/${agent_id}` : ""));
  const shared = waiting.get("")?.length ?? 0, all = findings.length + disputed.length;
  const shown = (/** @type {Schemas["ListedUser"]} */ user) => LISTED.filter((field) => user[field]).map((field, index) => html`${index > 0 && " · "}<${FieldValue} value=${user[field]} lead=${field === "home" ? "lives in " : ""} by=${againstField(findings, user.user_id, field)} names=${[user.user_id, user.name ?? user.user_id]} />`);
  const withKey = Boolean(key.get());
  return html`<h1>People and agents</h1>${all > 0 && html`<p class="quiet small"><a href=${to("findings")}>${all} to decide</a> in all${shared ? `, ${shared} of them of nobody` : ""}. What is of a person and an agent is counted with the person.</p>`}<div class="two">
    <section class="box"><h2>People</h2><${ProblemBox} problem=${users.error} /><${WaitingRows} of=${users} />
      ${users.items?.length === 0 && html`<${Empty} title="Nobody is known yet. Remember something of a person:"
        curl=${curl("POST", `${BASE}/v1/memories`, { user_id: "ada", content: "Ada prefers tea to coffee" }, withKey)} />`}
      ${(users.items?.length ?? 0) > 0 && html`<div class="filters"><input type="search" aria-label="Search people" placeholder="Search people by name" value=${typed} onInput=${(/** @type {any} */ event) => type(event.target.value)} />
        <span class="quiet small">Who was active last comes first${users.next && `, of the first ${users.items?.length}`}.</span></div>`}
      ${sought && people?.length === 0 && !users.next && html`<p class="quiet">Nobody has this name.</p>`}
      <ul class="list">${people?.map((user) => html`<li key=${user.user_id} class="marked"><a class="title" href=${to("owners", ["users", user.user_id])}><${Text} text=${called(user.user_id, user.name)} /></a>
        <${ToDecide} count=${waiting.get(`users/${user.user_id}`)?.length ?? 0} owner=${{ user_id: user.user_id }} />
        ${LISTED.some((field) => user[field]) && html`<div class="quiet small">${shown(user)}</div>`}<div class="quiet small">${owning(user)}</div></li>`)}</ul>
      <${More} of=${users} /></section>
    <section class="box"><h2>Agents</h2><${ProblemBox} problem=${agents.error} /><${WaitingRows} of=${agents} />
      ${agents.items?.length === 0 && html`<${Empty} title="No agent has a record yet. Registering one is optional; it gives an agent settings and lessons:"
        curl=${curl("POST", `${BASE}/v1/agents`, { agent_id: "support", name: "Support" }, withKey)} />`}
      <ul class="list">${agents.items?.map((agent) => html`<li key=${agent.agent_id} class="marked"><a class="title" href=${to("owners", ["agents", agent.agent_id])}><${Text} text=${called(agent.agent_id, agent.name)} /></a>
        <${ToDecide} count=${waiting.get(`agents/${agent.agent_id}`)?.length ?? 0} owner=${{ agent_id: agent.agent_id }} />
        ${agent.description && html`<div class="quiet small"><${Text} text=${agent.description} long=${200} /></div>`}<div class="quiet small">${owning(agent)}</div></li>`)}</ul>
      <${More} of=${agents} /></section></div>`;
}
