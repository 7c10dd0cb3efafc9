/** What pages of owned records share: links to records, operations that go on in the background. */
import { html, useLayoutEffect, useRef } from "../ui.js";
import { api, ask } from "../api.js";
import { to } from "../route.js";
import { Copy, Tag, Text, visible, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]["Operation"]} Operation */

const PAGES = { mem: "memories", task: "tasks" };

/** An id that the service made; its end tells one from another. */
const MADE = /^[a-z]+_[0-9a-f]{32}$/;

/** Kinds of records as the pages call them, where the store has another word. */
const KINDS = /** @type {Record<string, string>} */ ({ agent_memories: "memories", conversation_sessions: "sessions", action_logs: "actions", task_states: "tasks", users: "people" });

/** A kind of records as the pages call it: `conversation_sessions` is "sessions". @param {string} kind */
export const kindOf = (kind) => KINDS[kind] ?? words(kind);

/** The address of a record by its id, or undefined where no page shows its kind. @param {string} id */
export function place(id) {
  const page = PAGES[/** @type {keyof typeof PAGES} */ (id.split("_")[0])];
  return page && to(page, [id]);
}

/** An id, as a link where a page shows the record. One that the service made is shortened; its title is the whole, and a button copies it. @param {{ id: string }} props */
export function RecordLink({ id }) {
  const address = place(id);
  const short = MADE.test(id) ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}` : id;
  return html`<span class="id">${address ? html`<a href=${address} title=${id}><code>${short}</code></a>` : html`<code title=${id}>${short}</code>`}<${Copy} text=${id} /></span>`;
}

/** Where it comes from: the words that were said, or the session. @param {{ of: import("schema").components["schemas"]["Source"] }} props */
export function SourceLink({ of }) {
  if (!of.session_id) return html`<span>${of.origin === "api" ? "through the API" : words(of.origin)}</span>`;
  const from = of.message_seq ? Math.max(0, of.message_seq - 1) : undefined;
  return html`<a href=${to("sessions", [of.session_id], { from })}>${of.quote ? `“${visible(of.quote)}”` : visible(of.session_id)}</a>`;
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
export const Status = ({ of }) => html`<${Tag} of=${words(of)} tone=${TONES[of] ?? ""} />`;

/** @param {unknown} value */
const isEmpty = (value) => value === null || value === undefined || value === "" || (typeof value === "object" && !Object.keys(value).length);

/** A value of JSON to read: names with their values, lists as lists. Fields that hold nothing are left out. @param {{ of: unknown }} props */
export function Value({ of }) {
  if (isEmpty(of)) return html`<span class="quiet">nothing</span>`;
  if (Array.isArray(of)) {
    return of.every((one) => typeof one !== "object") ? html`<${Text} text=${of.join(", ")} long=${400} />`
      : html`<ul class="values">${of.map((one) => html`<li><${Value} of=${one} /></li>`)}</ul>`;
  }
  if (typeof of === "object") {
    return html`<dl class="pairs">${Object.entries(/** @type {object} */ (of)).filter(([, value]) => !isEmpty(value)).map(([name, value]) => html`
      <dt>${words(name)}</dt><dd><${Value} of=${value} /></dd>`)}</dl>`;
  }
  return html`<${Text} text=${of === true ? "yes" : of === false ? "no" : String(of)} long=${400} />`;
}

/** Pairs of a name and a value; empty ones are left out. @param {{ pairs: [string, unknown][] }} props */
export function Pairs({ pairs }) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length));
  return html`<dl class="pairs">${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${Array.isArray(value)
    ? value.map((one) => html`<div><${Text} text=${String(one)} /></div>`) : html`<${Text} text=${String(value)} />`}</dd>`)}</dl>`;
}

/** What a record holds in a field of its own form, or nothing where it is empty. @param {{ value: unknown, title: string }} props */
export function Json({ value, title }) {
  return isEmpty(value) ? null : html`<details><summary class="small">${title}</summary><${Value} of=${value} /></details>`;
}

/** Scrolls a row so that a tab of it stands in the middle. @param {HTMLElement} tab */
function centre(tab) {
  const row = tab.parentElement;
  if (row) row.scrollLeft = tab.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

/** Links that show a part of a record each, in one row; where it is wider than the window, the chosen one and the one with the focus are scrolled into the middle.
 * @param {{ label: string, tabs: { name: string, title: string, href: string }[], current: string }} props */
export function Tabs({ label, tabs, current }) {
  const chosen = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => { if (chosen.current) centre(chosen.current); }, [current]);
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((tab) => html`<a key=${tab.name} href=${tab.href} ref=${tab.name === current ? chosen : undefined}
    aria-current=${tab.name === current ? "page" : undefined} onFocus=${(/** @type {any} */ event) => centre(event.currentTarget)}>${tab.title}</a>`)}</nav>`;
}
