/** People and agents: what is known of them, and what they do. */
import { html, useEffect, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Confirm, Empty, Loaded, More, ProblemBox, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { FieldValue, ToDecide, againstField, disputedOf } from "../parts/doubts.js";
import { Json, Tabs, ended } from "../parts/records.js";
import { Code, Icon, Tag, Text, Time, curl, visible, words } from "../parts/text.js";
import { parse, to } from "../route.js";
import { called, useKnown, useNames } from "../parts/scope.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {{ user_id?: string, agent_id?: string }} Owner */
/** @typedef {{ id: string, owner: Owner, route: import("../route.js").Route, caller: import("../api.js").Caller }} PartProps */

/** A part whose module is fetched when it is shown: the graph alone brings a library of 400 kB.
 * @param {() => Promise<(props: PartProps) => any>} load */
function fetched(load) {
  const part = (/** @type {PartProps} */ props) => html`<${Fetched} load=${load} props=${props} />`;
  LOADS.set(part, load);
  return part;
}

/** How each part is fetched. @type {Map<(props: PartProps) => any, () => Promise<unknown>>} */
const LOADS = new Map();

/** @param {{ load: () => Promise<(props: PartProps) => any>, props: PartProps }} given */
function Fetched({ load, props }) {
  const part = useLoad(async () => ({ Part: await load() }), []);
  return html`<${Loaded} of=${part}>${(/** @type {{ Part: (props: PartProps) => any }} */ { Part }) => html`<${Part} ...${props} />`}</${Loaded}>`;
}

const Person = fetched(() => import("./owner_person.js").then((module) => module.Person));
const Facts = fetched(() => import("./owner_facts.js").then((module) => module.Facts));
const Graph = fetched(() => import("./owner_graph.js").then((module) => module.Graph));
const Procedures = fetched(() => import("./owner_procedures.js").then((module) => module.Procedures));
const Actions = fetched(() => import("./owner_actions.js").then((module) => module.Actions));

const TABS = /** @type {Record<string, { name: string, title: string, show: (props: PartProps) => any }[]>} */ ({
  users: [
    { name: "now", title: "What is known", show: Person },
    { name: "profile", title: "Profile", show: Profile },
    { name: "facts", title: "Facts", show: Facts },
    { name: "graph", title: "Graph", show: Graph },
    { name: "procedures", title: "Procedures", show: Procedures },
    { name: "data", title: "Export and erase", show: Data },
  ],
  agents: [
    { name: "about", title: "About", show: About },
    { name: "experience", title: "Experience", show: Experience },
    { name: "facts", title: "Facts", show: Facts },
    { name: "graph", title: "Graph", show: Graph },
    { name: "procedures", title: "Procedures", show: Procedures },
    { name: "actions", title: "Actions", show: Actions },
  ],
});

/** @param {string} kind @param {string | undefined} part */
const tabOf = (kind, part) => TABS[kind].find(({ name }) => name === part) ?? TABS[kind][0];

// The part of the address is fetched while the service says who asks. `Fetched` reports what fails.
const { rest: [kindAsked = "", , partAsked] } = parse(location.hash);
if (Object.hasOwn(TABS, kindAsked)) LOADS.get(tabOf(kindAsked, partAsked).show)?.().catch(() => {});

/** @type {import("../console.js").Page} */
export default function Owners({ route, caller }) {
  const [kind, id, part] = route.rest;
  const tabs = Object.hasOwn(TABS, kind) ? TABS[kind] : undefined;
  const known = useKnown();
  // who is remembered first while the console is open is not in the list yet: it is asked for once more
  const missing = kind === "users" && Boolean(id) && known.everyone && !known.users.some((user) => user.user_id === id);
  useEffect(() => { if (missing) known.again(); }, [missing, id]);
  if (!id || !tabs) return html`<${Lists} />`;
  const tab = tabOf(kind, part);
  const owner = kind === "users" ? { user_id: id } : { agent_id: id };
  const absent = missing && (tab === tabs[0] || tab.name === "data");
  return html`<p><a class="back" href=${to("owners")}><${Icon} of="chevron-left" /> All people and agents</a></p>
    <${Heading} kind=${kind} id=${id} />
    ${!absent && html`<${Tabs} label="Parts" current=${tab.name} tabs=${tabs.map((one) => ({ ...one, href: to("owners", [kind, id, one.name]) }))} />`}
    ${absent ? html`<${Empty} title="There is no such person: nothing is stored under this id. The first memory makes one:"
      curl=${curl("POST", `${BASE}/v1/memories`, { user_id: id, content: "Prefers tea to coffee" }, Boolean(key.get()))} />`
    : html`<${tab.show} key=${`${kind}/${id}/${tab.name}`} id=${id} owner=${owner} route=${route} caller=${caller} />`}`;
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
  const users = usePages((cursor, signal) => ask(api.GET("/v1/users", { params: { query: { cursor, limit: 30 } }, signal })), []);
  const agents = usePages((cursor, signal) => ask(api.GET("/v1/agents", { params: { query: { cursor, limit: 30 } }, signal })), []);
  const findings = useLoad(async (signal) => (await ask(api.GET("/v1/findings", { params: { query: { status: "open", limit: 100 } }, signal }))).items, [], ["finding"]).data ?? [];
  const disputed = useLoad((signal) => disputedOf({}, signal), [], ["fact", "memory"]).data ?? [];
  const waiting = Map.groupBy([...findings, ...disputed], (doubt) => doubt.user_id);
  const shown = (/** @type {Schemas["ListedUser"]} */ user) => LISTED.filter((field) => user[field]).map((field, index) => html`${index > 0 && " · "}<${FieldValue} value=${user[field]} lead=${field === "home" ? "lives in " : ""} by=${againstField(findings, user.user_id, field)} names=${[user.user_id, user.name ?? user.user_id]} />`);
  const withKey = Boolean(key.get());
  return html`<h1>People and agents</h1><div class="two">
    <section class="box"><h2>People</h2><${ProblemBox} problem=${users.error} /><${WaitingRows} of=${users} />
      ${users.items?.length === 0 && html`<${Empty} title="Nobody is known yet. Remember something of a person:"
        curl=${curl("POST", `${BASE}/v1/memories`, { user_id: "ada", content: "Ada prefers tea to coffee" }, withKey)} />`}
      <ul class="list">${users.items?.map((user) => html`<li key=${user.user_id} class="marked"><a class="title" href=${to("owners", ["users", user.user_id])}><${Text} text=${called(user.user_id, user.name)} /></a>
        <${ToDecide} count=${waiting.get(user.user_id)?.length ?? 0} owner=${{ user_id: user.user_id }} />
        ${LISTED.some((field) => user[field]) && html`<div class="quiet small">${shown(user)}</div>`}</li>`)}</ul>
      <${More} of=${users} /></section>
    <section class="box"><h2>Agents</h2><${ProblemBox} problem=${agents.error} /><${WaitingRows} of=${agents} />
      ${agents.items?.length === 0 && html`<${Empty} title="No agent is registered. That is optional; it gives an agent settings and lessons:"
        curl=${curl("POST", `${BASE}/v1/agents`, { agent_id: "support", name: "Support" }, withKey)} />`}
      <ul class="list">${agents.items?.map((agent) => html`<li key=${agent.agent_id}><a class="title" href=${to("owners", ["agents", agent.agent_id])}><${Text} text=${agent.name} /></a>
        <div class="quiet small"><${Text} text=${agent.description} long=${200} /></div></li>`)}</ul>
      <${More} of=${agents} /></section></div>`;
}

/** Pairs of a name and a value; empty ones are left out. @param {{ pairs: [string, unknown][] }} props */
function Pairs({ pairs }) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length));
  return html`<dl class="pairs">${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${Array.isArray(value)
    ? value.map((one) => html`<div><${Text} text=${String(one)} /></div>`) : html`<${Text} text=${String(value)} />`}</dd>`)}</dl>`;
}

/** A missing record is no fault here. @template T @param {Promise<T>} call @returns {Promise<T | null>} */
const orNull = (call) => call.catch((problem) => {
  if (problem.status === 404) return null;
  throw problem;
});

/** @param {PartProps} props */
function Profile({ id }) {
  const path = { user_id: id };
  const loaded = useLoad(async (signal) => {
    const query = { limit: 20 };
    const [profile, interactions, issues, solutions] = await Promise.all([
      orNull(ask(api.GET("/v1/users/{user_id}/profile", { params: { path }, signal }))),
      orNull(ask(api.GET("/v1/users/{user_id}/interactions", { params: { path }, signal }))),
      ask(api.GET("/v1/users/{user_id}/issues", { params: { path, query }, signal })),
      ask(api.GET("/v1/users/{user_id}/solutions", { params: { path, query }, signal })),
    ]);
    return { profile, interactions, issues, solutions };
  }, [id]);
  return html`<${Loaded} of=${loaded}>${(/** @type {any} */ { profile, interactions, issues, solutions }) => html`<div class="two">
    <section class="box"><h2>Profile</h2>${profile ? html`<${Pairs} pairs=${[["Name", profile.name], ["Age", profile.age], ["Home", profile.home],
        ["Occupation", profile.occupation], ["Interests", profile.interests], ["How to talk", profile.conversation_preferences]]} />
        <${Json} title="Preferences" value=${profile.preferences} /><${Json} title="Custom" value=${profile.custom} />
        <p class="quiet small">Version ${profile.version}, changed <${Time} at=${profile.updated_at} /></p>`
      : html`<${Empty} title="No profile yet. Write one:" curl=${curl("PATCH", `${BASE}/v1/users/${encodeURIComponent(id)}/profile`, { interests: ["climbing"] }, Boolean(key.get()))} />`}
      <p class="small"><a href=${to("memories", [], { user_id: id })}>Memories of this person</a>, <a href=${to("sessions", [], { user_id: id })}>sessions</a>, <a href=${to("tasks", [], { user_id: id })}>tasks</a>, <a href=${to("findings", [], { user_id: id })}>findings</a></p></section>
    <div><section class="box"><h2>Interactions</h2><ul class="list">${interactions?.items.map((/** @type {Schemas["Interaction"]} */ one) => html`<li>
        <${Text} text=${one.summary} long=${300} /> ${one.outcome && html`<${Tag} of=${one.outcome} />`} <span class="quiet small"><${Time} at=${one.timestamp} /></span></li>`)}</ul>
        ${!interactions?.items.length && html`<p class="quiet">None.</p>`}</section>
    <section class="box"><h2>Issues and solutions</h2><ul class="list">
        ${issues.items.map((/** @type {Schemas["Issue"]} */ one) => html`<li><${Tag} of=${words(one.status)} /> <${Text} text=${one.description} long=${300} /></li>`)}
        ${solutions.items.map((/** @type {Schemas["Solution"]} */ one) => html`<li><${Tag} of="solution" tone="good" /> ${one.problem && html`<${Text} text=${one.problem} long=${200} />: `}<${Text} text=${one.fix} long=${200} /></li>`)}</ul>
        ${!issues.items.length && !solutions.items.length && html`<p class="quiet">None.</p>`}</section></div></div>`}</${Loaded}>`;
}

/** @param {PartProps} props */
function About({ id }) {
  const loaded = useLoad((signal) => orNull(ask(api.GET("/v1/agents/{agent_id}", { params: { path: { agent_id: id } }, signal }))), [id]);
  return html`<${Loaded} of=${loaded}>${(/** @type {Schemas["Agent"] | null} */ agent) => agent === null
    ? html`<${Empty} title="This agent is not registered. Its records are there all the same; registering gives it settings:"
        curl=${curl("POST", `${BASE}/v1/agents`, { agent_id: id, name: id }, Boolean(key.get()))} />`
    : html`<section class="box"><${Pairs} pairs=${[["Name", agent.name], ["Description", agent.description], ["Model", agent.model], ["System prompt", agent.system_prompt],
      ["Tokens of a context", agent.settings.max_context_tokens], ["Importance below which searches leave a memory out", agent.settings.min_importance],
      ["Decay", `Importance falls to ${agent.settings.decay?.factor} of itself with each 30 days in which nobody recalls it, once ${agent.settings.decay?.grace_days} days have gone by; never below ${agent.settings.decay?.floor}`],
      ["Extraction", agent.settings.extraction_instructions]]} />
      <p class="small"><a href=${to("memories", [], { agent_id: id })}>Memories of this agent</a>, <a href=${to("sessions", [], { agent_id: id })}>sessions</a>, <a href=${to("tasks", [], { agent_id: id })}>tasks</a>, <a href=${to("findings", [], { agent_id: id })}>findings</a></p></section>`}</${Loaded}>`;
}

const LESSONS = /** @type {const} */ ([
  ["effective_strategies", "What works"], ["known_pitfalls", "Pitfalls"], ["heuristics", "Rules of thumb"], ["common_scenarios", "Common scenarios"],
  ["tool_patterns", "Tools"], ["user_feedback", "What people said"], ["improvement_areas", "To improve"],
]);

/** @param {PartProps} props */
function Experience({ id }) {
  const loaded = useLoad((signal) => orNull(ask(api.GET("/v1/agents/{agent_id}/experience", { params: { path: { agent_id: id } }, signal }))), [id]);
  return html`<${Loaded} of=${loaded}>${(/** @type {Schemas["Experience"] | null} */ experience) => experience === null
    ? html`<p class="quiet">Only registered agents gather experience.</p>`
    : html`${experience.procedural_knowledge && html`<section class="box"><${Text} text=${experience.procedural_knowledge} /></section>`}
      ${!LESSONS.some(([name]) => experience[name].length) && html`<p class="quiet">No lesson yet: sessions and actions of this agent bring them.</p>`}
      <div class="grid">${LESSONS.filter(([name]) => experience[name].length).map(([name, title]) => html`<section class="box" key=${name}><h2>${title}</h2>
        <ul class="list">${experience[name].map((lesson) => html`<li><${Text} text=${lesson.text} long=${300} /><div class="quiet small">seen ${lesson.seen === 1 ? "once" : `${lesson.seen} times`}${lesson.source.session_id
          && html`, from <a href=${to("sessions", [lesson.source.session_id])}>${visible(lesson.source.session_id)}</a>`}</div></li>`)}</ul></section>`)}</div>`}</${Loaded}>`;
}

/** @param {PartProps} props */
function Data({ id, caller }) {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const [receipt, setReceipt] = useState(/** @type {unknown} */ (undefined));
  const path = { user_id: id };
  const save = useAction(async () => {
    const lines = /** @type {unknown} */ (await ask(api.GET("/v1/users/{user_id}/export", { params: { path }, parseAs: "text" })));
    const address = URL.createObjectURL(new Blob([String(lines)], { type: "application/x-ndjson" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: `${id}.ndjson` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  const erase = async () => {
    const done = /** @type {any} */ (await ask(api.DELETE("/v1/users/{user_id}", { params: { path } })));
    setReceipt(done.operation_id && done.status ? (await ended(done)).result ?? done : done);
    toast({ text: "The person is erased." });
  };
  return html`<section class="box"><h2>Export</h2><p>Every record of this person, a line of JSON each. The export is noted in the audit trail.</p>
      <${ProblemBox} problem=${save.error} /><p><button type="button" disabled=${save.busy} onClick=${save.start}>Download the export</button></p></section>
    ${may(caller, "write") && html`<section class="box"><h2>Erase</h2>
      <p>All records of this person go for good, with what was derived from them, their history and vectors. A receipt says what went.</p>
      <p><button type="button" class="danger" onClick=${() => setAsks(true)}>Erase this person…</button></p></section>`}
    ${receipt !== undefined && html`<section class="box" aria-label="Receipt"><h2>Receipt</h2><${Code} text=${JSON.stringify(receipt, null, 2)} label="Copy the receipt" /></section>`}
    ${asks && html`<${Confirm} title=${`Erase ${id}?`} button="Erase for good" action=${erase} onClose=${() => setAsks(false)}>
      <p>This cannot be undone. Export first if somebody may ask for the data.</p></${Confirm}>`}`;
}
