/** What pages of owned records share: choosing an owner, links to records, operations that go on in the background. */
import { html } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { go, to } from "../route.js";
import { Tag } from "./text.js";

/** @typedef {import("schema").components["schemas"]["Operation"]} Operation */

const PAGES = { mem: "memories", task: "tasks" };

/** An id that the service made; its end tells one from another. */
const MADE = /^[a-z]+_[0-9a-f]{32}$/;

/** The address of a record by its id, or undefined where no page shows its kind. @param {string} id */
export function place(id) {
  const page = PAGES[/** @type {keyof typeof PAGES} */ (id.split("_")[0])];
  return page && to(page, [id]);
}

/** An id, as a link where a page shows the record. One that the service made is shortened; its title is the whole. @param {{ id: string }} props */
export function RecordLink({ id }) {
  const address = place(id);
  const short = MADE.test(id) ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}` : id;
  return address ? html`<a href=${address} title=${id}><code>${short}</code></a>` : html`<code title=${id}>${short}</code>`;
}

/**
 * Fields for agent and user with the known ones as suggestions. A change goes into the address.
 * @param {{ route: import("../route.js").Route, names?: ("agent_id" | "user_id")[] }} props
 */
export function OwnerFilter({ route, names = ["agent_id", "user_id"] }) {
  const known = useLoad((signal) => owners(signal), []);
  const change = (/** @type {string} */ name, /** @type {string} */ value) =>
    go(to(route.page, route.rest, { ...route.params, [name]: value }), { replace: true });
  return names.map((name) => html`<label>${name === "agent_id" ? "Agent" : "User"}
    <input list=${`known-${name}`} value=${route.params[name] ?? ""} autocomplete="off" size="14"
      onChange=${(/** @type {any} */ event) => change(name, event.target.value.trim())} />
    <datalist id=${`known-${name}`}>${(known.data?.[name] ?? []).map((id) => html`<option value=${id} />`)}</datalist></label>`);
}

/** @param {AbortSignal} signal @returns {Promise<Record<string, string[]>>} the first hundred of each */
export async function owners(signal) {
  const query = { limit: 100 };
  const [users, agents] = await Promise.all([
    ask(api.GET("/v1/users", { params: { query }, signal })), ask(api.GET("/v1/agents", { params: { query }, signal })),
  ]);
  return { user_id: users.items.map((user) => user.user_id), agent_id: agents.items.map((agent) => agent.agent_id) };
}

const LOOKS = 40;
const PAUSE = 250;
const UNDER_WAY = ["queued", "running"];

/** Waits until an operation has ended, ten seconds at most. Returns it as it was seen last.
 * @param {Operation} begun @returns {Promise<Operation>} */
export async function ended(begun) {
  let operation = begun;
  for (let look = 0; look < LOOKS && UNDER_WAY.includes(operation.status); look++) {
    await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    const path = { operation_id: begun.operation_id };
    operation = await ask(api.GET("/v1/operations/{operation_id}", { params: { path } }));
  }
  return operation;
}

const TONES = /** @type {Record<string, string>} */ ({
  succeeded: "good", completed: "good", active: "good", success: "good", failed: "bad", disputed: "bad", failure: "bad", cancelled: "bad",
});

/** A status in its colour. @param {{ of: string }} props */
export const Status = ({ of }) => html`<${Tag} of=${of} tone=${TONES[of] ?? ""} />`;

/** JSON that a record holds, or nothing where it is empty. @param {{ value: unknown, title: string }} props */
export function Json({ value, title }) {
  if (value === null || value === undefined || (typeof value === "object" && !Object.keys(value).length)) return null;
  return html`<details><summary class="small">${title}</summary><pre class="plain prompt" tabindex="0">${JSON.stringify(value, null, 2)}</pre></details>`;
}

/** Links that show a part of a record each. @param {{ label: string, tabs: { name: string, title: string, href: string }[], current: string }} props */
export function Tabs({ label, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((tab) => html`<a href=${tab.href}
    aria-current=${tab.name === current ? "page" : undefined}>${tab.title}</a>`)}</nav>`;
}
